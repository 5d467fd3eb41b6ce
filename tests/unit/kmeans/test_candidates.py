"""DP-Lloyd's start `candidates`: generations of public draws, shares, bounds of clients, rounds with spare centers."""

import dataclasses
import math

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core import accounting, loop
from dapple_dp.transforms.core.noise import draw_release
from dapple_dp.transforms.kmeans.dp_lloyd import candidates, rounds
from dapple_dp.transforms.kmeans.lloyd.box import CANDIDATE_STEPS, LloydSettings
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.numerics.kmeans import moves
from dapple_dp.transforms.numerics.kmeans.starts import evolution


def job(unit="record", data=None, **options):
    clipping = {"clipping": {"client_rows": 25}} if unit == "client" else {}
    return validated(
        {
            "algorithm": "dp_lloyd",
            "data": {"path": "lake", "features": "x", "client_id": "who"} | (data or {}),
            "n_clusters": 4,
            "privacy": {"unit": unit, "epsilon": 1.0, "delta": 1e-6},
            "dp_lloyd": {"domain": [-1, 1], "init": "candidates"} | options,
        }
        | clipping
    )


def shares(config):
    return {each.path.partition("/")[2]: [one.share for one in each.releases] for each in rounds.round_specs(config, 9)}


def test_rounds_and_shapes_are_public():
    specs = rounds.round_specs(job(), 9)
    shapes = [(each.path.partition("/")[2], each.releases[0].shape) for each in specs]
    assert shapes == [
        ("rows", (1,)),
        ("mean", (1, 9)),
        ("directions", (45,)),
        *((f"candidates_{step:02d}", (80,)) for step in range(candidates.HISTOGRAMS)),
        ("spread", (1,)),
        ("fine_00", (24, 9)),
        *((f"lloyd_{step:02d}", (4, 9)) for step in range(CANDIDATE_STEPS - 1)),
    ]


def test_candidates_grow_with_rows_and_bins_are_there_for_as_many_as_there_may_be():
    settings = LloydSettings.from_config(job())
    stddev = settings.multiplier(candidates.shares(settings, 9)["candidates"])
    few, many = 4 * candidates.PLENTY * stddev, 3.0 * 80.0 * stddev
    assert candidates.n_used(settings, 9, 0.99 * few) == 40
    assert candidates.n_used(settings, 9, 1.01 * few) == 67
    assert candidates.n_used(settings, 9, 10.0 * many) == candidates.n_candidates(settings, 9) == 80
    assert candidates.n_fine(settings, 9, 0.99 * few) == 8
    assert candidates.n_fine(settings, 9, 1.01 * few) == 12
    assert candidates.fine_cells(settings, 9) == 24
    known = LloydSettings.from_config(job(data={"public_rows": 1000}))
    assert candidates.n_candidates(known, 9) == candidates.n_used(known, 9, 1000) == 40
    clients = LloydSettings.from_config(job("client"))
    assert candidates.n_candidates(clients, 9) == 40
    assert candidates.fine_cells(clients, 9) == 8


def test_few_features_leave_more_of_the_budget_to_the_candidates():
    settings = LloydSettings.from_config(job())
    wide, narrow = candidates.shares(settings, candidates.WIDE), candidates.shares(settings, 5)
    assert narrow["scatter"] == pytest.approx(wide["scatter"] / 5)
    spared = wide["scatter"] - narrow["scatter"]
    assert candidates.HISTOGRAMS * (narrow["candidates"] - wide["candidates"]) == pytest.approx(spared)
    clients = LloydSettings.from_config(job("client"))
    assert candidates.shares(clients, 5) == candidates.shares(clients, 500)
    assert "spread" not in candidates.shares(clients, 5)


FAR = 0.85


def far_rows(n_rows):
    """Three large clusters, and 400 rows far from them."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(-0.6, 0.0, (3, 5))[rng.integers(0, 3, n_rows)] + rng.normal(0.0, 0.04, (n_rows, 5))
    rows[:400] = FAR + rng.normal(0.0, 0.02, (400, 5))
    return rows


def states(points, epsilon):
    """State after each round, by the name of the round, and the rounds."""
    config = job(data={"features": [f"x{index}" for index in range(5)]})
    protocol = protocol_of(config.algorithm)
    specs = protocol.round_specs(config, 5, 0)
    plan = accounting.calibrate(config.privacy.unit, specs, epsilon, 1e-6, protocol.allocation(config))
    state = protocol.initial_state(config, np.zeros((0, 5)), 5)
    bound = protocol.rounds(config, plan)
    _, *after = loop.simulate(state, bound, [ClientBlock(points)], bytes(32)).states
    return {each.plan.path.partition("/")[2]: (state, each) for each, state in zip(bound, after, strict=True)}


def nearest(state):
    """Distance of the nearest center from the far rows."""
    return np.linalg.norm(state.centers * state.unit - FAR, axis=1).min()


@pytest.mark.parametrize(("epsilon", "n_rows"), [(1.0, 30_000), (0.3, 90_000)])
def test_a_few_rows_far_from_large_clusters_get_their_center(epsilon, n_rows):
    found = states(far_rows(n_rows), epsilon)
    assert nearest(found["lloyd_02"][0]) < 0.15


def test_where_rows_are_many_half_of_the_first_candidates_lie_anywhere():
    for n_rows, size in ((500, 40), (30_000, 80)):
        state = states(far_rows(n_rows), 1.0)["directions"][0]
        points = state.known_candidates.centers * state.unit
        assert len(points) == size
        spans = np.ptp(points[:40], axis=0), np.ptp(points[40:], axis=0) if size > 40 else None
        assert spans[1] is None or (spans[1] > 1.2 * spans[0]).all()
    points = evolution.anywhere(2.0, 3, 4000, 1)
    np.testing.assert_array_equal(points, evolution.anywhere(2.0, 3, 4000, 1))
    assert np.abs(points).max() <= 2.0
    np.testing.assert_allclose(points.std(axis=0), 2.0 / math.sqrt(3.0), rtol=0.05)


def test_a_center_whose_rows_are_all_far_from_it_goes_to_them_and_leaves_nothing_behind():
    rows = far_rows(30_000)
    found = states(rows, 1.0)
    state, fine = found["spread"][0], found["fine_00"][1]
    # One of the fine centers lies near the far rows; now it lies beside them.
    centers = state.centers.copy()
    own = np.linalg.norm(centers * state.unit - FAR, axis=1).argmin()
    centers[np.linalg.norm(centers * state.unit - FAR, axis=1) < 0.5] = centers[0]
    centers[own] = np.rint(np.array([FAR, FAR, FAR, 0.3, 0.3]) / state.unit)
    state = dataclasses.replace(state, centers=centers)
    exact = fine.statistic(ClientBlock(rows), state)
    sums, counts = draw_release(bytes(32), fine.plan, exact)
    values = np.split(exact, [sums.values.size])
    noisy = [
        dataclasses.replace(each, values=one.reshape(each.values.shape))
        for each, one in zip((sums, counts), values, strict=True)
    ]
    assert state.inner * state.unit < 0.7
    assert nearest(fine.step(state, noisy)) < 0.02


@pytest.mark.parametrize("data", [{}, {"public_rows": 1000}])
def test_shares_add_up_to_the_budget(data):
    found = shares(job(data=data))
    assert ("rows" in found) == (not data)
    start = math.fsum(share for name in found if name[:4] not in ("fine", "lloy") for share in found[name])
    assert start == pytest.approx(0.5)
    assert math.fsum(map(math.fsum, found.values())) == pytest.approx(1.0)


def test_one_lloyd_round_has_no_spare_centers():
    found = shares(job(steps=1))
    assert "lloyd_00" in found
    assert "fine_00" not in found


def test_bounds_of_a_client_fall_with_its_rows_and_never_exceed_those_of_any_client():
    settings = LloydSettings.from_config(job("client"))
    assert candidates.spread_norm(settings, 4) == pytest.approx(math.sqrt(1 / 25 + 1 / 4))
    assert candidates.spread_norm(settings, 1) == 1.0
    assert candidates.spread_norm(LloydSettings.from_config(job()), 4) == 1.0


def test_generations_follow_the_weights_and_the_public_seed():
    deviations = np.array([3.0, 1.0])
    points = evolution.first(deviations, 4000, 1)
    np.testing.assert_array_equal(points, evolution.first(deviations, 4000, 1))
    assert not np.array_equal(points, evolution.first(deviations, 4000, 2))
    np.testing.assert_allclose(points.std(axis=0), evolution.SPREAD * deviations, rtol=0.05)
    chosen = np.zeros(len(points))
    chosen[7] = 5.0
    offspring = evolution.following(points, chosen, deviations, 1, 1, len(points))
    np.testing.assert_allclose(offspring.mean(axis=0), evolution.KEPT * points[7], atol=0.1)
    later = evolution.following(points, chosen, deviations, 1, 3, len(points))
    assert (later.std(axis=0) < 0.5 * offspring.std(axis=0)).all()


def test_the_heaviest_candidates_stay_and_small_ones_have_offspring():
    points, weights = evolution.first(np.ones(2), 10, 1), np.zeros(10)
    weights[[2, 5]] = [100.0, 1.0]
    found = evolution.following(points, weights, np.full(2, 1e-9), 1, 1, 10, elite=True)
    np.testing.assert_array_equal(found[:2], points[[2, 5]])
    np.testing.assert_allclose(
        np.unique(found[2:].round(6), axis=0), np.unique((0.8 * points[[2, 5]]).round(6), axis=0)
    )
    many = evolution.following(points, np.arange(1.0, 11.0), np.ones(2), 1, 1, 10, elite=True)
    np.testing.assert_array_equal(many[:5], points[:4:-1])
    assert many.shape == points.shape


def test_a_histogram_of_mere_noise_keeps_all_candidates():
    points = evolution.first(np.ones(2), 500, 1)
    found = evolution.following(points, np.zeros(500), np.zeros(2), 1, 1, 500)
    assert len(np.unique(found, axis=0)) > 250


def test_moves_are_shrunken_inside_and_across_the_subspace():
    basis = np.eye(4)[:, :2]
    sums = np.array([[30.0, 40.0, 0.1, 0.1]])
    found = moves.blended(sums, np.array([10.0]), 1.0, basis, None)
    inside = moves.shrunken(sums[:, :2], np.array([10.0]), 1.0)
    np.testing.assert_allclose(found.moves[:, :2], inside)
    np.testing.assert_array_equal(found.moves[:, 2:], 0.0)
    # Inside, 2 (1 / 10)^2 is the noise of a move of length 5; across it nothing is known yet.
    np.testing.assert_allclose(found.errors, [[0.02 * (1.0 - 0.02 / 25.0)], [0.0]])


@pytest.mark.parametrize("basis", [None, np.eye(4)])
def test_without_a_subspace_moves_have_one_factor(basis):
    sums = np.array([[3.0, -4.0, 2.0, 0.1]])
    found = moves.blended(sums, np.array([2.0]), 0.5, basis, None)
    np.testing.assert_allclose(found.moves, moves.shrunken(sums, np.array([2.0]), 0.5))
    assert found.errors[1] == 0.0


def test_rounds_count_alike_so_that_their_noise_averages_out():
    """After a first move far beyond the noise, a quarter of the noise of one round is left after four."""
    rng, counts, stddev = np.random.default_rng(0), np.full(400, 10.0), 1.0
    truth = rng.normal(0.0, 50.0, (400, 6))
    centers, errors = np.zeros((400, 6)), None
    for n_rounds in range(1, 5):
        sums = counts[:, None] * (truth - centers) + rng.normal(0.0, stddev, truth.shape)
        found = moves.blended(sums, counts, stddev, None, errors)
        centers, errors = centers + found.moves, found.errors
        off = ((centers - truth) ** 2).sum(axis=1).mean()
        one = 6 * (stddev / 10.0) ** 2
        assert off == pytest.approx(one / n_rounds, rel=0.15)
        assert errors[0].mean() == pytest.approx(off, rel=0.15)


def test_a_move_beyond_noise_and_error_is_one_of_the_rows():
    counts, errors = np.array([10.0, 10.0]), np.array([[0.02, 0.02], [0.0, 0.0]])
    sums = np.array([[300.0, 0.0], [1.0, 0.0]])
    found = moves.blended(sums, counts, 1.0, None, errors)
    assert found.moves[0, 0] == pytest.approx(30.0, rel=1e-3)
    assert found.moves[1, 0] == pytest.approx(0.05)
    np.testing.assert_allclose(found.errors[0], [0.02, 0.01], rtol=1e-3)


def test_without_noise_centers_go_all_the_way_in_every_round():
    sums, counts = np.array([[3.0, 0.0], [0.0, 0.0]]), np.array([2.0, 2.0])
    first = moves.blended(sums, counts, 0.0, None, None)
    np.testing.assert_allclose(first.moves, [[1.5, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(moves.blended(sums, counts, 0.0, None, first.errors).moves, first.moves)
