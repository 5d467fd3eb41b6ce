"""Scores of changes against known noise: cases by hand, and the law."""

import numpy as np
import pytest
import scipy.stats

from dapple_dp.schemas.kmeans.recurring.drift import Drift
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans
from dapple_dp.transforms.numerics.kmeans.recurring.drift import mean_scores, size_scores


def noisy(means, count, sums_stddev=1.0, counts_stddev=0.0):
    means = np.asarray(means, dtype=np.float64)
    return NoisyMeans(means * count, np.full(len(means), float(count)), sums_stddev, counts_stddev)


def test_by_hand_without_noise_of_counts():
    """Stddevs 0.3 and 0.4 of each coordinate add up to 0.5; (3, 4) / 0.5 has squared length 100, two freedoms."""
    before, after = noisy([[0.0, 0.0]], 10, 3.0), noisy([[3.0, 4.0]], 10, 4.0)
    scores, noise = mean_scores(np.array([[3.0, 4.0]]), before, after)
    np.testing.assert_allclose(scores, (np.cbrt(50.0) - 8.0 / 9.0) * 3.0)
    np.testing.assert_allclose(noise, np.sqrt(2 * 0.25))


def test_by_hand_along_and_across_the_mean():
    """Mean (20, 0), count 10, stddevs 1 and 1: variance 1 / 100 across and 1 / 100 + 20^2 / 100 along, twice each."""
    before = after = noisy([[20.0, 0.0], [20.0, 0.0]], 10, 1.0, 1.0)
    scores, noise = mean_scores(np.array([[1.0, 0.0], [0.0, 1.0]]), before, after)
    squared = np.array([1.0 / (2 * 4.01), 1.0 / (2 * 0.01)])
    np.testing.assert_allclose(scores, (np.cbrt(squared / 2) - 8.0 / 9.0) * 3.0)
    np.testing.assert_allclose(noise, np.sqrt(2 * 4.02))


def test_counts_near_their_noise_are_not_scored():
    before, after = noisy([[1.0], [1.0]], 10, 1.0, 2.0), noisy([[1.0], [1.0]], 10, 1.0, 2.5)
    assert np.isnan(mean_scores(np.zeros((2, 1)), before, after)[0]).all()
    assert np.isfinite(mean_scores(np.zeros((2, 1)), before, before)[0]).all()


def test_sizes():
    np.testing.assert_allclose(size_scores(np.array([100.0]), np.array([75.0]), (3.0, 4.0)), [-5.0])


def drawn(rng, exact, sums_stddev, counts_stddev):
    sums, counts = exact
    return NoisyMeans(
        sums + rng.normal(0.0, sums_stddev, sums.shape),
        counts + rng.normal(0.0, counts_stddev, counts.shape),
        sums_stddev,
        counts_stddev,
    )


@pytest.mark.parametrize("n_features", [2, 30])
def test_scores_are_standard_normal_if_nothing_moved(n_features):
    """4,000 pairs of the same exact sums. A KS distance of 0.04 is the cube root's error at most, and then chance:
    sqrt(-log(p / 2) / (2 * 4000)) at p = 1e-6 is 0.043. Noise believed 20% too small is detected."""
    rng = np.random.default_rng(7)
    counts = np.full(4000, 1000.0)
    exact = rng.normal(0.0, 5.0, (4000, n_features)) * counts[:, None], counts
    before, after = drawn(rng, exact, 40.0, 10.0), drawn(rng, exact, 60.0, 15.0)
    scores, _ = mean_scores(after.means - before.means, before, after)
    assert scipy.stats.kstest(scores, "norm").statistic < 0.05
    small = [each._replace(sums_stddev=0.8 * each.sums_stddev) for each in (before, after)]
    assert scipy.stats.kstest(mean_scores(after.means - before.means, *small)[0], "norm").statistic > 0.06


def test_json_names_what_drifted():
    nan = float("nan")
    found = Drift(
        previous_run="one",
        previous_digest="00",
        rows=(1, 0, 2, 3),
        numbers=(0, 2, 3, 5),
        next_number=6,
        gone=(1,),
        movements=np.array([0.1, 2.0, 0.1, nan]),
        noise=np.array([0.1, 0.1, nan, nan]),
        scores=np.array([0.5, 9.0, nan, nan]),
        sizes=np.array([[10.0, 11.0], [10.0, 12.0], [40.0, 10.0], [nan, 7.0]]),
        size_stddevs=(3.0, 4.0),
        size_scores=np.array([0.2, 0.4, -6.0, nan]),
    )
    content = found.to_json()
    assert content["label"] == "released"
    assert (content["moved"], content["resized"], content["new"], content["gone"]) == ([2], [3], [5], [1])
    assert content["clusters"][3] == {
        "cluster": 5,
        "movement": None,
        "movement_noise": None,
        "movement_score": None,
        "noisy_size": 7.0,
        "previous_noisy_size": None,
        "size_score": None,
    }
