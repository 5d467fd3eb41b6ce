"""Sums and counts by group, of a block or of each of its clients, and whole clients a few thousand rows at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, RowLabels, check_scores
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.row_pass import RowPass, Tally, kernel

CLIENT_BLOCK_ROWS = 2048
"""Rows of several clients worked on at a time; larger clients are worked on alone, in blocks."""
_MAX_CELLS, _MAX_BINS = 1 << 17, 1 << 21
"""Numbers of clients' sums, which fit into the cache, and bins of their histograms, that are held at a time."""

Integers = NDArray[np.int64]
Vectors = Callable[[NDArray[np.floating]], tuple[NDArray[Any], Integers]]
"""Maps rows to the integer vectors that they add, shape (n_rows, width), and to their groups, -1 to leave one out."""
Clip = Callable[[Integers, Integers, Integers], tuple[NDArray[Any], ...]]
"""Maps sums, shape (n_clients, n_groups * width), counts, shape (n_clients, n_groups), and numbers of rows, shape
(n_clients,), to what the clients add, a row each."""


def clients_in_order(block: ClientBlock, n_clients: int) -> Iterator[ClientBlock]:
    """Yields so many whole clients at a time, in order."""
    for first in range(0, block.n_clients, n_clients):
        offsets = block.client_offsets[first : first + n_clients + 1]
        yield ClientBlock(block.points[offsets[0] : offsets[-1]], offsets - offsets[0])


def client_chunks(block: ClientBlock) -> Iterator[ClientBlock]:
    """Yields whole clients of similar size, smallest first; one of more than CLIENT_BLOCK_ROWS rows comes alone.

    The clients of a chunk times the rows of its largest one stay within CLIENT_BLOCK_ROWS, so that a padded
    array of the chunk stays small. Clients without rows do not occur.
    """
    offsets, first = block.client_offsets, 0
    order = np.argsort(np.diff(offsets), kind="stable")
    sizes = np.diff(offsets)[order]
    while first < len(order):
        window = sizes[first : first + CLIENT_BLOCK_ROWS]
        fitting = int((np.arange(1, len(window) + 1) * window <= CLIENT_BLOCK_ROWS).sum())
        last = first + max(fitting, 1)
        starts, ends = offsets[order[first:last]], np.concatenate([[0], np.cumsum(sizes[first:last])])
        rows: Any = slice(starts[0], starts[0] + ends[1])  # A view, since one client may be most of the block.
        if last > first + 1:
            rows = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], sizes[first:last])
        yield ClientBlock(block.points[rows], ends)
        first = last


def owners(chunk: ClientBlock) -> tuple[Integers, Integers]:
    """Rows of each client, and the client of each row."""
    sizes = np.diff(chunk.client_offsets)
    return sizes, np.repeat(np.arange(len(sizes)), sizes)


def group_sums(
    block: ClientBlock, n_groups: int, width: int, vectors: Vectors, *, by_client: bool = False
) -> tuple[Integers, Integers]:
    """Adds up vectors and counts rows by group.

    Args:
      block: rows.
      n_groups: number of groups.
      width: size of a vector; 0 to count only.
      vectors: gives the vectors that rows add, and their groups.
      by_client: True for separate groups of each client.

    Returns:
      Exact sums, shape (n_cells, width), and counts, shape (n_cells,). A cell is a group, or client * n_groups + group.
    """
    n_cells = n_groups * (block.n_clients if by_client else 1)
    owner = owners(block)[1] if by_client else np.zeros(len(block.points), dtype=np.int64)
    sums, counts = np.zeros((n_cells, width), dtype=np.int64), np.zeros(n_cells, dtype=np.int64)
    for start in range(0, len(owner), lattice.BLOCK_ROWS):
        part = slice(start, start + lattice.BLOCK_ROWS)
        added, groups = vectors(block.points[part])
        kept = np.flatnonzero(groups >= 0)
        cells = owner[part][kept] * n_groups + groups[kept]
        if width:
            lattice.add_by_group(sums, added[kept], cells)
        counts += np.bincount(cells, minlength=n_cells)
    return sums, counts


def pass_sums(
    block: ClientBlock,
    blocks: Iterator[NDArray[np.int32]],
    compiled: RowPass,
    width: int,
    *,
    by_client: bool,
    **how: Any,
) -> Tally:
    """Adds up the rows of a block, which come as integers in `blocks`, by a compiled pass; cells as in `group_sums`.

    `how` passes on the arguments of `RowPass.add` for rows beyond a radius.
    """
    size, start = len(compiled.centers), 0
    tally = Tally.zeros(size * (block.n_clients if by_client else 1), width)
    first_cells = owners(block)[1] * size if by_client else None
    for integers in blocks:
        cells = None if first_cells is None else first_cells[start : start + len(integers)]
        compiled.add(tally, integers, first_cells=cells, **how)
        start += len(integers)
    return tally


def bin_sums(
    block: ClientBlock, frame: Frame, assigner: RowLabels, *, by_client: bool = False, counts_only: bool = False
) -> tuple[Integers, Integers]:
    """Adds up and counts rows by bin, as `group_sums` does; the compiled pass makes the same integers faster."""
    width = 0 if counts_only else block.points.shape[1]
    if isinstance(assigner, Assigner) and (assigner.projection is None or counts_only):
        check_scores(assigner.centers, assigner.norm)
        compiled = kernel().row_pass(assigner.centers, assigner.norm)
        if compiled is not None:
            blocks = _compared_blocks(block.points, frame, assigner)
            tally = pass_sums(block, blocks, compiled, width, by_client=by_client)
            return tally.sums, tally.inside

    def labeled(points: NDArray[np.floating]) -> tuple[NDArray[np.float64], Integers]:
        rows = frame.quantize(points, lattice.SUM_BITS)
        return rows[:, :width], assigner.labels(rows)

    return group_sums(block, assigner.size, width, labeled, by_client=by_client)


def client_histograms(
    block: ClientBlock, frame: Frame, assigner: RowLabels, clip: Callable[[Integers, Integers], NDArray[Any]]
) -> Integers:
    """Adds up clipped histograms of clients, shape (assigner.size,); holds only bins in which a client has rows.

    `clip` maps counts, shape (n_clients, n_bins), a client's in any order and then zeros, and numbers of rows, shape
    (n_clients,), to what the clients add there; zeros must stay.
    """
    size = assigner.size
    total = np.zeros(size, dtype=np.int64)
    for chunk in clients_in_order(block, max(1, _MAX_BINS // size)):
        cells, counts = _occupied(chunk, frame, assigner)
        client, bins = np.divmod(cells, size)
        place = np.arange(len(cells)) - np.searchsorted(client, client)
        packed = np.zeros((chunk.n_clients, int(place.max(initial=0)) + 1), dtype=np.int64)
        packed[client, place] = counts
        clipped = clip(packed, np.diff(chunk.client_offsets))[client, place].astype(np.int64)
        np.add.at(total, bins, clipped)
    return total


def _occupied(chunk: ClientBlock, frame: Frame, assigner: RowLabels) -> tuple[Integers, Integers]:
    """Finds the cells, client * size + bin, in which clients have rows, in order, and the numbers of these rows."""
    if isinstance(assigner, Assigner):
        counts = bin_sums(chunk, frame, assigner, by_client=True, counts_only=True)[1]
        cells = np.flatnonzero(counts)
        return cells, counts[cells]
    parts = lattice.row_blocks(chunk.points)
    bins = np.concatenate([assigner.labels(frame.quantize(part, lattice.SUM_BITS)) for part in parts])
    kept = bins >= 0
    cells, counts = np.unique(owners(chunk)[1][kept] * assigner.size + bins[kept], return_counts=True)
    return cells, counts


def _compared_blocks(points: NDArray[np.floating], frame: Frame, assigner: Assigner) -> Iterator[NDArray[np.int32]]:
    """Rows as integers in the space of the centers; projected ones fit into 32 bits."""
    if assigner.projection is None:
        yield from frame.integer_blocks(points, lattice.SUM_BITS)
        return
    for part in lattice.row_blocks(points):
        yield assigner.compared(frame.quantize(part, lattice.SUM_BITS)).astype(np.int32)


def client_sums(
    block: ClientBlock, size: int, totals: Callable[[ClientBlock], tuple[Integers, Integers]], clip: Clip
) -> Integers:
    """Adds up what clients add after clipping.

    Args:
      block: rows grouped by client.
      size: of the result.
      totals: sums and counts of each client of a chunk, as from `group_sums`.
      clip: bounds what each client adds, on the integers that are summed.

    Returns:
      shape (size,).
    """
    total = np.zeros(size, dtype=np.int64)
    for chunk in clients_in_order(block, max(1, _MAX_CELLS // size)):
        sums, counts = (cells.reshape(chunk.n_clients, -1) for cells in totals(chunk))
        clipped = clip(sums, counts, np.diff(chunk.client_offsets))
        total += np.concatenate([part.sum(axis=0).astype(np.int64) for part in clipped])
    return total
