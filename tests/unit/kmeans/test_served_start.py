"""Server rows beside the candidates of DP-Lloyd: what joins a histogram, who starts, and what holds centers back."""

import dataclasses
import hashlib

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Allocation
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core import accounting, loop
from dapple_dp.transforms.core.noise import draw_release
from dapple_dp.transforms.kmeans.dp_lloyd import candidates, rounds, served
from dapple_dp.transforms.kmeans.dp_lloyd.served import ServerStart
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.kmeans.protocols import protocol_of

D, K = 4, 3
MEANS = np.array([[0.6, 0.6, 0.0, 0.0], [-0.6, 0.0, 0.6, 0.0], [0.0, -0.6, 0.0, 0.6]])


def job(epsilon=1.0, **more):
    settings = {
        "algorithm": "dp_lloyd",
        "data": {"path": "lake", "features": [f"x{index}" for index in range(D)]},
        "server_data": {"path": "server"},
        "n_clusters": K,
        "privacy": {"unit": "record", "epsilon": epsilon, "delta": 1e-6},
        "dp_lloyd": {"domain": [-1, 1], "init": "candidates"},
    }
    return validated(settings | more)


def rows_near(means, n_rows, width=0.05, seed=0):
    rng = np.random.default_rng(seed)
    return means[np.arange(n_rows) % len(means)] + rng.normal(0.0, width, (n_rows, D))


def states(config, server, points):
    """State after each round, by the name of the round."""
    protocol = protocol_of(config.algorithm)
    specs = protocol.round_specs(config, D, len(server))
    plan = accounting.calibrate(config.privacy.unit, specs, config.privacy.epsilon, 1e-6, protocol.allocation(config))
    state = protocol.initial_state(config, server, D)
    bound, key = protocol.rounds(config, plan), hashlib.sha256(b"served").digest()
    _, *after = loop.simulate(state, bound, [ClientBlock(points)], key).states
    return {each.plan.path.partition("/")[2]: state for each, state in zip(bound, after, strict=True)}


def test_server_rows_have_bins_of_their_own_and_a_round_and_the_budget_stays():
    specs = rounds.round_specs(job(), D)
    names = [each.path.partition("/")[2] for each in specs]
    assert names[names.index("candidates_02") + 1] == "server"
    sizes = {each.path.partition("/")[2]: sum(release.size for release in each.releases) for each in specs}
    assert sizes["candidates_00"] == candidates.MOST_PER_CLUSTER * K + served.PER_CLUSTER * K
    assert sum(release.share for each in specs for release in each.releases) == pytest.approx(1.0)
    alone = rounds.round_specs(job(server_data="none"), D)
    assert "dp_lloyd/server" not in [each.path for each in alone]
    assert sum(release.size for release in alone[3].releases) == candidates.MOST_PER_CLUSTER * K


def test_few_rows_start_from_server_rows_that_are_near_them():
    found = states(job(0.3), rows_near(MEANS, 90, seed=1), rows_near(MEANS, 300))
    state = found["server"]
    assert state.prior is not None
    np.testing.assert_allclose(np.sort(state.centers * state.unit, axis=0), np.sort(MEANS, axis=0), atol=0.05)
    assert found["fine_00"].centers.shape == (K, D)


def test_rows_far_from_the_server_rows_start_from_the_candidates():
    found = states(job(3.0), rows_near(MEANS[:1], 90, seed=1), rows_near(MEANS, 9_000))
    assert found["server"].prior is None
    assert len(found["server"].centers) > K
    last = found["lloyd_02"]
    for mean in MEANS:
        assert np.linalg.norm(last.centers * last.unit - mean, axis=1).min() < 0.05


def test_the_comparison_is_by_its_sign_and_server_rows_win_where_it_is_in_doubt():
    before = states(job(), rows_near(MEANS, 90, seed=1), rows_near(MEANS, 3_000))["candidates_02"]
    spec = next(each for each in rounds.round_specs(job(), D) if each.path.endswith("/server"))
    plan = accounting.calibrate(job().privacy.unit, (spec,), 1.0, 1e-6, Allocation.TUNED).rounds[0]
    release = draw_release(bytes(32), plan, np.zeros(1, dtype=np.int64))[0]
    for stddevs, wins in ((-2.0, False), (-0.6, False), (-0.4, True), (0.0, True), (2.0, True)):
        told = dataclasses.replace(release, values=np.array([round(stddevs * plan.releases[0].noise_stddev)]))
        assert (candidates.server_step(before, (told,)).prior is not None) == wins


def test_too_few_server_rows_to_be_split_are_left_out():
    settings = LloydSettings.from_config(job())
    assert ServerStart.of(settings, np.zeros((2 * K - 1, D))) is None
    found = states(job(), rows_near(MEANS, 2 * K - 1), rows_near(MEANS, 300))
    assert found["server"].prior is None
    assert found["server"].releases[-1].decoded.shape == (1,)


def test_many_server_rows_are_joined_to_a_bounded_number_of_points():
    start = ServerStart.of(LloydSettings.from_config(job()), rows_near(MEANS, 2_000))
    assert len(start.points) == served.PER_CLUSTER * K
    assert start.masses.sum() == 2_000
    assert start.rows.shape == (2_000, D)
    assert 2.0 * 0.05 < start.reach < 4.0 * 0.05


def test_server_rows_hold_centers_where_noise_explains_a_move_and_let_them_go_where_it_does_not():
    state = states(job(0.3), rows_near(MEANS, 90, seed=1), rows_near(MEANS, 300))["server"]
    counts, quiet = np.full(K, 100.0), np.zeros((K, D))
    _, held = state.moved(quiet + 5.0, counts, 100.0)
    assert np.abs(held).max() < 0.01
    after, gone = state.moved(quiet + 5.0, counts, 1e-3)
    np.testing.assert_allclose(gone, 0.05, atol=1e-3)
    assert (after.prior.variances < state.prior.variances + state.prior.bias).all()
