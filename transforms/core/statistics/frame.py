"""The public frame that maps rows from feature units to the lattice; all statistics of a run use it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.core.statistics.row_pass import kernel

_LARGEST = float(np.finfo(np.float64).max)


class Components(NamedTuple):
    """Groups of the data, moved closer to each other by public translations.

    Attributes:
      lattice: of the data before they are moved.
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


class Box(NamedTuple):
    """Public interval that every coordinate is clipped to, feature units, `low` < `high`."""

    low: float
    high: float

    @property
    def half_side(self) -> float:
        """Half the length of a side."""
        return 0.5 * (self.high - self.low)

    def middle(self, n_features: int) -> NDArray[np.float64]:
        """Center of the box, shape (n_features,)."""
        return np.full(n_features, self.low + self.half_side)


class Frame(NamedTuple):
    """Maps the rows of a run to integers.

    Attributes:
      lattice: center and clipping norm of the rows.
      components: None if rows stay where they are.
      box: rows are clipped to it, coordinate by coordinate, before all else; None for no box.
    """

    lattice: Lattice
    components: Components | None = None
    box: Box | None = None

    @classmethod
    def of_box(cls, box: Box, n_features: int, largest_norm: float = math.inf) -> "Frame":
        """Creates the frame around a box; its clipping norm is half the diagonal, at most `largest_norm`."""
        norm = min(box.half_side * math.sqrt(n_features), largest_norm)
        return cls(Lattice(box.middle(n_features), norm), None, box)

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """Maps rows to lattice integers, shape (n_rows, n_features), L2 norm at most 2**bits each."""
        if self.box is not None:
            points = np.clip(points, self.box.low, self.box.high, dtype=np.float64)
        if self.components is not None:
            with np.errstate(over="ignore"):
                moved = points - self.components.shifts[self.components.labels(points)]
            points = np.clip(moved, -_LARGEST, _LARGEST)
        return lattice.quantize(points, self.lattice, bits)

    def integer_blocks(self, points: NDArray[np.floating], bits: int) -> Iterator[NDArray[np.int32]]:
        """Yields `integers` of a few rows at a time."""
        for part in lattice.row_blocks(points):
            yield self.integers(part, bits)

    def integers(self, points: NDArray[np.floating], bits: int) -> NDArray[np.int32]:
        """`quantize` as int32 in C order, which fits since no coordinate is longer than its row."""
        center, norm = self.lattice
        box = (-math.inf, math.inf) if self.box is None else (self.box.low, self.box.high)
        lattice.check_features(points.shape[1], bits)
        rows = None if self.components else kernel().lattice_rows(points, center, 2.0**bits / norm, 2.0**bits, box)
        if rows is None:
            return self.quantize(points, bits).astype(np.int32, order="C")
        integers, left = rows
        if left.size:
            integers[left] = self.quantize(points[left], bits)
        return integers
