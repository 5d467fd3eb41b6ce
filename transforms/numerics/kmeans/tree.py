"""A binary tree over the data: level l splits by the side of the l-th public hyperplane.

Sides are computed on lattice integers, so the cell of a row is the same on every CPU. Noisy counts of cells, several
levels at a time, decide which nodes are kept and divided further.
Source: Chang, Ghazi, Kumar, Manurangsi (2021), "Locally private k-means in one round", Section 5, for SimHash prefixes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import assignment
from dapple_dp.transforms.core.statistics.assignment import Projection

LEVELS_PER_ROUND = 5
"""Levels whose counts come from one histogram; the upper ones are sums of its cells."""
KEEP_STDDEVS = 4.0
"""A node is kept only if its noisy count is above this many stddevs of its noise."""
BRANCH_FACTOR = 3.0
"""A node is divided while its noisy count is at least this many times that of a node to keep."""
_DROPPED = -1
_FIRST_LEAF = -2


def widths(depth: int) -> tuple[int, ...]:
    """Returns the levels of each round of splits; they add up to `depth`."""
    full, rest = divmod(depth, LEVELS_PER_ROUND)
    return (LEVELS_PER_ROUND,) * full + ((rest,) if rest else ())


class Hyperplanes(NamedTuple):
    """One public hyperplane per level.

    Attributes:
      projection: normals, one column per level.
      offsets: integers, shape (depth,), lattice units at SUM_BITS: a row on or above its offset has bit 1.
    """

    projection: Projection
    offsets: NDArray[np.float64]

    def bits(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the side of each row, 0 or 1, shape (n_rows, depth); `rows` are integers at SUM_BITS in the ball."""
        return (assignment.project(rows, self.projection) >= self.offsets).astype(np.int64)


class Tree(NamedTuple):
    """The divisions so far, as a partition of rows.

    Attributes:
      hyperplanes: one per level.
      tables: for every round of splits so far, int64 of shape (n_nodes, 2**width): the result for each cell of an
        open node: the number of an open node of the next round, -1 if it is dropped, or -2 - number of a leaf.
      size: public number of labels.
      complete: True if rows are labeled by leaf, not by cell of an open node.
    """

    hyperplanes: Hyperplanes
    tables: tuple[NDArray[np.int64], ...]
    size: int
    complete: bool = False

    def labels(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the leaf's number, or (open node * 2**width + cell) in an incomplete tree; -1 for rows outside.

        Args:
          rows: integers, shape (n_rows, n_features), at SUM_BITS.
        """
        bits = self.hyperplanes.bits(rows)
        place = np.zeros(len(rows), dtype=np.int64)
        codes = _codes(bits)
        for table, code in zip(self.tables, codes, strict=False):
            inside = place >= 0
            place[inside] = table[place[inside], code[inside]]
        if self.complete:
            return np.where(place <= _FIRST_LEAF, _FIRST_LEAF - place, _DROPPED)
        width = widths(bits.shape[1])[len(self.tables)]
        return np.where(place >= 0, (place << width) + codes[len(self.tables)], _DROPPED)


def _codes(bits: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Returns the bits of each round of splits as one integer per row, first level highest."""
    codes, start = [], 0
    for width in widths(bits.shape[1]):
        codes.append(bits[:, start : start + width] @ (1 << np.arange(width - 1, -1, -1)))
        start += width
    return codes


class Rule(NamedTuple):
    """Rule for keeping nodes.

    Attributes:
      keep: smallest noisy count of a node.
      stddev: noise stddev of the count of one cell.
    """

    keep: float
    stddev: float

    def smallest(self, n_cells: int) -> float:
        """Returns the smallest noisy count of a node that is the sum of `n_cells` cells."""
        return max(self.keep, KEEP_STDDEVS * self.stddev * float(np.sqrt(n_cells)))


class Nodes(NamedTuple):
    """Nodes that remain after one round of splits.

    Attributes:
      owner: int64, shape (n_open, 2**width): node to which each cell belongs, -1 for cells that are dropped.
      counts: shape (n_nodes,): noisy counts.
      divisible: shape (n_nodes,): True if the node is one cell, which the next round may divide.
    """

    owner: NDArray[np.int64]
    counts: NDArray[np.float64]
    divisible: NDArray[np.bool_]


def divide(cells: NDArray[np.float64], rule: Rule) -> Nodes:
    """Divides open nodes level by level.

    A node is divided if its count is at least `BRANCH_FACTOR` times that of a node to keep (an open node: in any
    case) and a child is worth keeping; other children are dropped.

    Args:
      cells: shape (n_open, 2**width): noisy counts.
      rule: for keeping nodes.
    """
    n_open, n_cells = cells.shape
    owner = np.full((n_open, n_cells), _DROPPED, dtype=np.int64)
    counts: list[NDArray[np.float64]] = [np.zeros(0)]
    alive, values = np.ones((n_open, 1), dtype=np.bool_), np.full((n_open, 1), np.inf)
    while alive.shape[1] < n_cells:
        n_nodes = alive.shape[1]
        span = n_cells // (2 * n_nodes)
        children = cells.reshape(n_open, 2 * n_nodes, span).sum(axis=2)
        kept = children >= rule.smallest(span)
        worth = kept.reshape(n_open, n_nodes, 2).any(axis=2)
        divided = alive & worth & (values >= BRANCH_FACTOR * rule.keep)
        ends = alive & ~divided
        if span * 2 == n_cells:
            values = cells.sum(axis=1, keepdims=True)
        _claim(owner, ends, sum(map(len, counts)))
        counts.append(values[ends])
        alive, values = np.repeat(divided, 2, axis=1) & kept, children
    n_ended = sum(map(len, counts))
    _claim(owner, alive, n_ended)
    counts.append(values[alive])
    found = np.concatenate(counts)
    return Nodes(owner, found, np.arange(len(found)) >= n_ended)


def _claim(owner: NDArray[np.int64], nodes: NDArray[np.bool_], first: int) -> None:
    """Assigns the cells of the marked nodes to new nodes, numbered from `first`."""
    numbers = np.full(nodes.shape, _DROPPED, dtype=np.int64)
    numbers[nodes] = first + np.arange(int(nodes.sum()))
    spread = np.repeat(numbers, owner.shape[1] // nodes.shape[1], axis=1)
    owner[spread >= 0] = spread[spread >= 0]


class Fringe(NamedTuple):
    """Additions of a round of splits to a tree.

    Attributes:
      table: as in `Tree.tables`.
      open_counts: shape (n_open,): noisy counts of the nodes that the next round divides.
      leaf_counts: shape (n_leaves,): noisy counts of new leaves.
    """

    table: NDArray[np.int64]
    open_counts: NDArray[np.float64]
    leaf_counts: NDArray[np.float64]


def settle(nodes: Nodes, rule: Rule, n_leaves: int, max_open: int) -> Fringe:
    """Decides which nodes stay open; the others become leaves.

    Args:
      nodes: of this round.
      rule: for dividing nodes.
      n_leaves: leaves so far.
      max_open: public bound on open nodes, the largest noisy counts first; 0 in the last round.
    """
    large = np.flatnonzero(nodes.divisible & (nodes.counts >= BRANCH_FACTOR * rule.keep))
    opened = large[np.argsort(-nodes.counts[large], kind="stable")][:max_open]
    is_leaf = np.ones(len(nodes.counts), dtype=np.bool_)
    is_leaf[opened] = False
    becomes = np.empty(len(nodes.counts), dtype=np.int64)
    becomes[opened] = np.arange(len(opened))
    becomes[is_leaf] = _FIRST_LEAF - n_leaves - np.arange(int(is_leaf.sum()))
    table = np.where(nodes.owner >= 0, becomes[np.maximum(nodes.owner, 0)], _DROPPED)
    return Fringe(table, nodes.counts[opened], nodes.counts[is_leaf])


def complete(tree: Tree, leaf_counts: NDArray[np.float64], max_leaves: int) -> Tree:
    """Returns the tree as a partition into its `max_leaves` largest leaves by noisy count, largest first."""
    order = np.argsort(-leaf_counts, kind="stable")[:max_leaves]
    number = np.full(len(leaf_counts), _DROPPED, dtype=np.int64)
    number[order] = _FIRST_LEAF - np.arange(len(order))
    tables = tuple(
        np.where(table <= _FIRST_LEAF, number[np.maximum(_FIRST_LEAF - table, 0)], table) for table in tree.tables
    )
    return Tree(tree.hyperplanes, tables, max_leaves, complete=True)


def spread_directions(n_dims: int, n_directions: int, seed: int) -> NDArray[np.float64]:
    """Draws public unit vectors, shape (n_dims, n_directions): random orthonormal bases, one after the other."""
    rng = np.random.default_rng([seed, 4])
    n_bases = -(-n_directions // n_dims)
    bases = [np.linalg.qr(rng.normal(size=(n_dims, n_dims)))[0] for _ in range(n_bases)]
    return np.concatenate(bases, axis=1)[:, :n_directions]


def spread_offsets(stddevs: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Draws public shifts of hyperplanes from the middle, uniform within one stddev of the data along each normal."""
    return np.random.default_rng([seed, 5]).uniform(-1.0, 1.0, len(stddevs)) * stddevs
