"""Frames for rows that a worker keeps as lattice integers between rounds."""

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.row_pass import refused_rows


class QuantizedFrame(Frame):
    """A frame for rows that are already its integers, which statistics then read like any other rows.

    The bound of every row is checked again, since rows may have been kept in a file meanwhile.
    """

    _bits: int = -1

    @classmethod
    def of(cls, frame: Frame, bits: int) -> "QuantizedFrame":
        """Creates the frame for rows that `frame` quantized at `bits`."""
        kept = cls(*frame)
        kept._bits = bits
        return kept

    def quantize(self, points: NDArray[np.floating], bits: int) -> NDArray[np.float64]:
        """Returns the integers as float64.

        Args:
          points: int32, shape (n_rows, n_features): rows that `Frame.quantize` made, or some of them.
          bits: of the frame.

        Raises:
          LatticeOverflowError: for other rows or bits.
        """
        rows = points.astype(np.float64)
        if bits != self._bits or points.dtype != np.int32 or not (lattice.squared_norms(rows) <= 4.0**bits).all():
            raise refused_rows()
        return rows

    def integer_blocks(self, points: NDArray[np.floating], bits: int) -> Iterator[NDArray[np.int32]]:
        """Yields the integers in one block; the pass that adds them up checks the bound of every row.

        Raises:
          LatticeOverflowError: for other bits.
        """
        if bits != self._bits:
            raise refused_rows()
        yield np.ascontiguousarray(points)


def frame_digest(frame: Frame) -> bytes:
    """Returns a digest of all properties that affect the integers of a row; 16 bytes."""
    center = np.ascontiguousarray(frame.lattice.center, dtype=np.float64)
    numbers = repr((frame.box, frame.lattice.clipping_norm, center.shape)).encode()
    return hashlib.blake2b(numbers + center.tobytes(), digest_size=16).digest()
