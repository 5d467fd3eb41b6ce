"""Rules for the number of clusters: truths by hand, what must not matter, and a histogram that a mixture explains."""

import numpy as np
import pytest
from sklearn import metrics

from benchmarks.papers import cluster_counts, cluster_rules, histogram_mixture, in_memory
from benchmarks.papers.cluster_rules import Released
from benchmarks.papers.histogram_mixture import Histogram, Mixture
from transforms.numerics.kmeans.starts import seeding

CORNERS = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
N_ROWS = 30_000


def blobs(scale=1.0, order=None):
    """Ninety server points of three clusters, and exact counts of rows whose nearest they are."""
    rng = np.random.default_rng(3)
    points = np.repeat(CORNERS, 30, axis=0) + rng.normal(0.0, 1.0, (90, 2))
    rows = np.repeat(CORNERS, N_ROWS // 3, axis=0) + rng.normal(0.0, 1.0, (N_ROWS, 2))
    nearest = ((points**2).sum(axis=1) - 2.0 * rows @ points.T).argmin(axis=1)
    counts = np.bincount(nearest, minlength=90).astype(float)
    order = np.arange(90) if order is None else order
    return Released(scale * points[order], counts[order], counts[order], 5.0)


@pytest.fixture(autouse=True)
def fewer_clusters(monkeypatch):
    monkeypatch.setattr(cluster_rules, "MOST", 8)


@pytest.mark.parametrize(
    ("costs", "plain", "by_logs"), [([100, 20, 4, 1, 0.9, 0.8], 2, 4), ([16, 4, 1, 0.9, 0.8], 2, 3)]
)
def test_on_logs_a_fall_counts_in_proportion_to_what_is_left(costs, plain, by_logs):
    found = cluster_rules.Curve([], np.array(costs, dtype=float))
    assert (cluster_rules.elbow(found), cluster_rules.elbow_of_logs(found)) == (plain, by_logs)
    assert cluster_rules.bend(1e-9 * found.costs) == by_logs


def test_rules_find_clear_clusters_in_any_unit_and_order():
    for of in (blobs(), blobs(scale=1e-3), blobs(order=np.random.default_rng(0).permutation(90))):
        found = cluster_counts.chosen(of, 0)
        # A BIC of the histogram also pays for what its public draws leave.
        assert 3 <= found.pop("BIC of rows") <= 5
        assert found == dict.fromkeys(found, 3)


def test_the_silhouette_is_that_of_scikit_learn_where_weights_are_equal():
    points = np.random.default_rng(1).normal(size=(60, 3))
    of = Released(points, np.ones(60), np.ones(60), 0.1)
    found = cluster_rules.curve(points, of.weights, 4, 0)
    expected = [metrics.silhouette_score(points, each.labels) for each in found.clusterings[1:]]
    assert cluster_rules.silhouette(of, found) == int(np.argmax(expected)) + 2


def test_the_two_nearest_components_become_one_at_their_mean():
    merged = histogram_mixture.merged(Mixture(np.array([[0.0], [1.0], [10.0]]), np.array([0.3, 0.1, 0.6]), 1.0))
    np.testing.assert_allclose(merged.centers, [[10.0], [0.25]])
    np.testing.assert_allclose(merged.shares, [0.6, 0.4])


def test_a_true_mixture_leaves_the_known_noise_only(monkeypatch):
    # With few draws, points that none of them meets count as if they could not be met.
    monkeypatch.setattr(histogram_mixture, "DRAWS", 20_000)
    histogram = Histogram.of(blobs())
    true = Mixture(CORNERS, np.full(3, 1.0 / 3.0), 1.0)
    assert 0.5 < histogram.misfit(true) < 1.5
    assert histogram.misfit(true._replace(variance=4.0)) > 3.0
    assert histogram.misfit(Mixture(CORNERS[:2], np.full(2, 0.5), 1.0)) > 20.0


def test_misfits_bend_at_the_truth():
    of = blobs()
    start = seeding.weighted_kmeans(of.points, of.weights, 8, 4, 0)
    left = histogram_mixture.misfits(of, start)
    assert left.shape == (8,)
    assert left[1] > 10.0 * left[2]
    assert cluster_rules.bend(left) == 3


def test_bic_of_rows_never_trusts_a_misfit_below_the_noise():
    assert histogram_mixture.bic_of_rows(np.array([40.0, 1.0, 0.1, 0.01]), 100, 2) == 2


def test_what_is_released_is_the_histogram_of_a_fit():
    data = cluster_counts.plane(0)
    config = in_memory.job("feddp_kmeans", "record", 4.0, {"max": 20, "choose": "elbow"}, 0)
    of = cluster_counts.released(config, data.server, in_memory.client_block(data.rows, None), 0)
    assert of.points.shape == (300, 2)
    assert of.noisy.sum() == pytest.approx(len(data.rows), abs=6.0 * of.stddev * np.sqrt(300))
    assert (of.weights >= 0.0).all()


def test_tables_count_hits_and_mean_errors():
    found = {("elbow", "ten", 1.0): [0, 1, -2], ("gap", "ten", 1.0): [0, 0, 0]}
    lines = cluster_counts.report(found, (1.0,))
    assert "| elbow | 1 (1.0) |" in lines
    assert "| gap | 100%, 0.00 | 100%, 0.00 |" in lines
