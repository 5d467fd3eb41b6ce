"""The public frame that maps rows from feature units to the lattice; all statistics of a run use it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.core.statistics.row_pass import kernel


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
      box: rows are clipped to it, coordinate by coordinate, before all else; None for no box.
    """

    lattice: Lattice
    box: Box | None = None

    @classmethod
    def of_box(cls, box: Box, n_features: int, largest_norm: float = math.inf) -> "Frame":
        """Creates the frame around a box; its clipping norm is half the diagonal, at most `largest_norm`."""
        norm = min(box.half_side * math.sqrt(n_features), largest_norm)
        return cls(Lattice(box.middle(n_features), norm), box)

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """Maps rows to lattice integers, shape (n_rows, n_features), L2 norm at most 2**bits each."""
        if self.box is not None:
            points = np.clip(points, self.box.low, self.box.high, dtype=np.float64)
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
        rows = kernel().lattice_rows(points, center, 2.0**bits / norm, 2.0**bits, box)
        if rows is None:
            return self.quantize(points, bits).astype(np.int32, order="C")
        integers, left = rows
        if left.size:
            integers[left] = self.quantize(points[left], bits)
        return integers
