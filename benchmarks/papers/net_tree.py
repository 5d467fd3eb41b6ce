"""Nets that are decoded at once, and the tree of them: Sections 2.3 and 3 of the one-round paper, without privacy.

The net of level i are the centers of the cells of a cubic lattice with side 2^(1-i) / sqrt(d), whose cells cover the
unit ball. A point lies in one cell, found by rounding, so every net is decoded in time O(d). Its covering radius is
2^-i, half the diagonal of a cell. Its packing radius is 2^-i / sqrt(d), half a side: at least a third of the covering
radius, as Lemma 10 asks, for d <= 9. Sides halve from level to level, so cells are nested, and the center nearest to
the center of a cell is that of the cell around it. So the tree of all nets is the tree of nested cells.

A node is its level and the integers of its cell, shape (d,): cell j covers [j, j + 1) * side in every coordinate. Level
0 is the root, the origin, which stands for the whole ball.

Source: Chang, Ghazi, Kumar, Manurangsi (2021), Lemmas 10, 14 to 19, Algorithms 1 to 3, Theorems 20 to 22.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.kmeans.starts.seeding import weighted_kmeans

MOST_FEATURES = 9
"""Beyond them cells of a cubic lattice pack worse than Lemma 10 asks."""
Points = NDArray[np.float64]
Cells = NDArray[np.int64]


class Parameters(NamedTuple):
    """Parameters of the tree: `depth` T, `ball` nodes (a) that one center may serve, `steps` Gamma, `theta`."""

    depth: int
    ball: int
    steps: int
    theta: float


class NetTree(NamedTuple):
    """Leaves, one row per leaf: `levels` (m,), `cells` (m, d), estimated `sizes` (m,), and `n_nodes` of the tree."""

    levels: NDArray[np.int64]
    cells: Cells
    sizes: NDArray[np.float64]
    n_nodes: int


Oracle = Callable[[int, Cells], NDArray[np.float64]]
"""(level, cells of shape (m, d)) -> estimated frequencies, shape (m,)."""


def side(level: int, n_features: int) -> float:
    """Side of a cell of a level >= 1."""
    return 2.0 ** (1 - level) / math.sqrt(n_features)


def cells_of(points: Points, level: int) -> Cells:
    """Cells of points, shape (n, d): the nearest point of the net, decoded by rounding (Lemma 10)."""
    if level == 0:
        return np.zeros(points.shape, dtype=np.int64)
    return np.floor(points / side(level, points.shape[1])).astype(np.int64)


def positions(cells: Cells, level: int) -> Points:
    """Points of the net in the space of the rows, shape (m, d)."""
    return np.zeros(cells.shape) if level == 0 else (cells + 0.5) * side(level, cells.shape[1])


def children(cells: Cells, level: int) -> Cells:
    """Cells of the next level inside some cells, those that meet the unit ball, shape (m', d)."""
    n_features = cells.shape[1]
    if level == 0:
        reach = math.ceil(1.0 / side(1, n_features))
        steps, first = np.arange(-reach, reach + 1), np.zeros((1, n_features), dtype=np.int64)
    else:
        steps, first = np.arange(2), 2 * cells
    offsets = np.stack(np.meshgrid(*[steps] * n_features, indexing="ij"), axis=-1).reshape(-1, n_features)
    found = (first[:, None, :] + offsets[None, :, :]).reshape(-1, n_features)
    return found[_meets_ball(found, side(level + 1, n_features))]


def _meets_ball(cells: Cells, width: float) -> NDArray[np.bool_]:
    """True for cells that have a point of norm at most 1."""
    nearest = np.clip(0.0, cells * width, (cells + 1) * width)
    return np.asarray((nearest**2).sum(axis=1) <= 1.0)


def most_children(n_features: int) -> float:
    """B of Lemma 15 for the packing radius of these nets: (1 + 2 sqrt(d))^d."""
    return (1.0 + 2.0 * math.sqrt(n_features)) ** n_features


def printed(n_rows: int, n_features: int, distortion: float) -> Parameters:
    """The parameters of Theorem 20.

    Args:
      n_rows: n.
      n_features: of the rows in the tree, at most `MOST_FEATURES`.
      distortion: xi, in (0, 1).
    """
    if not 1 <= n_features <= MOST_FEATURES:
        raise ValueError(
            f"n_features must be from 1 to {MOST_FEATURES} for a cubic net, got {n_features}; project first."
        )
    theta = 8.0 * math.sqrt((1.0 + 2.0 / distortion) / distortion)
    ball = math.ceil((1.0 + (2.0 + theta) * math.sqrt(n_features)) ** n_features)
    return Parameters(math.ceil(0.5 * math.log2(n_rows)), ball, math.ceil(math.log2(n_rows)), theta)


def threshold(sizes: NDArray[np.float64], n_clusters: int, parameters: Parameters) -> int:
    """Number of the largest nodes of a level that are split (Algorithm 2).

    Args:
      sizes: shape (m,), >= 0, ascending.
      n_clusters: k.
      parameters: `ball` and `steps` are read.
    """
    below = np.concatenate([[0.0], np.cumsum(sizes)])
    step = n_clusters * parameters.ball
    for number in range(1, min(parameters.steps, len(sizes) // step) + 1):
        if below[len(sizes) - (number - 1) * step] <= 2.0 * below[len(sizes) - number * step]:
            return (number - 1) * step
    return min(len(sizes), parameters.steps * step)


def build(oracle: Oracle, n_features: int, n_clusters: int, parameters: Parameters, most_nodes: int) -> NetTree:
    """The tree of Algorithm 1.

    Args:
      oracle: of frequencies; negative estimates count as 0.
      n_features: of the space of the nets.
      n_clusters: k.
      parameters: of `printed`, or others.
      most_nodes: at which a level is no longer split, since the printed constants may split all there is.
    """
    front, sizes, n_nodes = np.zeros((1, n_features), dtype=np.int64), np.array([np.inf]), 1
    parts: list[tuple[int, Cells, NDArray[np.float64]]] = []
    for level in range(parameters.depth):
        order = np.argsort(sizes, kind="stable")
        n_split = len(sizes) if level == 0 else threshold(sizes[order], n_clusters, parameters)
        split = order[len(order) - n_split :]
        found = children(front[split], level)
        if not n_split or n_nodes + len(found) > most_nodes:
            break
        left = np.setdiff1d(np.arange(len(sizes)), split)
        parts.append((level, front[left], sizes[left]))
        front, sizes = found, np.maximum(oracle(level + 1, found), 0.0)
        n_nodes += len(found)
    else:
        level = parameters.depth
    parts.append((level, front, sizes))
    levels = np.concatenate([np.full(len(cells), each) for each, cells, _ in parts])
    return NetTree(
        levels, np.concatenate([cells for _, cells, _ in parts]), np.concatenate([each for *_, each in parts]), n_nodes
    )


def representatives(tree: NetTree) -> Points:
    """Positions of the leaves, shape (m, d)."""
    found = np.zeros(tree.cells.shape)
    for level in np.unique(tree.levels):
        chosen = tree.levels == level
        found[chosen] = positions(tree.cells[chosen], int(level))
    return found


def leaves_of(points: Points, tree: NetTree) -> NDArray[np.int64]:
    """Index of the leaf that stands for each point, shape (n,)."""
    found = np.full(len(points), -1)
    for level in np.unique(tree.levels):
        chosen = np.flatnonzero(tree.levels == level)
        keys = {cell.tobytes(): index for cell, index in zip(tree.cells[chosen], chosen, strict=True)}
        cells = cells_of(points, int(level))
        found = np.where(found < 0, [keys.get(cell.tobytes(), -1) for cell in cells], found)
    return found


def transport(points: Points, tree: NetTree) -> float:
    """The generalized transport cost from points to the representatives of their leaves (mt of Section 2.2)."""
    owners = leaves_of(points, tree)
    counts = np.bincount(owners, minlength=len(tree.levels))
    moved = float(((points - representatives(tree)[owners]) ** 2).sum())
    return moved + float(np.abs(counts - tree.sizes).sum())


def transport_bound(points: Points, tree: NetTree) -> float:
    """The right side of Lemma 16: frequencies times four squared covering radii, and errors of frequencies."""
    counts = np.bincount(leaves_of(points, tree), minlength=len(tree.levels))
    radii = 4.0 * 4.0 ** -tree.levels.astype(np.float64)
    return float((counts * radii).sum() + np.abs(counts - tree.sizes).sum())


def cluster(tree: NetTree, n_clusters: int, seed: int) -> NDArray[np.int64]:
    """Cluster of every leaf by k-means of the representatives, shape (m,)."""
    return weighted_kmeans(representatives(tree), tree.sizes, n_clusters, 20, seed).labels


def subspace(n_features: int, n_dims: int, seed: int) -> Points:
    """An orthonormal basis of a random subspace, shape (n_features, n_dims)."""
    return np.linalg.qr(np.random.default_rng([seed, 21]).normal(size=(n_features, n_dims)))[0]


def projected(rows: Points, basis: Points, scale: float) -> Points:
    """Rows in the subspace times `scale` (Lambda), the origin where they leave the unit ball (Algorithm 3, 2 to 6)."""
    found = scale * (rows @ basis)
    return np.where(np.linalg.norm(found, axis=1, keepdims=True) <= 1.0, found, 0.0)


def printed_scale(n_rows: int, n_features: int, n_dims: int, failure: float) -> float:
    """Lambda of Theorem 22; `failure` is beta."""
    return math.sqrt(0.01 / math.log(n_rows / failure) * n_features / n_dims)
