"""Clipping bounds of clients: medians over pseudo-clients, by hand."""

import numpy as np
import pytest

from dapple_dp.transforms.numerics.kmeans import bounds

ROWS = np.array([[3.0, 0.0], [0.0, 4.0]])
LABELS = np.array([0, 1])


def samples(*clients) -> np.ndarray:
    return np.array(clients, dtype=np.int64)


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        ([[0, 0]], 18.0),
        ([[0, 1]], np.hypot(9.0, 16.0)),
        ([[0, 0], [0, 1], [1, 1]], np.hypot(9.0, 16.0)),
    ],
)
def test_scatter_bound_is_the_median_frobenius_norm(clients, expected):
    # scatters diag(18, 0), diag(9, 16), diag(0, 32)
    assert bounds.scatter_bound(ROWS, samples(*clients)) == pytest.approx(expected)


def test_scatter_bound_equals_the_norm_of_the_scatter_itself():
    rng = np.random.default_rng(0)
    rows, clients = rng.normal(size=(30, 4)), rng.integers(0, 30, (21, 5))
    norms = [np.linalg.norm(rows[client].T @ rows[client]) for client in clients]
    assert bounds.scatter_bound(rows, clients) == pytest.approx(np.median(norms))


def test_scatter_bound_needs_no_matrix_of_all_pairs_of_public_rows():
    # 200,000 rows: all pairs would be 300 GiB.
    rows = np.tile(ROWS, (100_000, 1))
    assert bounds.scatter_bound(rows, samples([0, 199_999])) == pytest.approx(np.hypot(9.0, 16.0))


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        ([[0, 0]], 1.0),
        ([[0, 1]], np.sqrt(0.5)),
        ([[0, 0, 0, 1]], np.sqrt(10) / 4),
        ([[0, 1], [0, 0], [1, 1]], 1.0),
    ],
)
def test_histogram_bound_is_the_median_norm_of_fractions(clients, expected):
    assert bounds.histogram_bound(LABELS, samples(*clients), 2) == pytest.approx(expected)


def test_rows_left_out_count_in_the_size_only():
    labels = np.array([0, -1])
    assert bounds.histogram_bound(labels, samples([0, 1]), 2) == pytest.approx(0.5)
    assert bounds.sums_bound(ROWS, labels, samples([0, 1]), 2) == pytest.approx(3.0)
    assert bounds.presence_bound(labels, samples([0, 1]), 2) == 1.0


@pytest.mark.parametrize(
    ("labels", "client", "sums", "means"),
    [
        ([0, 1], [0, 0], 6.0, 3.0),
        ([0, 1], [0, 1], 5.0, 5.0),
        ([0, 1], [0, 0, 1], np.hypot(6.0, 4.0), 5.0),
        ([0, 0], [0, 1], 5.0, 2.5),
    ],
)
def test_sums_and_means_bounds_by_hand(labels, client, sums, means):
    assert bounds.sums_bound(ROWS, np.array(labels), samples(client), 2) == pytest.approx(sums)
    assert bounds.means_bound(ROWS, np.array(labels), samples(client), 2) == pytest.approx(means)


def test_presence_bound_is_the_median_number_of_clusters():
    assert bounds.presence_bound(LABELS, samples([0, 0], [0, 1], [1, 0]), 5) == 2.0


def test_bounds_of_nothing_stay_above_zero():
    zeros, nobody = np.zeros((2, 2)), np.array([-1, -1])
    client = samples([0, 1])
    found = [
        bounds.scatter_bound(zeros, client),
        bounds.histogram_bound(nobody, client, 2),
        bounds.sums_bound(zeros, LABELS, client, 2),
        bounds.means_bound(ROWS, nobody, client, 2),
        bounds.presence_bound(nobody, client, 2),
    ]
    assert found == [1e-9] * 5


def test_bounds_of_almost_nothing_keep_their_scale():
    """One pseudo-client in three has rows away from the center: its norm decides on the unit, whatever that is."""
    rows = np.array([[0.0, 0.0], [3e-50, 4e-50]])
    found = bounds.sums_bound(rows, np.array([0, 0]), samples([0, 0], [0, 0], [1, 1]), 1)
    assert found == pytest.approx(1e-9 * 1e-49)
