"""Scores against scikit-learn on the same labels, and by hand where it has none."""

import numpy as np
import pytest
from sklearn import metrics

from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.numerics.trusted_zone import clustering_scores as scores
from dapple_dp.transforms.numerics.trusted_zone import clustering_sums
from dapple_dp.transforms.numerics.trusted_zone.clustering_sums import ClusteringSums, Contingency, RowSample, row_ranks


def sums_of(points, model, names=(), codes=None, sample_rows=100):
    places = np.arange(len(points))
    codes = np.full(len(points), -1) if codes is None else codes
    return ClusteringSums.of(points, row_ranks(17, places), (names, codes), model, sample_rows)


def separation(points, centers):
    """Davies-Bouldin and Calinski-Harabasz, in two passes."""
    model = NearestCenters.of(centers)
    sums = sums_of(points, model)
    sizes, means = sums.cost.sizes, sums.means(model)
    scattered = clustering_sums.scatter(points, model, means)
    widths = scattered.over(sizes[:, None])[:, 0]
    return (
        scores.davies_bouldin(sizes, means, widths),
        scores.calinski_harabasz(sizes, means, sums.mean(model), scattered.value[:, 1]),
    )


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("spread", [1e-3, 0.4, 3.0])
def test_separation_agrees_with_scikit_learn(offset, spread):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(5, 4)) + offset
    points = centers[rng.integers(0, 5, 3000)] + spread * rng.normal(size=(3000, 4))
    moved = np.concatenate([centers + 0.1, centers[:1] + 1e4])
    labels = NearestCenters.of(moved).labels(points)
    found = separation(points, moved)
    np.testing.assert_allclose(found[0], metrics.davies_bouldin_score(points - offset, labels), rtol=1e-6)
    np.testing.assert_allclose(found[1], metrics.calinski_harabasz_score(points - offset, labels), rtol=1e-6)


def test_separation_is_not_defined_for_one_cluster_or_single_rows():
    points = np.array([[0.0], [1.0], [5.0]])
    assert separation(points, np.array([[0.0]])) == (None, None)
    assert separation(points, np.array([[0.0], [100.0]])) == (None, None)
    assert separation(points, points) == (None, None)


def test_separation_of_clusters_without_width():
    points = np.array([[0.0], [0.0], [3.0], [3.0]])
    assert separation(points, np.array([[0.0], [3.0]])) == (0.0, 1.0)
    labels = [0, 0, 1, 1]
    assert metrics.davies_bouldin_score(points, labels) == 0.0
    assert metrics.calinski_harabasz_score(points, labels) == 1.0


@pytest.mark.parametrize("n_classes", [1, 3, 40])
def test_agreement_with_classes(n_classes):
    rng = np.random.default_rng(1)
    labels, classes = rng.integers(0, 4, 400), rng.integers(0, n_classes, 400)
    classes = np.where(rng.random(400) < 0.5, labels % n_classes, classes)
    table = Contingency.of([str(index) for index in range(n_classes)], classes, labels, 4).table
    np.testing.assert_allclose(scores.adjusted_rand(table), metrics.adjusted_rand_score(classes, labels), atol=1e-12)
    np.testing.assert_allclose(scores.fowlkes_mallows(table), metrics.fowlkes_mallows_score(classes, labels))


def test_agreement_of_single_rows():
    assert scores.adjusted_rand(np.eye(3, dtype=np.int64)) == 1.0
    assert scores.fowlkes_mallows(np.eye(3, dtype=np.int64)) == 0.0
    assert scores.adjusted_rand(np.array([[1]])) == 1.0


def test_counts_of_pairs_do_not_overflow():
    table = np.array([[2**40, 0], [0, 2**40]])
    assert scores.adjusted_rand(table) == 1.0
    np.testing.assert_allclose(scores.fowlkes_mallows(table), 1.0)


def test_rows_without_a_class_do_not_count():
    found = Contingency.of(["a", "b"], np.array([0, -1, 1, 0]), np.array([1, 1, 0, 0]), 2)
    np.testing.assert_array_equal(found.table, [[1, 1], [1, 0]])


def test_too_many_classes_are_refused(monkeypatch):
    monkeypatch.setattr(clustering_sums, "MOST_CLASSES", 3)
    one, other = (Contingency.of(names, np.arange(2), np.zeros(2, dtype=np.int64), 1) for names in ("ab", "cd"))
    with pytest.raises(InputError, match=r"evaluate\.label must name a column of at most 3 distinct values, got more"):
        one.merge(other)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_silhouette(offset):
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 300)
    points = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    found = scores.silhouette(points + offset, labels)
    np.testing.assert_allclose(found, metrics.silhouette_score(points, labels), atol=1e-6)


def test_silhouette_at_any_scale():
    points, labels = np.array([[0.0], [1.0], [9.0]]) * 1e200, np.array([0, 0, 1])
    np.testing.assert_allclose(scores.silhouette(points, labels), metrics.silhouette_score(points / 1e200, labels))


def test_silhouette_of_groups_far_from_each_other_keeps_its_digits():
    """Rows 8 apart in each of two groups that are 1e9 apart: within a group nothing but differences tells them."""
    near = np.array([[0.0, 0.0], [0.3, 0.0], [8.0, 0.0], [8.3, 0.0]])
    labels = np.array([0, 0, 1, 1])
    wanted = scores.silhouette(near, labels)
    found = scores.silhouette(np.concatenate([near, near + 1e9]), np.concatenate([labels, labels + 2]))
    assert found == pytest.approx(wanted, abs=1e-6)


def test_silhouette_of_rows_near_the_end_of_the_range_is_defined():
    points = np.array([[1.7e308], [1.6e308], [-1.7e308], [-1.6e308]] * 40)
    assert scores.silhouette(points, np.arange(160) // 2 % 2) > 0.9


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])
def test_silhouette_is_not_defined_for_one_cluster_or_single_rows(labels):
    assert scores.silhouette(np.array([[0.0], [1.0], [2.0]]), np.array(labels)) is None


def test_the_sample_is_that_of_lowest_ranks():
    points = np.arange(1000.0)[:, None]
    ranks = row_ranks(5, np.arange(1000))
    assert len(np.unique(ranks)) == 1000
    expected = np.argsort(ranks)[:40]
    sample = RowSample.zeros(40, 1)
    for part in np.split(np.random.default_rng(3).permutation(1000), [10, 400]):
        sample = sample.merge(RowSample.of(40, ranks[part], points[part], part))
    np.testing.assert_array_equal(sample.points[:, 0], expected)
    np.testing.assert_array_equal(sample.labels, expected)


def test_ranks_are_scattered_evenly():
    """Rows of two files and of every part of a file come with equal odds; each bound fails with odds under 1e-4."""
    ranks = np.concatenate([row_ranks(digest, np.arange(50_000)) for digest in (3, 4)])
    chosen = np.argsort(ranks)[:10_000]
    assert abs((chosen < 50_000).mean() - 0.5) < 0.02
    np.testing.assert_allclose(np.histogram(chosen % 50_000, 10)[0], 1000, atol=130)


def test_matched_error_by_hand():
    reference = np.array([[0.0, 0.0], [10.0, 0.0], [50.0, 0.0]])
    centers = np.array([[9.0, 0.0], [0.0, 2.0]])
    assert scores.matched_error(centers, reference) == (2.5, 2)
    assert scores.matched_error(reference, centers) == (2.5, 2)
    # Nearest neighbors would match both centers to the first one.
    assert scores.matched_error(np.array([[0.0], [1.0]]), np.array([[0.0], [-9.0]]))[0] == (81.0 + 1.0) / 2


def test_numbers_that_json_cannot_hold():
    assert [scores.finite(value) for value in (1.5, float("nan"), float("inf"))] == [1.5, None, None]
