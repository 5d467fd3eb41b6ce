"""Stable numbers of clusters: new centers take over the numbers of the old centers that they fit best."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Matching(NamedTuple):
    """New centers in the order of their numbers.

    Attributes:
      rows: shape (k,): index of the new center at each place.
      numbers: k numbers, ascending.
      previous: shape (k,): index of the old center at each place, -1 for a new cluster.
      next_number: the least number that no present or earlier cluster has had.
    """

    rows: NDArray[np.int64]
    numbers: tuple[int, ...]
    previous: NDArray[np.int64]
    next_number: int


def match_centers(
    centers: NDArray[np.float64], previous: NDArray[np.float64], numbers: Sequence[int], next_number: int
) -> Matching:
    """Matches new centers to old ones so that the sum of squared distances is least (Hungarian method).

    If there are more new centers than old ones, those that fit worst are new clusters and get unused numbers;
    if there are fewer, numbers of earlier centers are dropped.

    Args:
      centers: shape (k, n_features), feature units.
      previous: shape (m, n_features), feature units.
      numbers: of the m old clusters, distinct.
      next_number: larger than all numbers used before.

    Example:
      >>> match_centers(np.array([[9.0], [1.0], [5.0]]), np.array([[0.0], [8.0]]), (0, 1), 2).numbers
      (0, 1, 2)
      >>> match_centers(np.array([[9.0], [1.0], [5.0]]), np.array([[0.0], [8.0]]), (0, 1), 2).rows.tolist()
      [1, 0, 2]

    Source: Kuhn (1955), "The Hungarian method for the assignment problem".
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    # The least sum does not change with the scale; squares of unscaled coordinates could overflow.
    largest = max(float(np.abs(centers).max(initial=0.0)), float(np.abs(previous).max(initial=0.0)), 1e-300)
    found, matched = linear_sum_assignment(cdist(centers / largest, previous / largest, "sqeuclidean"))
    old = np.full(len(centers), -1, dtype=np.int64)
    old[found] = matched
    own = np.array([numbers[index] if index >= 0 else -1 for index in old.tolist()], dtype=np.int64)
    new = np.flatnonzero(old < 0)
    own[new] = next_number + np.arange(len(new))
    rows = np.argsort(own)
    return Matching(rows, tuple(own[rows].tolist()), old[rows], next_number + len(new))
