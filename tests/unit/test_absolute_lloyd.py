"""SuLloyd, GLloyd and Lloyd without noise, which benchmarks have: plans by hand, a plain loop, and released bytes."""

import hashlib
import math
import types

import numpy as np
import pytest

from benchmarks.papers import absolute_lloyd, fastlloyd
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.numerics.kmeans.starts import sphere_packing

RHO = absolute_lloyd.RHO


def planned(variant, epsilon=4.0, n_features=5):
    job = fastlloyd.lloyd_job(np.zeros((3000, n_features)), 3, fastlloyd.PACKING, epsilon, 0)
    return absolute_lloyd.planned(variant, validated(job), n_features)


def rows():
    rng = np.random.default_rng(7)
    centers = rng.normal(size=(3, 2))
    return fastlloyd.scaled(centers[rng.integers(0, 3, 2000)] + 0.2 * rng.normal(size=(2000, 2)))


def centers_of(method, epsilon=0.5):
    points = rows()
    job = fastlloyd.lloyd_job(points, 3, fastlloyd.METHODS[method], epsilon, 1)
    return points, fastlloyd.released_centers(points, job, f"{method}{epsilon}")


def test_the_split_minimizes_the_error_of_a_round():
    # g: sigma_C^2 = sqrt(d) / (2 rho) sigma_S^2; su: epsilons d for the sums against (4 d rho^2)^(1/3).
    assert absolute_lloyd.sums_weight("g", 9) == pytest.approx(3.0 / 0.45)
    assert absolute_lloyd.sums_weight("su", 2) == pytest.approx(2.0 / 0.405 ** (1.0 / 3.0))


@pytest.mark.parametrize("n_features", [1, 2, 5, 40])
def test_no_other_split_has_a_smaller_error(n_features):
    """Errors per round up to a common factor, by the formulas that the papers minimize."""
    errors = {
        "g": lambda sums, counts: 4.0 * RHO**2 / counts + n_features / sums,
        "su": lambda sums, counts: 4.0 * n_features * RHO**2 / counts**2 + n_features**3 / sums**2,
    }
    for variant, error in errors.items():
        weight = absolute_lloyd.sums_weight(variant, n_features)
        best = weight / (weight + 1.0)
        for other in (0.98 * best, best + 0.02 * (1.0 - best)):
            assert error(best, 1.0 - best) <= error(other, 1.0 - other)


@pytest.mark.parametrize(
    ("variant", "n_rows", "epsilon", "expected"),
    [
        # 4e6 * 0.004 / (64 * 4 * 25 * 2.45^2) = 0.4165
        ("g", 2000, 1.0, 2),
        ("g", 8000, 1.0, int(0.41649 * 16)),
        # 1 / sqrt(500 * 64 / 4e6 * (4 + 0.81^(1/3))^3) = 1 / sqrt(0.008 * 119.4) = 1.02
        ("su", 2000, 1.0, 2),
        ("su", 2000, 3.5, 3),
        ("g", 10**8, 1.0, 7),
        ("su", 10**8, 1.0, 7),
    ],
)
def test_the_number_of_rounds_follows_the_error_analysis(variant, n_rows, epsilon, expected):
    settings = types.SimpleNamespace(public_rows=n_rows, n_clusters=4, noise_multiplier=5.0)
    assert absolute_lloyd.n_rounds(variant, settings, epsilon, 4) == expected


def test_su_adds_laplace_noise_whose_epsilons_are_split_by_su():
    plan = planned("su")
    sums, counts = plan.rounds[0].releases
    assert str(sums.spec.mechanism) == "discrete_laplace"
    assert sums.spec.sensitivity == math.isqrt(5 * lattice.SUM_UNITS**2)
    assert counts.noise_multiplier / sums.noise_multiplier == pytest.approx(5.0 / (20.0 * 0.225**2) ** (1.0 / 3.0))
    # Composition with delta never costs more than the plain sum of epsilons.
    pure = len(plan.rounds) * (1.0 / sums.noise_multiplier + 1.0 / counts.noise_multiplier)
    assert pure >= 0.99 * plan.epsilon


def test_laplace_noise_spends_a_budget_whose_exponential_is_infinite():
    plan = planned("su", 1e4)
    pure = [1.0 / one.noise_multiplier for each in plan.rounds for one in each.releases]
    assert max(pure) > 710.0
    assert plan.epsilon == pytest.approx(sum(pure), rel=1e-3)
    assert 0.998 * 1e4 < plan.epsilon <= 1e4


@pytest.mark.parametrize("epsilon", [1e5, 1e6])
def test_laplace_noise_below_what_the_lattice_carries_is_refused(epsilon):
    with pytest.raises(
        ConfigError, match=r"^epsilon must be small enough for the noise of sums to be at least 2\*\*10"
    ):
        planned("su", epsilon)


def test_centers_without_noise_are_those_of_a_plain_loop():
    points, found = centers_of("Lloyd, not private")
    expected = sphere_packing.pack(3, 2, 1.0, 1)
    for _ in range(7):
        labels = ((points[:, None] - expected[None]) ** 2).sum(axis=2).argmin(axis=1)
        expected = np.stack([points[labels == cluster].mean(axis=0) for cluster in range(3)])
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("method", "digest"),
    [
        ("Lloyd, not private", "daa5776263a43d37"),
        ("SuLloyd", "4a306c8656ed7d41"),
        ("GLloyd", "95d4dec40e4867fc"),
        ("SuLloyd, folded", "390e0b8edf668422"),
        ("GLloyd, folded", "f15a34fe1dafd589"),
    ],
)
def test_released_centers_are_those_of_the_jobs_that_dapple_had(method, digest):
    """When these were variants of `fit`, they released the same bytes."""
    assert hashlib.sha256(centers_of(method)[1].tobytes()).hexdigest()[:16] == digest
