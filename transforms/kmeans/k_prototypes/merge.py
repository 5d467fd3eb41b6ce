"""From many noisy prototypes to k: weighted k-prototypes of their centers and histograms, all of it public."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.kmeans.k_prototypes.columns import Columns
from dapple_dp.transforms.numerics.one_thread import one_thread

RESTARTS = 30
"""Runs of which the cheapest is taken."""
_STEPS = 30


class Parts(NamedTuple):
    """Clusters that are merged, at least one.

    Attributes:
      weights: shape (n,), > 0: rows.
      numbers: shape (n, d): means.
      shares: shape (n, n_cells): of the codes of each column among the rows of a cluster, >= 0.
    """

    weights: NDArray[np.float64]
    numbers: NDArray[np.float64]
    shares: NDArray[np.float64]


class Merged(NamedTuple):
    """k prototypes: `cost`, `numbers` (k, d) and `modes` (k, m)."""

    cost: float
    numbers: NDArray[np.float64]
    modes: NDArray[np.int64]


def merged(parts: Parts, columns: Columns, n_clusters: int, rng: np.random.Generator) -> Merged:
    """The cheapest of some runs of weighted k-prototypes; `rng` is public."""
    with one_thread():
        runs = [_run(parts, columns, n_clusters, rng) for _ in range(RESTARTS)]
    return min(runs, key=lambda run: run.cost)


def costs(
    parts: Parts, columns: Columns, numbers: NDArray[np.float64], modes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Squared distances of the rows of each part to each prototype, shape (n, k), but for what is the same for all."""
    squared = (parts.numbers**2).sum(axis=1)[:, None] + (numbers**2).sum(axis=1) - 2.0 * parts.numbers @ numbers.T
    for (_, size), mode, shares in zip(columns.codes, modes.T, columns.by_column(parts.shares), strict=True):
        own, others = shares[:, mode], shares[:, [size]]
        # A code that is not listed is half as far from those that are.
        far = np.where(mode == size, 0.5 * (1.0 - own), 1.0 - own - 0.5 * others)
        squared += 2.0 * columns.length**2 * far
    return parts.weights[:, None] * np.maximum(squared, 0.0)


def _run(parts: Parts, columns: Columns, n_clusters: int, rng: np.random.Generator) -> Merged:
    """One run, from prototypes that are drawn like those of k-means++."""
    n_parts, own = len(parts.weights), columns.modes(parts.shares)
    odds, drawn = parts.weights, list[int]()
    for _ in range(n_clusters):
        total = float(odds.sum())
        drawn.append(int(rng.choice(n_parts, p=odds / total) if total > 0.0 else rng.integers(n_parts)))
        odds = costs(parts, columns, parts.numbers[drawn], own[drawn]).min(axis=1)
        odds[drawn] = 0.0
    found = Merged(np.inf, parts.numbers[drawn], own[drawn])
    for _ in range(_STEPS):
        to_each = costs(parts, columns, found.numbers, found.modes)
        cost = float(to_each.min(axis=1).sum())
        if not cost < found.cost:
            break
        belongs = (to_each.argmin(axis=1) == np.arange(n_clusters)[:, None]) * parts.weights
        there, numbers, modes = belongs.any(axis=1), found.numbers.copy(), found.modes.copy()
        numbers[there] = belongs[there] @ parts.numbers / belongs[there].sum(axis=1, keepdims=True)
        modes[there] = columns.modes(belongs[there] @ parts.shares)
        found = Merged(cost, numbers, modes)
    return found
