"""The hook for a compiled kernel; without one, NumPy computes every statistic.

A kernel makes the same integers as NumPy, only faster: `tests/property/kernel` compares them one by one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import LatticeOverflowError

_EXACT_NORM = 2.0**18
"""Norm of rows of which `_EXACT_ROWS` have outer products whose sum stays below 2**53."""
_EXACT_ROWS = 1 << 16


class Tally(NamedTuple):
    """Results of a pass, int64; a cell is a center, or a client's center.

    Attributes:
      sums: shape (n_cells, n_features), C order: rows, and shortened differences; (n_cells, 0) to count only.
      inside: shape (n_cells,): rows within the radius.
      outside: shape (n_cells,): rows that were shortened.
    """

    sums: NDArray[np.int64]
    inside: NDArray[np.int64]
    outside: NDArray[np.int64]

    @classmethod
    def zeros(cls, n_cells: int, n_features: int) -> Self:
        """Creates an empty tally; with 0 features rows are counted only."""
        numbers = np.zeros(n_cells * n_features + 7, dtype=np.int64)
        first = -(numbers.ctypes.data // 8) % 8  # Vectors of a kernel then lie in one line of the cache each.
        sums = numbers[first : first + n_cells * n_features].reshape(n_cells, n_features)
        return cls(sums, np.zeros(n_cells, dtype=np.int64), np.zeros(n_cells, dtype=np.int64))


class RowPass(Protocol):
    """Centers prepared for one pass over rows that finds the nearest center of each and adds it up there."""

    @property
    def centers(self) -> NDArray[np.float64]:
        """Integers, shape (n_centers, n_features)."""

    def add(
        self,
        tally: Tally,
        rows: NDArray[np.int32],
        *,
        radius: int | None = None,
        shortens: bool = False,
        first_cells: NDArray[np.int64] | None = None,
    ) -> None:
        """Adds rows to the cells of their nearest centers.

        Args:
          tally: added to in place; of no use after an error.
          rows: shape (n_rows, n_features), C order, lattice units.
          radius: leaves rows farther from their center out of `sums` and `inside`; None for no radius.
          shortens: adds the differences of such rows from their center, shortened to the radius, to `sums`, and counts
            them in `outside`.
          first_cells: shape (n_rows,): the cell of a row's first center, if clients have separate cells.

        Raises:
          LatticeOverflowError: if a row is longer than the norm that the pass was prepared for.
        """


class Kernel(NamedTuple):
    """Functions of a kernel.

    Attributes:
      row_pass: (centers, L2 norm of rows at most, lattice units) -> the pass, or None if NumPy must do the work.
      lattice_rows: (rows, center, scale, norm, box) -> `lattice.quantize` of them as int32, and the indices of those
        that NumPy must shrink; None if it must do all the work.
      add_outer: as `add_outer` below; False if NumPy must do the work.
      scaled: as in `lattice`; None if NumPy must do the work.
    """

    row_pass: Callable[[NDArray[np.float64], float], RowPass | None]
    lattice_rows: Callable[..., tuple[NDArray[np.int32], NDArray[np.int64]] | None]
    add_outer: Callable[[NDArray[np.int64], NDArray[np.int32], float], bool]
    scaled: Callable[[NDArray[Any], NDArray[np.float64], bool], NDArray[np.float64] | None]


_NUMPY = Kernel(lambda *_: None, lambda *_: None, lambda *_: False, lambda *_: None)
_used = [_NUMPY]


def use(chosen: Kernel) -> None:
    """Makes the statistics of this process try a kernel first."""
    _used[0] = chosen


def kernel() -> Kernel:
    """The kernel in use."""
    return _used[0]


def add_outer(total: NDArray[np.int64], rows: NDArray[np.int32], norm: float) -> None:
    """Adds the outer products of rows to the upper triangle of a matrix; the rest of it is undefined.

    Args:
      total: shape (n_features, n_features), C order, n_features >= 1; added to in place, of no use after an error.
      rows: shape (n_rows, n_features), C order, lattice units.
      norm: L2 norm of rows, at most 2**18.

    Raises:
      LatticeOverflowError: if a row is longer than `norm`, or has another shape or type.
    """
    n_features = total.shape[-1]
    if not is_matrix(total, np.int64, n_features) or len(total) != n_features or not 0.0 <= norm <= _EXACT_NORM:
        raise ValueError("outer products must be added to a square matrix of int64, of rows of norm 2**18 at most.")
    if not is_matrix(rows, np.int32, n_features):
        raise refused_rows()
    if kernel().add_outer(total, rows, norm):
        return
    for start in range(0, len(rows), _EXACT_ROWS):
        wide = rows[start : start + _EXACT_ROWS].astype(np.float64)
        if not (np.vecdot(wide, wide) <= norm * norm).all():
            raise refused_rows()
        total += (wide.T @ wide).astype(np.int64)


def is_matrix(array: NDArray[Any], dtype: type, n_columns: int) -> bool:
    """Returns whether an array has this type and number of columns, in C order."""
    shape = array.shape
    return array.dtype == dtype and len(shape) == 2 and shape[1] == n_columns and array.flags.c_contiguous


def refused_rows() -> LatticeOverflowError:
    """The error for rows that are not those which were quantized for a round."""
    return LatticeOverflowError(
        "The rows kept from an earlier round don't fit this round; run the job again with --cache_megabytes 0."
    )
