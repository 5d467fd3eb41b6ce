"""Computes moves of centers from noisy relative sums and counts, plain or shrunken by their known noise."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.kmeans.centers import unexplained

_FEWEST_SHARE = 0.1
"""Smallest count to divide a move by, in shares of the mean count, unless `_FEWEST_STDDEVS` are less."""
_FEWEST_STDDEVS = 3.0
"""The same in noise stddevs of a count: a small cluster among many rows moves by its own count."""
_NO_ROWS = 1e-9


def divided(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divides noisy sums by noisy counts of any sign, shape of `sums`; a count of zero counts as a tiny one."""
    return sums / np.where(np.abs(counts) < _NO_ROWS, _NO_ROWS, counts)[:, None]


def blended_counts(counts: NDArray[np.float64], stddev: float, n_rows: float) -> NDArray[np.float64]:
    """Pulls noisy counts toward equal ones as far as their noise requires.

    Args:
      counts: shape (n_clusters,), may be negative.
      stddev: noise stddev of one count.
      n_rows: > 0, public or noisy: sum of the counts.

    Returns:
      shape (n_clusters,), from a tenth of the mean count, or three noise stddevs (and one row) if these are less,
      to `n_rows`. The prior of the shares of rows is uniform on the simplex: their stddev is
      sqrt((k - 1) / (k + 1)) / k.
    """
    n_clusters = len(counts)
    mean = n_rows / n_clusters
    prior = mean**2 * (n_clusters - 1) / (n_clusters + 1)
    weight = prior / (prior + stddev**2) if prior > 0.0 else 0.0
    least = min(_FEWEST_SHARE * mean, max(_FEWEST_STDDEVS * stddev, 1.0))
    return np.clip(mean + weight * (counts - mean), least, n_rows)


def shrunken(sums: NDArray[np.float64], counts: NDArray[np.float64], stddev: float) -> NDArray[np.float64]:
    """Returns moves sums / counts, each shrunken by the factor max(0, 1 - v / |move|^2), shape of `sums`.

    Args:
      sums: shape (n_clusters, n_features), noisy relative sums.
      counts: shape (n_clusters,), > 0.
      stddev: noise stddev of one entry of `sums`; v = n_features (stddev / count)^2.

    Source: James, Stein (1961), positive part.
    """
    moves = sums / counts[:, None]
    noise = sums.shape[1] * (stddev / counts) ** 2
    squared = (moves**2).sum(axis=1)
    beyond = np.maximum(squared, np.maximum(noise, np.finfo(np.float64).tiny))
    return moves * (1.0 - noise / beyond)[:, None]


class Blended(NamedTuple):
    """Moves of centers, and their remaining errors.

    Attributes:
      moves: shape (n_clusters, n_features).
      errors: shape (2, n_clusters): expected squared error of the moved centers by noise, inside a subspace (or in all
        directions) and across it; zero if no move has exceeded the noise yet.
    """

    moves: NDArray[np.float64]
    errors: NDArray[np.float64]


def blended(
    sums: NDArray[np.float64],
    counts: NDArray[np.float64],
    stddev: float,
    basis: NDArray[np.float64] | None,
    errors: NDArray[np.float64] | None,
) -> Blended:
    """Returns moves of centers that earlier rounds have moved: each round counts by its noise, as in a mean of all.

    A center with an error moves by that error's share in error and noise, so that noise averages out over rounds.
    The part of a move beyond both, and two stddevs of them, counts as error. A center without one moves as in
    `shrunken`. Moves inside a subspace and across it are separate.

    Args:
      sums: shape (n_clusters, n_features); this and the others as in `shrunken`.
      counts: shape (n_clusters,).
      stddev: of one entry of `sums`.
      basis: orthonormal, shape (n_features, n_dims); None, or one of all directions, for one factor.
      errors: from `Blended` after the previous round; None before the first one.

    Source: Efron and Morris (1973), empirical Bayes estimation, round by round.
    """
    before = np.zeros((2, len(sums))) if errors is None else errors
    if basis is None or basis.shape[1] >= len(basis):
        found, left = _blended(sums, counts, stddev, before[0], sums.shape[1])
        return Blended(found, np.stack([left, before[1]]))
    along = sums @ basis
    rest, n_dims = sums - along @ basis.T, basis.shape[1]
    inside, left_inside = _blended(along, counts, stddev, before[0], n_dims)
    across, left_across = _blended(rest, counts, stddev, before[1], len(basis) - n_dims)
    return Blended(inside @ basis.T + across, np.stack([left_inside, left_across]))


def _blended(
    sums: NDArray[np.float64], counts: NDArray[np.float64], stddev: float, errors: NDArray[np.float64], n_dims: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns moves, shape of `sums`, and remaining errors, shape (n_clusters,); noise lies in `n_dims` directions."""
    moves = sums / counts[:, None]
    noise = np.maximum(n_dims * (stddev / counts) ** 2, np.finfo(np.float64).tiny)
    squared = (moves**2).sum(axis=1)
    beyond = np.where(errors > 0.0, unexplained(squared, noise + errors, n_dims), squared - noise)
    known = np.maximum(errors, np.maximum(beyond, 0.0))
    share = known / (known + noise)
    return moves * share[:, None], share * noise


def total_rows(counts: NDArray[np.float64], stddev: float) -> float:
    """Returns the number of rows by noisy counts, at least one noise stddev of their sum."""
    return max(float(counts.sum()), stddev * math.sqrt(len(counts)), 1.0)
