"""DP-Lloyd's start `candidates`: generations of public draws, shares, bounds of clients, rounds with spare centers."""

import math

import numpy as np
import pytest

from schemas.kmeans.fit_config import validated
from transforms.kmeans.dp_lloyd import candidates, rounds
from transforms.kmeans.lloyd.box import CANDIDATE_STEPS, LloydSettings
from transforms.numerics.kmeans import evolution, moves


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
        *((f"candidates_{step:02d}", (40,)) for step in range(candidates.HISTOGRAMS)),
        ("fine_00", (8, 9)),
        *((f"lloyd_{step:02d}", (4, 9)) for step in range(CANDIDATE_STEPS - 1)),
    ]


@pytest.mark.parametrize("data", [{}, {"public_rows": 1000}])
@pytest.mark.parametrize("start_share", [0.5, 0.3])
def test_shares_add_up_to_the_budget(data, start_share):
    found = shares(job(data=data, start_share=start_share))
    assert ("rows" in found) == (not data)
    start = math.fsum(share for name in found if name[:4] not in ("fine", "lloy") for share in found[name])
    assert start == pytest.approx(start_share)
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
    offspring = evolution.following(points, chosen, deviations, 1, 1)
    np.testing.assert_allclose(offspring.mean(axis=0), evolution.KEPT * points[7], atol=0.1)
    later = evolution.following(points, chosen, deviations, 1, 3)
    assert (later.std(axis=0) < 0.5 * offspring.std(axis=0)).all()


def test_a_histogram_of_mere_noise_keeps_all_candidates():
    points = evolution.first(np.ones(2), 500, 1)
    found = evolution.following(points, np.zeros(500), np.zeros(2), 1, 1)
    assert len(np.unique(found, axis=0)) > 250


def test_moves_are_shrunken_inside_and_across_the_subspace():
    basis = np.eye(4)[:, :2]
    sums = np.array([[30.0, 40.0, 0.1, 0.1]])
    found = moves.shrunken_in(sums, np.array([10.0]), 1.0, basis)
    inside = moves.shrunken(sums[:, :2], np.array([10.0]), 1.0)
    np.testing.assert_allclose(found[:, :2], inside)
    np.testing.assert_array_equal(found[:, 2:], 0.0)


@pytest.mark.parametrize("basis", [None, np.eye(4)])
def test_without_a_subspace_moves_have_one_factor(basis):
    sums = np.array([[3.0, -4.0, 2.0, 0.1]])
    found = moves.shrunken_in(sums, np.array([2.0]), 0.5, basis)
    np.testing.assert_array_equal(found, moves.shrunken(sums, np.array([2.0]), 0.5))
