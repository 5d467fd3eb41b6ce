"""Units per cell of a cluster and a public term: what clusters are called after, in lattice integers.

A unit counts once in each of at most `per_unit` of its cells, whatever number of rows it has. Which ones is a function
of its own rows: cells in the order of a hash of all of them. The order is no secret, and need not be: any choice that
no other unit takes part in keeps the bound.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.tables.client_block import ClientBlock
from transforms.numerics.statistics import lattice
from transforms.numerics.statistics.assignment import RowLabels
from transforms.numerics.statistics.client_chunks import CLIENT_BLOCK_ROWS, client_chunks, owners
from transforms.numerics.statistics.frame import Frame
from transforms.numerics.tables.partition import mix

TERM_UNITS = lattice.SUM_UNITS
"""L2 norm of what one unit adds to all cells, at most, in lattice units."""


class CellLimits(NamedTuple):
    """Public limits of what a unit adds.

    Attributes:
      n_terms: of the vocabulary, >= 1.
      per_unit: cells of a unit, at most, >= 1.
      seed: of the order in which a unit's cells are taken.
    """

    n_terms: int
    per_unit: int
    seed: int

    @property
    def cell_units(self) -> int:
        """What a unit adds to each of its cells, lattice units: `per_unit` cells keep `TERM_UNITS` in L2."""
        return max(1, math.isqrt(TERM_UNITS**2 // self.per_unit))


class _Rows(NamedTuple):
    """Rows of several units: labels (n_rows,), digests (n_rows,), and codes of terms (n_rows, most)."""

    labels: NDArray[np.int64]
    digests: NDArray[np.uint64]
    codes: NDArray[np.int64]


def row_term_cells(block: ClientBlock, frame: Frame, assigner: RowLabels, limits: CellLimits) -> NDArray[np.int64]:
    """Rows per cell.

    Args:
      block: rows; numbers after the features of the frame are positions of terms, those out of range are none.
      frame: public frame.
      assigner: the centers.
      limits: public.

    Returns:
      int64, shape (assigner.size * n_terms,), cluster by cluster, units of 1 / `limits.cell_units` rows. One row moves
      it by at most `TERM_UNITS` in L2.
    """
    total = np.zeros(assigner.size * limits.n_terms, dtype=np.int64)
    for rows in _labeled(block.points, frame, assigner, limits.seed):
        _add(total, rows, np.arange(len(rows.labels)), rows.digests, limits)
    return total


def client_term_cells(block: ClientBlock, frame: Frame, assigner: RowLabels, limits: CellLimits) -> NDArray[np.int64]:
    """Clients per cell, each with those of all its rows; arguments and result as of `row_term_cells`, in clients."""
    total = np.zeros(assigner.size * limits.n_terms, dtype=np.int64)
    for chunk in client_chunks(block):
        sizes, owner = owners(chunk)
        parts = list(_labeled(chunk.points, frame, assigner, limits.seed))
        rows = _Rows(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        # A sum modulo 2**64 is the same for every order of a client's rows.
        digests = np.zeros(len(sizes), dtype=np.uint64)
        np.add.at(digests, owner, mix(rows.digests))
        _add(total, rows, owner, digests, limits)
    return total


def _labeled(points: NDArray[np.floating], frame: Frame, assigner: RowLabels, seed: int) -> Iterator[_Rows]:
    """Rows by their cluster, a few at a time; a digest is one of what the row is on the lattice."""
    n_features = len(frame.lattice.center)
    factors = mix(np.arange(n_features, dtype=np.uint64) + np.uint64(seed))
    for part in lattice.row_blocks(points, CLIENT_BLOCK_ROWS):
        rows = frame.quantize(np.ascontiguousarray(part[:, :n_features]), lattice.SUM_BITS)
        digests = mix((rows.astype(np.int64).view(np.uint64) * factors).sum(axis=1, dtype=np.uint64))
        yield _Rows(assigner.labels(rows), digests, part[:, n_features:].astype(np.int64))


def _add(
    total: NDArray[np.int64], rows: _Rows, owner: NDArray[np.int64], digests: NDArray[np.uint64], limits: CellLimits
) -> None:
    """Adds the cells of units, in place.

    Args:
      total: shape (n_clusters * n_terms,).
      rows: of these units.
      owner: shape (n_rows,): unit of each row, from 0.
      digests: shape (n_units,): of each unit.
      limits: public.
    """
    known = (rows.codes >= 0) & (rows.codes < limits.n_terms) & (rows.labels >= 0)[:, None]
    cells = rows.labels[:, None] * limits.n_terms + rows.codes
    units = np.broadcast_to(owner[:, None], cells.shape)
    pairs = np.unique(units[known] * len(total) + cells[known])
    units, cells = np.divmod(pairs, len(total))
    ranks = mix(digests[units] ^ mix(cells.astype(np.uint64)))
    order = np.lexsort((ranks, units))
    units, cells = units[order], cells[order]
    place = np.arange(len(units)) - np.searchsorted(units, units)
    total += np.bincount(cells[place < limits.per_unit], minlength=len(total)) * limits.cell_units
