"""Whole clients of a block, few enough at a time that arrays with a row for each of them stay small."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from schemas.tables.client_block import ClientBlock
from transforms.numerics.kernel.row_pass import RowPass, Tally
from transforms.numerics.statistics import lattice
from transforms.numerics.statistics.frame import Frame

CLIENT_BLOCK_ROWS = 2048
"""Rows of several clients worked on at a time; larger clients are worked on alone, in blocks."""


def client_chunks(block: ClientBlock, max_clients: int = CLIENT_BLOCK_ROWS) -> Iterator[ClientBlock]:
    """Whole clients of similar size, smallest first; a client of more than CLIENT_BLOCK_ROWS rows comes alone.

    The clients of a chunk times the rows of its largest one stay within CLIENT_BLOCK_ROWS, so that a padded
    array of the chunk stays small. Clients without rows do not occur.
    """
    offsets = block.client_offsets
    sizes = np.diff(offsets)
    order = np.argsort(sizes, kind="stable")
    sizes = sizes[order]
    first = 0
    while first < len(order):
        window = sizes[first : first + min(max_clients, CLIENT_BLOCK_ROWS)]
        fitting = int((np.arange(1, len(window) + 1) * window <= CLIENT_BLOCK_ROWS).sum())
        last = first + max(fitting, 1)
        yield _take(block.points, offsets, order[first:last])
        first = last


def _take(points: NDArray[np.floating], offsets: NDArray[np.int64], clients: NDArray[np.int64]) -> ClientBlock:
    """The rows of some clients, in the order of `clients`."""
    sizes = offsets[clients + 1] - offsets[clients]
    taken = np.concatenate([[0], np.cumsum(sizes)])
    first, last = int(clients[0]), int(clients[-1])
    if last - first == len(clients) - 1 and (np.diff(clients) == 1).all():
        return ClientBlock(points[offsets[first] : offsets[last + 1]], taken)
    rows = np.arange(taken[-1]) + np.repeat(offsets[clients] - taken[:-1], sizes)
    return ClientBlock(points[rows], taken)


def owners(chunk: ClientBlock) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of each client, and the client of each row."""
    sizes = np.diff(chunk.client_offsets)
    return sizes, np.repeat(np.arange(len(sizes)), sizes)


def client_totals(
    chunk: ClientBlock,
    n_groups: int,
    vectors: Callable[[NDArray[np.floating]], tuple[NDArray[np.float64], NDArray[np.int64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exact sums of vectors and counts of rows, for each client and group.

    Args:
      chunk: rows grouped by client.
      n_groups: how many groups there are.
      vectors: makes of rows their integer vectors, shape (n_rows, n_features), and groups, shape (n_rows,). A row of
        group -1 is left out.

    Returns:
      Shapes (n_clients, n_groups * n_features) and (n_clients, n_groups).
    """
    sizes, owner = owners(chunk)
    counts = np.zeros(len(sizes) * n_groups)
    sums = np.zeros((len(counts), chunk.points.shape[1]))
    for start in range(0, len(owner), CLIENT_BLOCK_ROWS):
        part = slice(start, start + CLIENT_BLOCK_ROWS)
        added, groups = vectors(chunk.points[part])
        kept = np.flatnonzero(groups >= 0)
        cells = owner[part][kept] * n_groups + groups[kept]
        lattice.add_by_group(sums, added[kept], cells)
        counts += np.bincount(cells, minlength=len(counts))
    return as_totals(sums, counts, len(sizes))


def as_totals(sums: NDArray, counts: NDArray, n_clients: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums and counts of cells, by client and group, as `client_totals` returns them."""
    shape = (n_clients, -1)
    return sums.astype(np.float64, copy=False).reshape(shape), counts.astype(np.float64, copy=False).reshape(shape)


def client_tally(
    chunk: ClientBlock,
    frame: Frame,
    compiled: RowPass,
    *,
    sums: bool = True,
    radius: int | None = None,
    shortens: bool = False,
) -> Tally:
    """`client_totals` by the compiled pass, whose cells are each client's centers.

    Args:
      chunk: rows grouped by client.
      frame: public frame.
      compiled: the centers.
      sums: whether rows are added up; otherwise they are counted only.
      radius: as of `RowPass.add`.
      shortens: as of `RowPass.add`.
    """
    size, n_features = compiled.centers.shape
    tally = Tally.zeros(chunk.n_clients * size, n_features if sums else 0)
    first_cells, start = owners(chunk)[1] * size, 0
    for integers in frame.integer_blocks(chunk.points, lattice.SUM_BITS):
        cells = first_cells[start : start + len(integers)]
        compiled.add(tally, integers, radius=radius, shortens=shortens, first_cells=cells)
        start += len(integers)
    return tally
