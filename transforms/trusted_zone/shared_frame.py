"""A frame that several runs over the same rows share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics.frame import Frame


class SharedFrame(Frame):
    """A frame that quantizes each part of a block once, for several statistics of the same rows.

    Parts are identified by their place in the held block, which stays alive meanwhile. Rows elsewhere,
    such as copies in another order, are quantized every time, since their memory may soon hold another copy.
    """

    _held: NDArray[np.floating] | None = None

    def hold(self, points: NDArray[np.floating]) -> None:
        """Shares parts of these rows from now on, and releases the rows held before."""
        self._held = points
        self._known: dict[Any, NDArray[np.float64]] = {}

    def integers(self, points: NDArray[np.floating], bits: int) -> NDArray[np.int32]:
        """Returns `Frame.integers`, from shared rows."""
        return self.quantize(points, bits).astype(np.int32, order="C")

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """Returns `Frame.quantize`; a shared array is read-only."""
        if self._held is None or not _lies_in(points, self._held):
            return super().quantize(points, bits)
        layout = points.__array_interface__
        where = (layout["data"][0], layout["typestr"], points.shape, points.strides, bits)
        if where not in self._known:
            self._known[where] = super().quantize(points, bits)
            self._known[where].flags.writeable = False
        return self._known[where]


def _lies_in(part: NDArray[np.floating], whole: NDArray[np.floating]) -> bool:
    """Returns whether the memory of an array is within that of another."""
    if not part.size or not whole.size:
        return False
    (low, high), (first, last) = np.lib.array_utils.byte_bounds(part), np.lib.array_utils.byte_bounds(whole)
    return bool(first <= low and high <= last)
