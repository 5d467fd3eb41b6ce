"""From feature units to the lattice: the public frame in which every statistic of a run is formed."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transforms.numerics import lattice
from transforms.numerics.assignment import Assigner
from transforms.numerics.lattice import Lattice


class Components(NamedTuple):
    """Groups of the data, moved closer to each other by public translations.

    Attributes:
      lattice: frame of the data before they are moved.
      anchors: integers, shape (n_anchors, n_features): server points on that lattice at SUM_BITS.
      shifts: feature units, shape (n_anchors, n_features): subtracted from rows whose nearest anchor it is.

    Source: Scott et al. (2025), Lemma 16.
    """

    lattice: Lattice
    anchors: NDArray[np.float64]
    shifts: NDArray[np.float64]

    def labels(self, points: NDArray[np.floating]) -> NDArray[np.int64]:
        """Nearest anchor of each row, shape (n_rows,)."""
        rows = lattice.quantize(points, self.lattice, lattice.SUM_BITS)
        return Assigner(self.anchors).labels(rows)


class Frame(NamedTuple):
    """Lattice of a run, after moving components if the run reduces the diameter.

    Attributes:
      lattice: the public frame in which rows are clipped.
      components: None when rows stay where they are.
    """

    lattice: Lattice
    components: Components | None = None

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """Rows as lattice integers, shape (n_rows, n_features), L2 norm at most 2**bits each."""
        if self.components is not None:
            points = points - self.components.shifts[self.components.labels(points)]
        return lattice.quantize(points, self.lattice, bits)

    def restore(self, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Moves centers, feature units, shape (n, n_features), back to where the data were.

        A center belongs to the component of the nearest moved anchor.
        """
        if self.components is None:
            return centers
        anchors = self.components.anchors * self.components.lattice.unit(lattice.SUM_BITS)
        moved = anchors + self.components.lattice.center - self.components.shifts
        squared = ((centers[:, None, :] - moved[None, :, :]) ** 2).sum(axis=2)
        return centers + self.components.shifts[squared.argmin(axis=1)]


class SharedFrame(Frame):
    """A frame that quantizes each piece of a block once, for several statistics of the same rows.

    Rows are known by where they lie in memory, so `forget` must be called before other rows may lie there.
    """

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """As `Frame.quantize`; the array is shared and read-only."""
        layout = points.__array_interface__
        where = (layout["data"][0], layout["typestr"], points.shape, points.strides, bits)
        known: dict[Any, NDArray[np.float64]] = self.__dict__
        if where not in known:
            known[where] = super().quantize(points, bits)
            known[where].flags.writeable = False
        return known[where]

    def forget(self) -> None:
        """Lets go of the rows seen so far."""
        self.__dict__.clear()
