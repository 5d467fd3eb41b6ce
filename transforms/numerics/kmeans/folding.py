"""Postprocesses centers after a noisy update: limits their moves and brings them back into the domain, at no cost."""

import numpy as np
from numpy.typing import NDArray


def fold(centers: NDArray[np.float64], half_side: float) -> NDArray[np.float64]:
    """Reflects coordinates outside [-half_side, half_side] at its ends, as often as needed; the others stay.

    Args:
      centers: shape (n, n_features), finite, measured from the middle of the domain.
      half_side: > 0.

    Returns:
      New array, same shape, every coordinate in [-half_side, half_side].

    Source: Diaa, Humphries, Kerschbaum (2025), Section 5.3.5. Reflection has a period of four half sides.

    Example:
      >>> fold(np.array([[0.5, 1.25, -1.25, 3.5]]), 1.0)
      array([[ 0.5 ,  0.75, -0.75, -0.5 ]])
    """
    along = np.mod(centers + half_side, 4.0 * half_side)
    folded = np.where(along <= 2.0 * half_side, along - half_side, 3.0 * half_side - along)
    inside = np.abs(centers) <= half_side
    return np.where(inside, centers, np.clip(folded, -half_side, half_side))


def clip_moves(moves: NDArray[np.float64], longest: float) -> NDArray[np.float64]:
    """Shortens each move, shape (n, n_features), to L2 norm at most `longest` (up to rounding).

    Source: Diaa, Humphries, Kerschbaum (2025), Section 5.1, radius clipping.
    """
    norms = np.linalg.norm(moves, axis=1, keepdims=True)
    return moves * np.minimum(1.0, longest / np.maximum(norms, longest * 1e-12))
