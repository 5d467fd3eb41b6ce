"""Computes the subspace of the clusters from a noisy scatter matrix."""

import contextlib

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.numerics.kmeans.centers import unexplained
from dapple_dp.transforms.numerics.one_thread import one_thread

_LARGE, _LARGE_PART = 1024, 16
"""Rows from which a matrix is large, and the part of its eigenvectors that are few."""
_LANCZOS_TOLERANCE = 1e-6


def unpack_symmetric(triangle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns a symmetric matrix (d, d) from its upper triangle, row by row, shape (d * (d + 1) / 2,).

    Example:
      >>> unpack_symmetric(np.array([1.0, 2.0, 3.0]))
      array([[1., 2.],
             [2., 3.]])
    """
    n_features = int((np.sqrt(8 * len(triangle) + 1) - 1) / 2)
    matrix, start = np.empty((n_features, n_features)), 0
    for row in range(n_features):
        stop = start + n_features - row
        matrix[row, row:] = matrix[row:, row] = triangle[start:stop]
        start = stop
    return matrix


def trace_of(triangle: NDArray[np.float64]) -> float:
    """Returns the trace of the matrix that `unpack_symmetric` makes."""
    n_features = int((np.sqrt(8 * len(triangle) + 1) - 1) / 2)
    lengths = np.arange(n_features, 0, -1)
    return float(triangle[np.cumsum(lengths) - lengths].sum())


def shrink_to_public(
    private_scatter: NDArray[np.float64], entry_variance: float, public_rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Blends a noisy mean scatter with the public one by their known variances.

    Args:
      private_scatter: shape (d, d): noisy sum of x x^T / n, feature units squared.
      entry_variance: variance of the noise in one entry of it.
      public_rows: shape (q, d), centered public rows.

    Returns:
      (1 - t) private + t public, t = v_noise / (v_noise + v_public). v_public is the sampling variance
      (trace of the public scatter / d)^2 / q, or the difference of the two beyond the noise, if that is more. With
      vanishing noise t goes to 0; with growing noise the private part fades out.
    """
    n_public, n_features = public_rows.shape
    public = public_rows.T @ public_rows / n_public
    sampling_variance = (np.trace(public) / n_features) ** 2 / n_public
    entries = lattice.upper_triangle(private_scatter - public, 1 if n_features > 1 else 0)
    total = np.array([(entries**2).sum()])
    difference = unexplained(total, np.array([len(entries) * entry_variance]), len(entries)) / len(entries)
    public_variance = max(sampling_variance, float(difference[0]))
    weight = entry_variance / (entry_variance + public_variance) if entry_variance > 0 else 0.0
    blend = (1.0 - weight) * private_scatter
    blend += weight * public
    return blend


def top_eigenvectors(matrix: NDArray[np.float64], n_dims: int) -> NDArray[np.float64]:
    """Returns an orthonormal basis (d, n_dims) of a symmetric matrix's top eigenvectors, largest eigenvalue last."""
    return top_eigenpairs(matrix, n_dims)[1]


def top_eigenpairs(matrix: NDArray[np.float64], n_dims: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the largest eigenvalues of a symmetric matrix, smallest first, and their vectors (d, n_dims).

    A few of a large matrix are found by Lanczos' method to six digits, in a tenth of the time of all.
    """
    with one_thread():
        if len(matrix) >= _LARGE and n_dims <= len(matrix) // _LARGE_PART:
            from scipy.sparse.linalg import ArpackError, eigsh

            # A matrix in which it finds none, as one of zeros, is left to the method that always does.
            with contextlib.suppress(ArpackError):
                return eigsh(matrix, n_dims, which="LA", v0=np.ones(len(matrix)), tol=_LANCZOS_TOLERANCE)
        values, vectors = np.linalg.eigh(matrix)
        return values[-n_dims:], vectors[:, -n_dims:]
