"""Spherical k-means without noise, by hand: centers, lost ones, names."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.core.plan import ReleasePlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ConfigError, SchemaMismatchError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.privacy.meaning import Meaning, Role
from dapple_dp.schemas.tables.terms_column import TermsColumn
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.term_cells import CellLimits
from dapple_dp.transforms.kmeans.lloyd.specs import COUNTS, vector_spec
from dapple_dp.transforms.kmeans.spherical import names, server
from dapple_dp.transforms.kmeans.spherical.rounds import round_specs

JOB = {
    "algorithm": "spherical",
    "data": {"path": "texts", "features": "x", "client_id": "who"},
    "n_clusters": 2,
    "privacy": {"epsilon": 1.0, "delta": 1e-6},
    "clipping": {"client_rows": 4},
}


def config(**changes):
    return validated(JOB | changes)


def release(values, multiplier=1e-9, path="spherical/sums_00/sums"):
    spec = vector_spec("sums", np.shape(values), 1.0, meaning=COUNTS)
    plan = ReleasePlan(spec=spec, noise_multiplier=multiplier)
    return Release(path=path, plan=plan, values=np.asarray(values, dtype=np.int64))


def state(**changes):
    found = server.initial_state(config(spherical={"steps": 4}), np.zeros((0, 3)), 3)
    return dataclasses.replace(found, **changes)


def test_the_unit_is_the_client_and_rows_are_at_most_one_long():
    found = config()
    assert (found.privacy.unit, found.clipping.norm, found.clipping.center) == ("client", 1.0, "none")


def test_all_releases_share_the_whole_budget():
    named = config(names={"column": "t", "words": ["a", "b", "c"]}, spherical={"steps": 4})
    specs = round_specs(named, 3, 0)
    assert [each.path for each in specs] == [f"spherical/sums_0{step}" for step in range(4)] + ["spherical/names"]
    assert [one.shape for each in specs for one in each.releases] == [(4, 3), (4, 3), (2, 3), (2, 3), (2,), (2, 3)]
    assert math.fsum(one.share for each in specs for one in each.releases) == pytest.approx(1.0)
    assert specs[-1].releases[-1].share == 0.4


def test_first_centers_are_public_directions_of_one_length():
    first = state().centers
    assert first.shape == (4, 3)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), lattice.SUM_UNITS, rtol=1e-5)
    np.testing.assert_array_equal(first, state().centers)


def test_server_data_give_first_centers():
    rows = np.array([[2.0, 0.1, 0.0], [3.0, -0.1, 0.0], [0.0, 0.2, 9.0], [0.0, 0.0, 1.0]])
    found = server.initial_state(config(server_data={"path": "public"}), rows, 3).positions
    assert sorted(np.abs(found).argmax(axis=1).tolist()) == [0, 2]
    with pytest.raises(ConfigError, match="n_clusters must be at most the number of server rows"):
        server.initial_state(config(server_data={"path": "public"}), rows[:1], 3)


def test_a_step_turns_centers_to_their_sums_and_remembers_half_of_earlier_ones():
    settings = dataclasses.replace(state().settings, fine_rounds=0)
    before = state(settings=settings, centers=state().centers[:2], totals=np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    unit = before.sums_bound / lattice.SUM_UNITS
    found = server.sums_step(before, (release(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, -3.0]]) / unit),))
    np.testing.assert_allclose(found.positions, [[0.5**0.5, 0.5**0.5, 0.0], [0.0, 0.0, -1.0]], atol=1e-5)
    assert found.step == 1


def test_the_last_fine_step_leaves_one_center_for_each_cluster():
    before = state(step=1)
    unit = before.sums_bound / lattice.SUM_UNITS
    sums = np.array([[100.0, 1.0, 0.0], [100.0, -1.0, 0.0], [0.0, 0.0, 50.0], [0.0, 1.0, 50.0]])
    found = server.sums_step(before, (release(sums / unit),))
    assert found.centers.shape == (2, 3)
    assert found.variance == 0.0
    assert sorted(found.positions.argmax(axis=1).tolist()) == [0, 2]


def test_a_lost_center_restarts_beside_the_most_crowded_one():
    before = state()
    unit = before.sums_bound / lattice.SUM_UNITS
    sums = np.array([[100.0, 0.0, 0.0], [0.0, 50.0, 0.0], [0.0, 0.0, 40.0], [1e-3, 0.0, 0.0]])
    found = server.sums_step(before, (release(sums / unit, multiplier=10.0),))
    assert found.positions[3] @ found.positions[0] > 0.9
    assert not np.array_equal(found.positions[3], found.positions[0])
    assert (found.totals[3] == 0.0).all()


def test_sums_of_zeros_are_centers_all_the_same():
    found = server.sums_step(state(), (release(np.zeros((4, 3)), multiplier=1.0),))
    assert np.isfinite(found.positions).all()


TERMS_OF = Meaning(tells="which terms each cluster has", role=Role.CLUSTER_TERMS)
COUNTS_OF = np.array([[90.0, 10.0, 50.0], [10.0, 90.0, 50.0]])
SIZES = np.array([100.0, 100.0])


def test_names_are_terms_above_the_share_of_their_cluster():
    found = names.named(COUNTS_OF, 1e-9, SIZES, 1e-9, ("cats", "dogs", "the"))
    assert (found.clusters.tolist(), found.terms) == ([0, 1], ("cats", "dogs"))
    np.testing.assert_allclose(found.counts, [90.0, 90.0])
    np.testing.assert_allclose(found.excess, [40.0, 40.0])


def test_what_noise_explains_is_no_name():
    assert names.named(COUNTS_OF, 30.0, SIZES, 1.0, ("cats", "dogs", "the")).terms == ()


def test_the_only_cluster_has_no_name():
    """Its share is 1, whatever rounding makes of its noisy size."""
    for size in np.random.default_rng(0).uniform(1.0, 5000.0, 200):
        np.testing.assert_array_equal(names.largest_shares(np.array([size]), 7.3), 1.0)
        assert names.named(np.array([[4000.0, 10.0]]), 7.3, np.array([size]), 7.3, ("cats", "dogs")).terms == ()


@pytest.mark.parametrize(("unit", "found"), [("record", ("cats", "dogs")), ("client", ())])
def test_what_rounding_of_shares_explains_is_no_name(unit, found):
    """Some thousand of a billion clients are no more than what the lattice leaves out."""
    privacy = JOB["privacy"] | {"unit": unit}
    job = config(privacy=privacy, names={"column": "t", "words": ["cats", "dogs"]}, justification={"privacy.unit": "a"})
    half = 250_000_000 * lattice.SUM_UNITS
    step = CellLimits(2, 32).cell_units
    counts = np.full((2, 2), 125_000_000) + 2000 * np.array([[1, -1], [-1, 1]])
    given = [(COUNTS, np.full(2, half), 1.0 / lattice.SUM_UNITS), (TERMS_OF, counts * step, 1.0 / step)]
    releases = []
    for meaning, values, lattice_unit in given:
        spec = vector_spec("a", values.shape, 1.0, meaning=meaning)
        plan = ReleasePlan(spec=spec, noise_multiplier=0.01)
        releases.append(Release(path="p", plan=plan, values=values, lattice_unit=lattice_unit))
    assert names.cluster_names(job, releases).terms == found


def test_a_list_is_read_without_its_repetitions():
    column = pa.chunked_array([pa.array([["dog", "dog", "cow", "dog", "cat", "bird"], ["bird", "bird"]])])
    found = TERMS.beside(np.zeros((2, 1)), column)
    np.testing.assert_array_equal(found[:, 1:], [[1, 0], [2, -1]])


def test_thresholds_are_those_of_the_number_of_cells():
    assert names.threshold(600_000) == pytest.approx(5.27, abs=0.01)
    assert names.threshold(1) == pytest.approx(1.751, abs=0.001)


def test_noise_alone_gives_few_names():
    """200 draws of 20 x 500 cells: 0.05 names a draw are 10 expected, and more than 30 have a chance below 1e-6."""
    rng, terms = np.random.default_rng(0), tuple(map(str, range(500)))
    sizes, every = np.full(20, 300.0), rng.uniform(0.0, 40.0, 500)
    counts = np.broadcast_to(every, (20, 500))
    drawn = (counts + rng.normal(0.0, 7.0, counts.shape) for _ in range(200))
    found = [names.named(each, 7.0, sizes + rng.normal(0.0, 5.0, 20), 5.0, terms) for each in drawn]
    assert sum(len(each.terms) for each in found) <= 30


def test_names_follow_their_clusters_into_another_order():
    found = names.named(COUNTS_OF, 1e-9, SIZES, 1e-9, ("cats", "dogs", "the")).reordered([1, 0])
    assert (found.clusters.tolist(), found.terms) == ([0, 1], ("dogs", "cats"))
    assert found.table((4, 9)).column("cluster").to_pylist() == [4, 9]


TERMS = TermsColumn(column="tags", vocabulary=("cat", "dog", "bird"), most=2)
COLUMNS = {
    "nulls that hold values": pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 4, 5], pa.int32()),
        pa.array(["dog", "cat", "cat", "dog", "bird"]),
        mask=pa.array([False, False, True, False]),
    ),
    "lists": pa.array([["dog", "cow", "cat", "bird"], [], None, ["bird", None]]),
    "large lists": pa.array([["dog", "cow", "cat", "bird"], [], None, ["bird"]], pa.large_list(pa.large_string())),
    "dictionaries": pa.array([["dog", "cat"], [], None, ["bird"]]).cast(
        pa.list_(pa.dictionary(pa.int32(), pa.string()))
    ),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_terms_stand_beside_features(kind):
    column = pa.chunked_array([COLUMNS[kind].slice(0, 1), COLUMNS[kind].slice(1)])
    points = np.arange(8, dtype=np.float32).reshape(4, 2)
    found = TERMS.beside(points, column)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:, :2], points)
    np.testing.assert_array_equal(found[:, 2:], [[1, 0], [-1, -1], [-1, -1], [2, -1]])


def test_a_string_is_one_term():
    found = TERMS.beside(np.zeros((3, 1)), pa.chunked_array([["bird", "cow", None]]))
    np.testing.assert_array_equal(found[:, 1:], [[2, -1], [-1, -1], [-1, -1]])


def test_terms_of_other_types_are_refused():
    with pytest.raises(SchemaMismatchError, match="'tags' of here must hold strings, or lists of strings, got int64"):
        TERMS.check_type(pa.int64(), "here")
