"""Rounds of k-medians on arrays: shares, shapes, and steps without noise."""

import dataclasses
import math

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import ReleasePlan, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import DIRECTION_UNITS
from dapple_dp.transforms.kmeans import median_starts
from dapple_dp.transforms.kmeans.dp_medians import rounds as dp_medians
from dapple_dp.transforms.kmeans.dp_medians.server import SILENT, TURNED, median_step
from tests.unit.kmeans.test_dp_medians_config import job

CENTERS = np.array([[-0.5, -0.5], [0.5, -0.5], [0.0, 0.5]])


def public(**lloyd):
    return validated(job({"init": "sphere_packing"} | lloyd))


def released(state, rows):
    """The statistic of rows as releases, without noise."""
    (spec, *_) = dp_medians.round_specs(public(), 2, 1.0)
    plans = tuple(ReleasePlan(spec=each, noise_multiplier=1e-9) for each in spec.releases)
    found = dp_medians.median_statistic(ClientBlock(rows), state.broadcast())
    values, start = [], 0
    for plan in plans:
        part = found[start : start + plan.spec.size]
        values.append(Release(path=f"{spec.path}/{plan.spec.name}", plan=plan, values=part.reshape(plan.spec.shape)))
        start += plan.spec.size
    return tuple(values), RoundPlan(path=spec.path, releases=plans)


def moved(state, rows, steps):
    for _ in range(steps):
        state = median_step(state, released(state, rows)[0])
    return state


@pytest.mark.parametrize("init", ["best", "candidates", "sphere_packing", "central_tree"])
@pytest.mark.parametrize("rows", [{}, {"public_rows": 1000}])
def test_shares_add_up_and_rounds_are_as_many_as_steps(init, rows):
    config = validated(job({"init": init, "steps": 5}, data={"path": "lake", "features": ["a", "b"]} | rows))
    specs = median_starts.round_specs(config, 2, 0)
    assert math.fsum(one.share for each in specs for one in each.releases) == pytest.approx(1.0)
    own = [each for each in specs if each.path.startswith("dp_medians/")]
    assert [each.path for each in own] == [f"dp_medians/median_{step:02d}" for step in range(5)]
    assert {tuple(one.shape for one in each.releases) for each in own} == {((3, 2), (3,))}
    assert {one.sensitivity for each in own for one in each.releases} == {DIRECTION_UNITS}


def test_sampled_rows_double_what_a_neighbor_moves():
    data = {"path": "lake", "features": ["a", "b"], "client_id": "who", "max_rows_per_client": 5}
    (spec, *_) = dp_medians.round_specs(validated(job({"init": "sphere_packing"}, data=data)), 2, 1.0)
    directions, counts = spec.releases
    assert directions.sensitivity == 2 * DIRECTION_UNITS
    assert counts.sensitivity == math.isqrt(2 * lattice.SUM_UNITS**2) + 1


def test_centers_become_medians_that_outliers_do_not_move():
    rng = np.random.default_rng(0)
    rows = np.repeat(CENTERS, 400, axis=0) + rng.normal(0.0, 0.02, (1200, 2))
    rows[::10] = [1.0, 1.0]
    around = CENTERS + np.array([0.1, -0.05])
    state = moved(median_starts.warm_state(public(), around), rows, 12)
    means = np.array([rows[np.arange(400) + 400 * index].mean(axis=0) for index in range(3)])
    assert np.linalg.norm(state.positions - CENTERS, axis=1).max() < 0.02
    assert np.linalg.norm(means - CENTERS, axis=1).min() > 0.1
    np.testing.assert_allclose(state.sizes.sum(), 1200)


def test_moves_grow_shorter_once_a_center_turns_around_or_nothing_is_seen():
    state = median_starts.warm_state(public(), CENTERS)
    first = state.lengths
    np.testing.assert_allclose(first, 0.25 * np.array([1.0, 1.0, math.hypot(0.5, 1.0)]), rtol=1e-5)
    state = dataclasses.replace(state, last=np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]))
    after = median_step(state, released(state, CENTERS + np.array([0.1, 0.0]))[0])
    np.testing.assert_allclose(after.lengths / first, [1.0, TURNED, SILENT])


@pytest.mark.parametrize(
    "rows", [np.zeros((0, 2)), np.zeros((1, 2)), np.full((3, 2), 1e300), np.array([[-np.inf, 5e-324]])]
)
def test_hostile_rows_leave_finite_centers_in_the_domain(rows):
    state = moved(median_starts.warm_state(public(), CENTERS), rows, 3)
    assert (np.abs(state.positions) <= 1.0).all()
    assert np.isfinite(state.lengths).all()


def test_a_center_in_the_place_of_another_moves_as_far_as_one_alone():
    state = median_starts.warm_state(public(), np.array([[0.0, 0.0], [0.0, 0.0], [0.5, 0.0]]))
    np.testing.assert_allclose(state.lengths, 0.25 * 0.5, rtol=1e-5)
    alone = median_starts.warm_state(public(), np.zeros((3, 2)))
    np.testing.assert_allclose(alone.lengths, 0.25 * math.sqrt(2.0))
    assert np.isfinite(moved(alone, CENTERS, 3).positions).all()


def test_a_broadcast_holds_no_release():
    state = moved(median_starts.warm_state(public(), CENTERS), CENTERS, 2)
    assert len(state.releases) == 4
    assert state.broadcast().releases == ()
    assert state.broadcast().last is None
