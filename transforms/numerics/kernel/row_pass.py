"""The compiled pass over rows: bound, score, label, sums and counts.

The code of a center is score * 2**bits + (2**bits - 1 - index), so one maximum finds the nearest center and, among
equal ones, the lowest index. A code is an integer below 2**53, so float64 holds it exactly in any order of adding up.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics.row_pass import Kernel, Tally, is_matrix, refused_rows, use
from dapple_dp.transforms.numerics.kernel.lattice_rows import lattice_rows, scaled
from dapple_dp.transforms.numerics.kernel.library import Library, library

_EXACT_LIMIT = 2.0**53
_NO_CODE = -(2.0**60)
_NO_RADIUS = 2.0**31


class CompiledPass(NamedTuple):
    """Centers in the library's layout.

    Attributes:
      library: runs the pass.
      centers: integers as float64, C order, shape (n_centers, n_features).
      tiles: shape (n_tiles, n_features, lanes): 2 * 2**bits times the centers, zeros beyond the last one.
      bias: shape (n_tiles, lanes): the rest of each code, a very low one beyond the last center.
      bits: of an index.
      norm: L2 norm of rows, at most.
    """

    library: Library
    centers: NDArray[np.float64]
    tiles: NDArray[np.float64]
    bias: NDArray[np.float64]
    bits: int
    norm: float

    @classmethod
    def of(cls, centers: NDArray[np.float64], norm: float) -> Self | None:
        """Prepares centers.

        Args:
          centers: integers, shape (n_centers, n_features), both at least 1.
          norm: L2 norm of rows, at most; lattice units.

        Returns:
          None if NumPy must do the work: there is no library, or a code could reach 2**53.
        """
        found = library()
        if found is None or not centers.size:
            return None
        (size, n_features), squared = centers.shape, np.vecdot(centers, centers)
        bits = max(1, (size - 1).bit_length())
        largest, unit = float(np.sqrt(squared.max())) * (1.0 + 2.0**-20), 2.0**bits
        if not ((2.0 * norm + largest) * largest + 1.0) * unit < _EXACT_LIMIT:
            return None
        lanes = found.lanes(found.level, size)
        n_tiles = -(-size // lanes)
        padded = np.zeros((n_tiles * lanes, n_features))
        padded[:size] = 2.0 * unit * centers
        bias = np.full(n_tiles * lanes, _NO_CODE)
        bias[:size] = unit - 1.0 - np.arange(size) - squared * unit
        tiles = np.ascontiguousarray(padded.reshape(n_tiles, lanes, n_features).transpose(0, 2, 1))
        return cls(found, np.ascontiguousarray(centers), tiles, bias.reshape(n_tiles, lanes), bits, norm)

    def add(
        self,
        tally: Tally,
        rows: NDArray[np.int32],
        *,
        radius: int | None = None,
        shortens: bool = False,
        first_cells: NDArray[np.int64] | None = None,
    ) -> None:
        """Adds rows like the `RowPass` of the core; each row is checked before it gets a label."""
        if not is_matrix(rows, np.int32, self.centers.shape[1]):
            raise refused_rows()
        self._check_cells(tally, len(rows), first_cells)
        if shortens and not tally.sums.size:
            raise ValueError("rows that are shortened must be added to sums, got a tally of counts only.")
        scratch = np.empty(self.library.scratch(rows.shape[1]))
        n_tiles, _, lanes = self.tiles.shape
        bad = self.library.add_rows(
            self.library.level,
            lanes,
            rows.ctypes.data,
            *rows.shape,
            self.tiles.ctypes.data,
            self.bias.ctypes.data,
            n_tiles,
            self.bits,
            self.norm,
            _NO_RADIUS if radius is None else float(radius),
            int(shortens),
            self.centers.ctypes.data,
            None if first_cells is None else first_cells.ctypes.data,
            scratch.ctypes.data,
            tally.sums.ctypes.data if tally.sums.size else None,
            tally.inside.ctypes.data,
            tally.outside.ctypes.data,
        )
        if bad:
            raise refused_rows()

    def _check_cells(self, tally: Tally, n_rows: int, first_cells: NDArray[np.int64] | None) -> None:
        """Refuses cells beyond the tally, since the library doesn't check where it writes."""
        size, n_features = self.centers.shape
        highest, fits = 0, any(is_matrix(tally.sums, np.int64, width) for width in (0, n_features))
        if first_cells is not None and len(first_cells):
            highest, fits = int(first_cells.max()), fits and int(first_cells.min()) >= 0
            fits = fits and first_cells.dtype == np.int64 and first_cells.flags.c_contiguous
        fits = fits and (first_cells is None or first_cells.shape == (n_rows,))
        fits = fits and all(is_matrix(each[:, None], np.int64, 1) for each in (tally.inside, tally.outside))
        lengths = {len(each) for each in tally}
        if not fits or lengths != {len(tally.inside)} or len(tally.inside) < highest + size:
            raise IndexError("every row must have its cells within the tally, got others.")


def add_outer(total: NDArray[np.int64], rows: NDArray[np.int32], norm: float) -> bool:
    """Adds the outer products of rows, as checked by `row_pass.add_outer`; returns False if NumPy must do the work.

    Raises:
      LatticeOverflowError: if a row is longer than `norm`.
    """
    found = library()
    if found is None:
        return False
    scratch = np.empty(found.scatter_scratch(total.shape[1]))
    pointers = scratch.ctypes.data, total.ctypes.data
    if found.add_scatter(found.level, rows.ctypes.data, *rows.shape, norm, *pointers):
        raise refused_rows()
    return True


def start() -> bool:
    """Makes statistics of this process try the compiled library first.

    Returns:
      True if there is a library. It adds up rows without the interpreter's lock, so that threads of one process help.
    """
    use(Kernel(CompiledPass.of, lattice_rows, add_outer, scaled))
    return library() is not None
