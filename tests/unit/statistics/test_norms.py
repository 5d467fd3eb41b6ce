import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import distances, lattice
from dapple_dp.transforms.numerics.kmeans.norms import noisy_quantile

UNIT = lattice.SUM_UNITS


def test_row_norms_of_any_magnitude():
    points = np.array([[3.0, 4.0], [0.0, 0.0], [3e200, -4e200], [1e308, 1e308], [3e-200, 4e-200]])
    found = lattice.row_norms(points, np.zeros(2))
    np.testing.assert_allclose(found, [5.0, 0.0, 5e200, np.sqrt(2) * 1e308, 5e-200], rtol=1e-5)


def test_row_norms_are_exact_up_to_a_number_of_features_not_of_rows():
    limit = 2**53 >> 2 * lattice.SUM_BITS
    assert len(lattice.row_norms(np.ones((limit + 1, 1)), np.zeros(1))) == limit + 1
    with pytest.raises(LatticeOverflowError, match="n_features must be at most 8192"):
        lattice.row_norms(np.ones((1, limit + 1)), np.zeros(limit + 1))


def test_row_norms_are_of_truncated_rows():
    """So their squares are integers, which add up alike in any order: 2**-22 is below the unit of a row of norm 1."""
    assert lattice.row_norms(np.array([[1.0, 2.0**-22], [-1.0, -(2.0**-22)]]), np.zeros(2)).tolist() == [1.0, 1.0]


def test_row_norms_do_not_depend_on_the_block():
    points = np.random.default_rng(0).normal(size=(100, 17))
    center = np.full(17, 0.3)
    one_by_one = np.concatenate([lattice.row_norms(point[None], center) for point in points])
    np.testing.assert_array_equal(lattice.row_norms(points, center), one_by_one)


def test_norm_histogram_by_hand():
    points = np.array([[1.0], [-1.0], [1.1], [2.0], [0.0], [1e30]])
    found = distances.row_norm_histogram(ClientBlock(points), np.zeros(1)) / UNIT
    at = {edge: int(np.flatnonzero(edge == distances.NORM_GRID)[0]) for edge in (1.0, 2.0)}
    expected = np.zeros(distances.NORM_BINS)
    expected[[at[1.0], at[1.0] + 1, at[2.0], 0, distances.NORM_BINS - 1]] = [2, 1, 1, 1, 1]
    np.testing.assert_array_equal(found, expected)


def test_client_norm_histogram_gives_every_client_the_same_weight():
    points = np.array([[1.0], [1.0], [2.0], [2.0], [2.0]])
    block = ClientBlock(points, np.array([0, 1, 5], dtype=np.int64))
    found = distances.client_norm_histogram(block, np.zeros(1)) / UNIT
    assert found[distances.NORM_GRID.searchsorted(1.0)] == pytest.approx(1.25)
    assert found[distances.NORM_GRID.searchsorted(2.0)] == pytest.approx(0.75)


@pytest.mark.parametrize(("quantile", "edge"), [(0.5, 1.0), (0.89, 2.0), (0.95, 4.0)])
def test_noisy_quantile_reads_the_cumulative_counts(quantile, edge):
    counts = np.zeros(distances.NORM_BINS)
    for value, mass in ((1.0, 70.0), (2.0, 20.0), (4.0, 10.0), (0.5, -3.0), (2.0**20, 1.5)):
        counts[distances.NORM_GRID.searchsorted(value)] = mass
    assert noisy_quantile(counts, 1.0, quantile) == edge


def test_noisy_quantile_of_noise_alone_takes_the_heaviest_bin():
    counts = np.full(distances.NORM_BINS, -1.0)
    counts[-1] = 0.5
    assert noisy_quantile(counts, 1.0, 0.5) == distances.NORM_GRID[-1]
