"""Public grids on which private histograms are formed: over the whole domain, or along privately found directions."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import assignment
from dapple_dp.transforms.core.statistics.assignment import Projection

MAX_CELLS = 1 << 14
"""Cells of the largest grid."""
UNKNOWN_ROWS_CELLS = 1 << 12
"""Cells reserved if the number of rows is not public and a noisy one decides how many are used."""
ROWS_PER_NOISE = 10.0
"""Noise stddevs of a cell for which one degree of freedom of a grid pays off."""
SPREAD = 2.0
"""Standard deviations that a grid along a direction reaches to both sides."""


class Grid(NamedTuple):
    """Cells of equal size around an origin, numbered row by row; rows beyond the grid fall into its outer cells.

    Attributes:
      shape: cells along each direction.
      half_widths: integers, shape (n_directions,), lattice units at SUM_BITS: extent to both sides of the origin.
      origin: integers, shape (n_directions,): projected origin.
      projection: None if directions are the features.
    """

    shape: tuple[int, ...]
    half_widths: NDArray[np.float64]
    origin: NDArray[np.float64]
    projection: Projection | None = None

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    def labels(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the cell of each row, shape (n_rows,).

        Args:
          rows: integers, shape (n_rows, n_features), at SUM_BITS, L2 norm at most 2**SUM_BITS.
        """
        along = rows if self.projection is None else assignment.project(rows, self.projection)
        cells = np.array(self.shape)
        # Below 2**53 the product is exact, and a quotient of such integers is never rounded over an integer.
        place = np.floor((along - self.origin + self.half_widths) * cells / (2.0 * self.half_widths))
        inside = np.clip(place, 0.0, cells - 1.0).astype(np.int64)
        return np.ravel_multi_index(tuple(inside.T), self.shape).astype(np.int64)

    def midpoints(self) -> NDArray[np.float64]:
        """Returns the middles of the cells relative to the origin, shape (size, n_directions), lattice units."""
        places = np.stack(np.unravel_index(np.arange(self.size), self.shape), axis=1)
        return ((places + 0.5) / np.array(self.shape) * 2.0 - 1.0) * self.half_widths


def n_cells(n_rows: float, n_clusters: int, n_directions: int, noise_multiplier: float, most: int = MAX_CELLS) -> int:
    """Returns the number of cells that balances the error of position and the noise of the counts.

    Args:
      n_rows: public or noisy.
      n_clusters: at least twice as many cells are used.
      n_directions: of the grid.
      noise_multiplier: of the histogram.
      most: limit.

    Source: Su, Cao, Li, Bertino, Jin (2016), "Differentially private k-means clustering", Section 4 (EUGkM), with the
      noise stddev in place of 1 / epsilon.
    """
    signal = max(n_rows, 1.0) / noise_multiplier / ROWS_PER_NOISE
    return min(max(2 * n_clusters, int(signal ** (2.0 * n_directions / (2.0 + n_directions)))), most)


def cube_shape(cells: int, n_directions: int) -> tuple[int, ...]:
    """Returns a shape of about `cells` cells, as many along every direction, at least 2."""
    return (max(2, round(cells ** (1.0 / n_directions))),) * n_directions


def aligned_shape(
    extents: NDArray[np.float64], n_rows: float, n_clusters: int, noise_multiplier: float, most: int
) -> tuple[int, ...]:
    """Returns the cells along directions of falling extent: about cubes; drops directions that would get only one.

    Args:
      extents: shape (n_directions,), > 0, falling.
      n_rows: this and the others as in `n_cells`.
      n_clusters: k.
      noise_multiplier: of the histogram.
      most: limit.

    Returns:
      One number of cells per direction that is used, their product at most `most`.
    """
    shape: tuple[int, ...] = (min(n_cells(n_rows, n_clusters, 1, noise_multiplier, most), most),)
    for n_directions in range(2, len(extents) + 1):
        cells = n_cells(n_rows, n_clusters, n_directions, noise_multiplier, most)
        used = extents[:n_directions]
        side = float(np.exp(np.log(used).mean())) / cells ** (1.0 / n_directions)
        wanted = np.maximum(1, np.rint(used / side)).astype(np.int64)
        if wanted[-1] < 2:
            break
        while math.prod(wanted.tolist()) > cells and wanted.max() > 1:
            wanted[wanted.argmax()] -= 1
        shape = tuple(wanted.tolist())
    return shape
