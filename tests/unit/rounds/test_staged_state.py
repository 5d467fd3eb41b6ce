"""Large public arrays of a state are in a file: graphs stay small, steps get them back, and other files are refused."""

import dataclasses
import pathlib

import apache_beam as beam
import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.fit import aggregation_of
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.core.noise import draw_release
from dapple_dp.transforms.core.round import measure
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.on_beam.checker import check_graph
from dapple_dp.transforms.on_beam.round import ServerFn
from dapple_dp.transforms.rounds import staged_state as module
from dapple_dp.transforms.rounds.staged_state import begin, drop_arrays, restore, staged_state, with_arrays
from tests.scenes import lake
from tests.scenes.graphs import add_fit
from tests.scenes.protocol_jobs import ALONE, settings_of


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("staged")
    clients = np.arange(60) // 10
    data = lake.write_lake(folder / "lake", lake.mixture(60), clients, codes=True)
    return data, lake.write_server(folder / "server.parquet")


def planned(places, n_server=None, unit="record", **changes):
    fit = lake.planned(lake.job(*places, unit, **changes))
    if n_server is None:
        return fit
    more = lake.mixture(n_server, seed=5)
    return dataclasses.replace(fit, initial=dataclasses.replace(fit.initial, server=more, assigner=Assigner(more)))


def test_a_small_state_stays_in_the_graph(places, tmp_path):
    fit = planned(places)
    with staged_state(fit.initial, str(tmp_path)) as (light, staged):
        assert light is fit.initial
        assert staged is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("changes", [{}, {"unit": "client"}], ids=["plain", "client"])
def test_rounds_find_what_they_left_in_the_file(places, tmp_path, monkeypatch, changes):
    """Every array is staged, as in a large job: statistics and steps see what they saw before."""
    fit = planned(places, **changes)
    monkeypatch.setattr(module, "_LARGE", 0)
    plain = fit.initial
    with staged_state(fit.initial, str(tmp_path)) as (light, staged):
        assert light.server.shape == (len(plain.server), 0)
        state = begin(light, staged)
        for bound in fit.rounds:
            if plain.assigner is not None:
                np.testing.assert_array_equal(state.assigner.centers, plain.assigner.centers)
            sums = np.arange(bound.plan.size, dtype=np.int64) << 21
            releases = draw_release(lake.KEY, bound.plan, sums)
            (state,) = ServerFn(with_arrays(bound, staged)).process(releases, state)
            plain = bound.step(plain, releases)
            assert len(state.server) == len(plain.server)
            assert state.server.size == 0
        np.testing.assert_array_equal(restore(state, staged).server, plain.server)
        np.testing.assert_array_equal(state.centers, plain.centers)
    assert [path.name for path in tmp_path.iterdir()] == [module.STATE_FILE]  # for further attempts


@pytest.mark.parametrize("algorithm", ALONE, ids=str)
def test_statistics_read_the_same_where_every_array_is_staged(places, tmp_path, monkeypatch, algorithm):
    """Centers of many features were left in the file, and the first round of such a job could not run."""
    changes = settings_of(algorithm)
    changes["server_data"] = changes.get("server_data", {"path": places[1]})
    fit = planned(places, **changes)
    monkeypatch.setattr(module, "_LARGE", 8)  # bytes: all but single numbers
    plain, block = fit.initial, ClientBlock(lake.mixture(40, seed=3))
    with staged_state(fit.initial, str(tmp_path)) as (light, staged):
        state = light if staged is None else begin(light, staged)
        for bound in fit.rounds:
            sums = measure(bound, block, plain.broadcast())
            np.testing.assert_array_equal(measure(bound, block, state.broadcast()), sums)
            releases = draw_release(lake.KEY, bound.plan, sums)
            (state,) = ServerFn(with_arrays(bound, staged)).process(releases, state)
            plain = bound.step(plain, releases)


def test_what_a_step_has_changed_is_sent_on(places, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LARGE", 0)
    fit = planned(places)
    with staged_state(fit.initial, str(tmp_path)) as (light, staged):
        whole = restore(light, staged)
        moved = dataclasses.replace(whole, server=2.0 * whole.server)
        found = drop_arrays(moved, staged)
        assert found.server is moved.server
        assert restore(found, staged).server is moved.server


@pytest.mark.parametrize("content", [b"", b"other", None], ids=["empty", "other", "other arrays"])
def test_another_file_is_refused(places, tmp_path, monkeypatch, content):
    monkeypatch.setattr(module, "_LARGE", 0)
    fit = planned(places)
    with staged_state(fit.initial, str(tmp_path)) as (light, staged):
        raw = module.arrays_to_bytes({"server": np.zeros((3, 4))}) if content is None else content
        pathlib.Path(staged.path).write_bytes(raw)
        with pytest.raises(InputError, match="must not change"):
            restore(light, staged)


def test_a_graph_is_small_whatever_the_server_data(places, tmp_path):
    """100,000 points of 4 features were 12.8 MB in the first state alone."""
    fit = planned(places, 100_000)
    fit = dataclasses.replace(fit, source=lake.staged(fit.source, tmp_path / "listing"))
    with staged_state(fit.initial, str(tmp_path)) as (light, staged):
        pipeline = beam.Pipeline(options=beam_options([]))
        aggregation = aggregation_of(fit, lake.write_key(tmp_path / "key"))
        add_fit(pipeline, dataclasses.replace(fit, initial=light), aggregation, "out", staged)
        check_graph(pipeline, fit.promise)
        assert len(pipeline.to_runner_api().SerializeToString()) < 1_000_000
