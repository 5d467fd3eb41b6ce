"""Compares released centers with the public bounds to which rows were clipped.

The mean of numbers that all lie inside of bounds lies at an end of them only if nearly all of these numbers do. If
rows don't often have that value, as they do 0, rows beyond the bounds were clipped to it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NEAR = 0.01
"""Distance within which a center lies at an end, as a share of the width between the ends; noise comes on top."""
BLURRED = 0.02
"""Noise, as a share of that width, above which a center is not judged."""


class Bounds(NamedTuple):
    """Ends of each feature, shape (d,), feature units; infinite if a feature has none."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @classmethod
    def none(cls, n_features: int) -> "Bounds":
        """Bounds that no center reaches: infinite on both sides."""
        return cls(np.full(n_features, -np.inf), np.full(n_features, np.inf))

    def inside(self, other: "Bounds") -> "Bounds":
        """Returns the intersection of both bounds."""
        return Bounds(np.maximum(self.lower, other.lower), np.minimum(self.upper, other.upper))


class AtEnds(NamedTuple):
    """Masks of centers that lie at an end, shape (k, d) each.

    Attributes:
      judged: True if noise doesn't hide it.
      lower: True for a judged center at the lower end.
      upper: likewise.
    """

    judged: NDArray[np.bool_]
    lower: NDArray[np.bool_]
    upper: NDArray[np.bool_]


def at_ends(centers: NDArray[np.float64], bounds: Bounds, noise: NDArray[np.float64]) -> AtEnds:
    """Finds centers at, or beyond, an end of their bounds.

    Args:
      centers: shape (k, d), feature units.
      bounds: of the rows behind them.
      noise: shape (k,): noise stddev of one coordinate of each center, feature units; NaN if unknown.
    """
    width, blur = bounds.upper - bounds.lower, noise[:, None]
    with np.errstate(invalid="ignore"):
        judged = np.isfinite(width) & (blur <= BLURRED * width)
        near = NEAR * width + 2.0 * blur
        return AtEnds(judged, judged & (centers - bounds.lower <= near), judged & (bounds.upper - centers <= near))


def at_sphere(offsets: NDArray[np.float64], radius: float, noise: NDArray[np.float64]) -> tuple[NDArray[np.bool_], ...]:
    """Finds centers at, or beyond, the sphere of a ball to which rows were clipped.

    Args:
      offsets: shape (k, d): centers less the middle of the ball, feature units.
      radius: of the ball, feature units.
      noise: as in `at_ends`.

    Returns:
      judged, and at the sphere, shape (k,) each. The known lengthening of a center by noise is subtracted.
    """
    with np.errstate(invalid="ignore"):
        judged = noise <= BLURRED * radius
        squared = (offsets**2).sum(axis=1) - offsets.shape[1] * noise**2
        norms = np.sqrt(np.maximum(squared, 0.0))
        return judged, judged & (norms >= (1.0 - NEAR) * radius - 2.0 * noise)
