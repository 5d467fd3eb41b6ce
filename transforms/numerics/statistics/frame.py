"""From feature units to the lattice: the public frame in which every statistic of a run is formed."""

import hashlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.kernel.lattice_rows import lattice_rows
from transforms.numerics.kernel.row_pass import refused_rows
from transforms.numerics.statistics import lattice
from transforms.numerics.statistics.assignment import Assigner
from transforms.numerics.statistics.lattice import Lattice

_LARGEST = float(np.finfo(np.float64).max)


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
    """Lattice of a run, after moving components if the run reduces the diameter.

    Attributes:
      lattice: the public frame in which rows are clipped.
      components: None when rows stay where they are.
      box: rows are clipped to it, coordinate by coordinate, before all else; None when there is none.
    """

    lattice: Lattice
    components: Components | None = None
    box: Box | None = None

    @classmethod
    def of_box(cls, box: Box, n_features: int, largest_norm: float = math.inf) -> "Frame":
        """Frame around the middle of a box; its clipping norm is half the diagonal, at most `largest_norm`."""
        norm = min(box.half_side * math.sqrt(n_features), largest_norm)
        return cls(Lattice(box.middle(n_features), norm), None, box)

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """Rows as lattice integers, shape (n_rows, n_features), L2 norm at most 2**bits each."""
        if self.box is not None:
            points = np.clip(points, self.box.low, self.box.high, dtype=np.float64)
        if self.components is not None:
            with np.errstate(over="ignore"):
                moved = points - self.components.shifts[self.components.labels(points)]
            points = np.clip(moved, -_LARGEST, _LARGEST)
        return lattice.quantize(points, self.lattice, bits)

    def integer_blocks(self, points: NDArray[np.floating], bits: int) -> Iterator[NDArray[np.int32]]:
        """`integers` of a few rows at a time."""
        for part in lattice.row_blocks(points):
            yield self.integers(part, bits)

    def integers(self, points: NDArray[np.floating], bits: int) -> NDArray[np.int32]:
        """What `quantize` makes of rows, in C order; it fits, since no coordinate is longer than its row."""
        center, norm = self.lattice
        box = (-math.inf, math.inf) if self.box is None else (self.box.low, self.box.high)
        lattice.check_features(points.shape[1], bits)
        compiled = None if self.components else lattice_rows(points, center, 2.0**bits / norm, 2.0**bits, box)
        if compiled is None:
            return self.quantize(points, bits).astype(np.int32, order="C")
        integers, left = compiled
        if left.size:
            integers[left] = self.quantize(points[left], bits)
        return integers

    def digest(self) -> bytes:
        """What distinguishes two frames apart that make other integers of a row; 16 bytes."""
        moved = self.components
        arrays = [self.lattice.center] if moved is None else [self.lattice.center, moved.anchors, moved.shifts]
        frames = [self.lattice] if moved is None else [self.lattice, moved.lattice]
        arrays += [each.center for each in frames[1:]]
        numbers = (self.box, [each.clipping_norm for each in frames], [array.shape for array in arrays])
        found = hashlib.blake2b(repr(numbers).encode(), digest_size=16)
        for array in arrays:
            found.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
        return found.digest()

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


class QuantizedFrame(Frame):
    """A frame for rows that were quantized in it before, so that statistics take integers as they take rows.

    The bound on every row is checked again, since rows may have been kept in a file meanwhile.
    """

    _bits: int = -1

    @classmethod
    def of(cls, frame: Frame, bits: int) -> "QuantizedFrame":
        """The frame in which rows were quantized at `bits`."""
        found = cls(*frame)
        found._bits = bits
        return found

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """The integers themselves.

        Args:
          points: int32, shape (n_rows, n_features): what `Frame.quantize` made of rows, or some of them.
          bits: as the rows were quantized.

        Raises:
          LatticeOverflowError: for other rows, or other bits.
        """
        rows = points.astype(np.float64)
        if bits != self._bits or points.dtype != np.int32 or not (lattice.squared_norms(rows) <= 4.0**bits).all():
            raise refused_rows()
        return rows

    def integer_blocks(self, points: NDArray[np.floating], bits: int) -> Iterator[NDArray[np.int32]]:
        """The integers themselves; the code that adds them up checks the bound of every row.

        Raises:
          LatticeOverflowError: for other bits.
        """
        if bits != self._bits:
            raise refused_rows()
        yield np.ascontiguousarray(points)


class SharedFrame(Frame):
    """A frame that quantizes each part of a block once, for several statistics of the same rows.

    Parts are known by where they are in the block that is held, which stays alive meanwhile. Rows that are elsewhere,
    such as copies in another order, are quantized every time: their place may be another copy's soon after.
    """

    _held: NDArray[np.floating] | None = None

    def hold(self, points: NDArray[np.floating]) -> None:
        """Shares parts of these rows from now on, and lets go of the rows held before."""
        self._held = points
        self._known: dict[Any, NDArray[np.float64]] = {}

    def integers(self, points: NDArray[np.floating], bits: int) -> NDArray[np.int32]:
        """As `Frame.integers`, from what is shared."""
        return self.quantize(points, bits).astype(np.int32, order="C")

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """As `Frame.quantize`; the array is read-only if it is shared."""
        if self._held is None or not _lies_in(points, self._held):
            return super().quantize(points, bits)
        layout = points.__array_interface__
        where = (layout["data"][0], layout["typestr"], points.shape, points.strides, bits)
        if where not in self._known:
            self._known[where] = super().quantize(points, bits)
            self._known[where].flags.writeable = False
        return self._known[where]


def _lies_in(part: NDArray[np.floating], whole: NDArray[np.floating]) -> bool:
    """Whether the memory of an array is within that of another."""
    if not part.size or not whole.size:
        return False
    (low, high), (first, last) = np.lib.array_utils.byte_bounds(part), np.lib.array_utils.byte_bounds(whole)
    return bool(first <= low and high <= last)
