"""Shares of units by cluster and public term, from which clusters are named.

Each cell of a cluster and a term gets the share of a unit's rows that are in the cluster and have the term. Nothing
is drawn, and no term displaces another. A row has at most `most` terms, so the shares of a unit add up to at most
`most`, and none is above 1: their L2 norm is at most the root of `most`.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import RowLabels
from dapple_dp.transforms.core.statistics.client_chunks import CLIENT_BLOCK_ROWS, client_chunks, owners
from dapple_dp.transforms.core.statistics.frame import Frame

TERM_UNITS = lattice.SUM_UNITS
"""L2 norm of what one unit adds to all cells, at most, in lattice units."""


class CellLimits(NamedTuple):
    """Public limits on the terms of a row.

    Attributes:
      n_terms: size of the vocabulary, >= 1.
      most: number of terms of a row that are read, the first ones, >= 1.
    """

    n_terms: int
    most: int

    @property
    def per_row(self) -> int:
        """Largest number of different terms in a row."""
        return min(self.n_terms, self.most)

    @property
    def cell_units(self) -> int:
        """Lattice units that a unit adds to a cell with all its rows; `per_row` such cells keep `TERM_UNITS` in L2."""
        return max(1, math.isqrt(TERM_UNITS**2 // self.per_row))


def row_term_cells(block: ClientBlock, frame: Frame, assigner: RowLabels, limits: CellLimits) -> NDArray[np.int64]:
    """Counts rows by cell.

    Args:
      block: rows; the `limits.most` numbers after the features of the frame are terms, ignored if out of range.
      frame: public frame.
      assigner: the centers.
      limits: public.

    Returns:
      int64, shape (assigner.size * n_terms,), cluster by cluster, units of 1 / `limits.cell_units` rows. One row moves
      it by at most `TERM_UNITS` in L2.
    """
    counts = np.zeros(assigner.size * limits.n_terms, dtype=np.int64)
    for _, codes, labels in _distinct(block.points, frame, assigner, limits):
        np.add.at(counts, labels * limits.n_terms + codes, 1)
    return counts * limits.cell_units


def client_term_cells(block: ClientBlock, frame: Frame, assigner: RowLabels, limits: CellLimits) -> NDArray[np.int64]:
    """Adds up over clients the shares of their rows in each cell; arguments and result as in `row_term_cells`.

    Shares are rounded so that those of a term, and those of all cells before one, stay within one lattice unit of their
    exact sums. One client moves the result by at most `TERM_UNITS` in L2, checked on the integers that are summed: a
    longer vector would be shrunk as a whole.
    """
    total = np.zeros(assigner.size * limits.n_terms, dtype=np.int64)
    for chunk in client_chunks(block):
        n_rows, owner = owners(chunk)
        keys, counts = _rows_of_cells(chunk, owner, frame, assigner, limits)
        client, place = np.divmod(keys, len(total))
        ends = np.cumsum(counts)
        ends -= (ends - counts)[np.searchsorted(client, client)]
        # Each number is between 0 and `cell_units`, and those of a client add up to `per_row` times that at most.
        shares = ends * limits.cell_units // n_rows[client] - (ends - counts) * limits.cell_units // n_rows[client]
        squared = np.bincount(client, shares.astype(np.float64) ** 2)
        for each in np.flatnonzero(squared > TERM_UNITS**2):
            shares[client == each] = lattice.clip_l2(shares[None, client == each].astype(np.float64), TERM_UNITS)[0]
        code, label = np.divmod(place, assigner.size)
        np.add.at(total, label * limits.n_terms + code, shares)
    return total


def _rows_of_cells(
    chunk: ClientBlock, owner: NDArray[np.int64], frame: Frame, assigner: RowLabels, limits: CellLimits
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cells of clients that have rows, ascending by client, term and cluster, and the number of rows in each."""
    keys, counts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for rows, codes, labels in _distinct(chunk.points, frame, assigner, limits):
        cells = (owner[rows] * limits.n_terms + codes) * assigner.size + labels
        keys, places = np.unique(np.concatenate([keys, cells]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([counts, np.ones(len(cells))])).astype(np.int64)
    return keys, counts


def _distinct(
    points: NDArray[np.floating], frame: Frame, assigner: RowLabels, limits: CellLimits
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Rows, terms and clusters of the terms of rows, each term of a row once; some rows at a time."""
    n_features, start = len(frame.lattice.center), 0
    for part in lattice.row_blocks(points, CLIENT_BLOCK_ROWS):
        labels = assigner.labels(frame.integers(part[:, :n_features], lattice.SUM_BITS).astype(np.float64))
        codes = np.sort(part[:, n_features : n_features + limits.most].astype(np.int64), axis=1)
        known = (codes >= 0) & (codes < limits.n_terms) & (labels >= 0)[:, None]
        known[:, 1:] &= codes[:, 1:] != codes[:, :-1]
        rows, places = np.nonzero(known)
        yield start + rows, codes[rows, places], labels[rows]
        start += len(part)
