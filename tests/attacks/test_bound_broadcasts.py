"""A broadcast that a runner computes twice, with other last bits on another worker, must not be used twice.

Statistics and server step of a round would then measure from different states, and each copy would draw noise.
"""

import dataclasses
import pathlib

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.sections.feddp_config import LloydConfig
from dapple_dp.transforms.rounds import bound_broadcast
from dapple_dp.transforms.rounds.bound_broadcast import bind, can_bind, state_digest
from tests.scenes import lake


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    rows = lake.write_files(folder / "lake", [lake.table_of(lake.mixture(40))])
    return plan_files(validated(lake.job(rows, lake.write_server(folder / "server.parquet")))).initial


def moved(state):
    """The same state but for the last bit of one number."""
    server = state.server.copy()
    server[0, 0] = np.nextafter(server[0, 0], np.inf)
    return dataclasses.replace(state, server=server)


def test_a_copy_with_other_last_bits_is_refused(state, tmp_path):
    path = str(tmp_path / f"Weights{bound_broadcast.SUFFIX}")
    assert bind(state, path) is state
    again = dataclasses.replace(state, server=state.server.copy())
    assert bind(again, path) is again
    with pytest.raises(PrivacyFlowError, match="A broadcast differed in some bits"):
        bind(moved(state), path)
    assert pathlib.Path(path).stat().st_mode & 0o077 == 0


def test_a_digest_is_of_values_types_and_shapes():
    values = (None, 0, False, 0.0, -0.0, "0", b"0", (), (0,), ((0,),), np.zeros(1), np.zeros(1, np.float32))
    values += (np.zeros((1, 1)), np.int64(0), float("nan"), "None")
    assert len({state_digest(value) for value in values}) == len(values)
    assert state_digest((np.arange(6).reshape(2, 3),)) == state_digest(
        (np.arange(6).reshape(3, 2).T.copy().T.reshape(2, 3),)
    )


def test_a_digest_is_that_of_earlier_versions():
    """Runs that began with them go on."""
    state = (np.arange(6.0).reshape(2, 3).T, (1, 2.5, None, "s", b"b", np.zeros((0, 2))))
    assert state_digest(state).hex() == "c9b6105be9c1eb68616b4bf2cd189a4bae4373b654ab0d9ff8d435c84ea98704"


def test_a_part_of_an_array_has_the_digest_of_its_copy():
    numbers = np.arange(6.0).reshape(2, 3)
    for part in (numbers[:, 0], numbers[0, ::-2], numbers[::-1, 1:], np.broadcast_to(numbers[0], (2, 3))):
        assert state_digest(part) == state_digest(part.copy())


def test_settings_have_a_digest():
    """States of dp_lloyd hold some."""
    assert state_digest(LloydConfig(steps=1)) != state_digest(LloydConfig(steps=2))


def test_places_in_memory_have_no_digest():
    with pytest.raises(TypeError):
        state_digest(np.array([None, 1], dtype=object))


def test_what_has_no_value_has_no_digest():
    with pytest.raises(TypeError, match="a state must hold arrays, numbers, strings and such"):
        state_digest(object())


def test_places_that_cannot_tell_who_was_first_are_left_alone(tmp_path):
    assert can_bind(str(tmp_path))
    assert can_bind("gs://bucket/folder")
    assert not can_bind("ftp://host/folder")


def test_a_job_binds_and_leaves_no_digest(tmp_path, monkeypatch):
    seen = []

    def noted(path, content, **options):
        seen.append(path)
        return once(path, content, **options)

    once = bound_broadcast.write_once
    monkeypatch.setattr(bound_broadcast, "write_once", noted)
    rows = lake.write_files(tmp_path / "lake", [lake.table_of(lake.mixture(40))])
    job = lake.job(rows, lake.write_server(tmp_path / "server.parquet"), **lake.packed(2))
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 0, outcome.err
    assert len(set(seen)) == 2
    assert not list(tmp_path.rglob(f"*{bound_broadcast.SUFFIX}"))
