"""The tree of released centers: Ward linkage, each center weighed by its noisy size. Post-processing, so it is free.

Where a clustering has more clusters than the data, the tree says which of them belong together. To cut it answers
"which k" without another look at any row.
"""

import dataclasses
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

CLEAR = 5.0
"""Factor between the costs of two merges below which no gap stands out. The widest gap of k-means centers of uniform
rows is smaller in 95% of draws at 2 features and 20 centers, and smaller yet at more features or fewer centers."""

LEAST_WEIGHT = 1.0
"""Of a center whose noisy size is smaller."""


def ward_tree(centers: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Merges of the two centers, or groups of centers, whose union costs least, until one group is left.

    Args:
      centers: shape (k, d), finite, any unit.
      sizes: shape (k,), noisy; those below `LEAST_WEIGHT`, or not finite, count as that.

    Returns:
      Shape (k - 1, 4), a linkage matrix of SciPy, which can draw and cut it: two nodes (k + i is the group of
      merge i), height, and number of centers in the union. The height is the root of twice what the merge adds to the
      sum of squared distances. Heights ascend. Where all sizes are 1, it is SciPy's own Ward linkage.

    Source: Ward (1963), "Hierarchical grouping to optimize an objective function".
    """
    n_clusters = len(centers)
    scale = max(float(np.abs(centers).max(initial=0.0)), 1e-300)
    places, weights = centers / scale, weights_of(sizes)
    nodes, merges = np.arange(n_clusters), np.zeros((max(n_clusters - 1, 0), 4))
    leaves = np.ones(n_clusters)
    costs = np.array([_costs(place, weight, places, weights) for place, weight in zip(places, weights, strict=True)])
    np.fill_diagonal(costs, np.inf)
    nearest = costs.argmin(axis=1) if n_clusters > 1 else np.zeros(n_clusters, dtype=np.int64)
    for step, merge in enumerate(merges):
        one = int(costs[np.arange(n_clusters), nearest].argmin())
        one, other = sorted((one, int(nearest[one])))
        height, total = np.sqrt(2.0 * costs[one, other]) * scale, weights[one] + weights[other]
        leaves[one] += leaves[other]
        merge[:] = (*sorted((nodes[one], nodes[other])), height, leaves[one])
        places[one] += (places[other] - places[one]) * (weights[other] / total)
        weights[one], nodes[one] = total, n_clusters + step
        gone = np.isinf(costs[one])
        gone[[one, other]] = True
        costs[other], costs[:, other] = np.inf, np.inf
        costs[one] = costs[:, one] = np.where(gone, np.inf, _costs(places[one], total, places, weights))
        closer = costs[one] < costs[np.arange(n_clusters), nearest]
        stale = np.isin(nearest, (one, other))
        nearest[closer] = one
        stale[one] = True
        nearest[stale] = costs[stale].argmin(axis=1)
    # A rounding may leave a height a hair below the one before.
    merges[:, 2] = np.maximum.accumulate(merges[:, 2])
    return merges


def union_sums(tree: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the values of all centers in the union that each merge makes.

    Args:
      tree: shape (k - 1, 4), of `ward_tree`.
      values: shape (k,), one for each center.

    Returns:
      Shape (k - 1,).
    """
    sums = np.concatenate([np.asarray(values, dtype=np.float64), np.zeros(len(tree))])
    for step, (one, other) in enumerate(tree[:, :2].astype(int)):
        sums[len(values) + step] = sums[one] + sums[other]
    return sums[len(values) :]


def weights_of(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """What centers of these noisy sizes weigh, shape (k,)."""
    return np.maximum(np.nan_to_num(sizes, nan=0.0, posinf=0.0), LEAST_WEIGHT)


def _costs(
    place: NDArray[np.float64], weight: float, places: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What merging one group with each other one adds to the sum of squared distances, shape (k,)."""
    return np.asarray(weight * weights / (weight + weights) * ((places - place) ** 2).sum(axis=1))


def joined_below(centers: NDArray[np.float64], sizes: NDArray[np.float64], least: float) -> NDArray[np.int64]:
    """Groups of centers with noisy sizes of at least `least`, as far as all of them together have that.

    While there is a smaller group, the smallest one joins the one with which its union costs least. So a small cluster
    that lies far off joins its nearest relative alone, and not all that a cut of the tree would leave as one with it.

    Args:
      centers: shape (k, d), finite, any unit.
      sizes: shape (k,), noisy, finite; that of a group is the sum of its own.
      least: in units of `sizes`.

    Returns:
      Shape (k,): the lowest index of the centers that are one with each.
    """
    groups, counts, weights = np.arange(len(centers)), sizes.astype(float), weights_of(sizes)
    places = centers / max(float(np.abs(centers).max(initial=0.0)), 1e-300)
    while (left := np.unique(groups)).size > 1 and counts[left].min() < least:
        one = left[counts[left].argmin()]
        others = left[left != one]
        other = others[_costs(places[one], weights[one], places[others], weights[others]).argmin()]
        first, gone = sorted((one, other))
        total = weights[first] + weights[gone]
        places[first] += (places[gone] - places[first]) * (weights[gone] / total)
        weights[first], counts[first] = total, counts[first] + counts[gone]
        groups[groups == gone] = first
    return groups


def noise_heights(
    tree: NDArray[np.float64], sizes: NDArray[np.float64], variances: NDArray[np.float64], n_features: int
) -> NDArray[np.float64]:
    """Below which height a merge is what noise alone makes of two centers that are the same.

    Args:
      tree: shape (k - 1, 4), of `ward_tree`.
      sizes: shape (k,), those it was made of.
      variances: shape (k,): noise variance of a coordinate of each center; NaN where that is not known.
      n_features: d.

    Returns:
      Shape (k - 1,): the height of two centers whose squared distance is two stddevs above its mean under noise
      alone; NaN where the noise is not known.
    """
    n_clusters = len(sizes)
    weights = weights_of(sizes)
    weights = np.concatenate([weights, union_sums(tree, weights)])
    noise = np.concatenate([variances, np.zeros(len(tree))])
    heights = np.zeros(len(tree))
    for step, pair in enumerate(tree[:, :2].astype(int)):
        total = weights[pair].sum()
        noise[n_clusters + step] = (weights[pair] ** 2 * noise[pair]).sum() / total**2
        squared = n_features * noise[pair].sum() * (1.0 + 2.0 * np.sqrt(2.0 / n_features))
        heights[step] = np.sqrt(2.0 * weights[pair].prod() / total * squared)
    return heights


class Branch(NamedTuple):
    """A merge as it is drawn.

    Attributes:
      places: of its two groups among the leaves, numbers that are whole for leaves.
      ends: where each of the two begins: what its own merge cost, 0 for a leaf.
      height: what this merge costs, as `CenterTree.rises`.
      in_noise: whether noise alone may explain it.
    """

    places: tuple[float, float]
    ends: tuple[float, float]
    height: float
    in_noise: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CenterTree:
    """Merges of k released centers, and what noise says of them.

    Attributes:
      merges: shape (k - 1, 4), of `ward_tree`.
      floors: shape (k - 1,): heights that noise alone reaches; NaN where the noise is not known.
      weight: of all centers together.
    """

    merges: NDArray[np.float64]
    floors: NDArray[np.float64]
    weight: float

    @classmethod
    def of(
        cls, centers: NDArray[np.float64], sizes: NDArray[np.float64], variances: NDArray[np.float64] | None = None
    ) -> Self:
        """The tree of centers.

        Args:
          centers: shape (k, d), finite, any unit.
          sizes: shape (k,), noisy.
          variances: shape (k,): noise variance of a coordinate of each center, in that unit squared, NaN where it is
            not known; None for no center.
        """
        merges = ward_tree(centers, sizes)
        known = np.full(len(centers), np.nan) if variances is None else variances
        floors, weight = noise_heights(merges, sizes, known, centers.shape[1]), float(weights_of(sizes).sum())
        return cls(merges=merges, floors=floors, weight=weight)

    @property
    def n_clusters(self) -> int:
        """Number of centers."""
        return len(self.merges) + 1

    @property
    def in_noise(self) -> NDArray[np.bool_]:
        """Which merges noise alone may explain, shape (k - 1,)."""
        return self.merges[:, 2] <= np.nan_to_num(self.floors, nan=-1.0)

    @property
    def rises(self) -> NDArray[np.float64]:
        """Root of what each merge adds to the mean squared distance of rows, shape (k - 1,), unit of the centers."""
        return np.asarray(self.merges[:, 2] / np.sqrt(2.0 * self.weight))

    def cut(self, n_groups: int) -> NDArray[np.int64]:
        """Which centers belong together in this many groups, from 1 to k: the lowest index of each one's group."""
        firsts, groups = np.arange(self.n_clusters + len(self.merges)), np.arange(self.n_clusters)
        for step, pair in enumerate(self.merges[: self.n_clusters - n_groups, :2].astype(int)):
            one, other = sorted(firsts[pair])
            groups[groups == other] = one
            firsts[self.n_clusters + step] = one
        return groups

    def gap(self, n_groups: int) -> float:
        """By what the merge after this many groups costs more than the one before: the ratio of their costs."""
        heights = self._heights()[self.n_clusters - n_groups - 1 :][:2]
        return float((heights[1] / max(heights[0], 1e-300)) ** 2)

    def between(self, n_groups: int) -> float:
        """A place among `rises` that lies between these two merges."""
        one, other = self.rises[self.n_clusters - n_groups - 1 :][:2]
        floor = self._heights()[self.n_clusters - n_groups - 1] / (2.0 * self.weight) ** 0.5
        return float(np.sqrt(max(one, floor, 1e-3 * other) * other))

    def widest_gap(self, least: float = CLEAR) -> int | None:
        """The number of groups, from 2 to k - 1, after which the next merge costs most beside the one before.

        Args:
          least: factor of their costs below which no gap counts.

        Returns:
          None where no gap counts, or every merge lies in the noise.
        """
        heights = self._heights()
        if len(heights) < 2 or self.in_noise.all():
            return None
        found = self.n_clusters - 1 - int((heights[1:] / np.maximum(heights[:-1], 1e-300)).argmax())
        return found if self.gap(found) >= least else None

    def _heights(self) -> NDArray[np.float64]:
        """Heights, where those in the noise count as much as noise reaches."""
        return np.asarray(np.maximum.accumulate(np.fmax(self.merges[:, 2], self.floors)))

    def branches(self, n_leaves: int) -> tuple[list[int], list[Branch]]:
        """The last merges as they are drawn, so that none crosses another.

        Args:
          n_leaves: groups of centers that are not drawn any further, from 1 to k.

        Returns:
          The lowest index of the centers of each leaf, from the top, and the merges, lowest first.
        """
        n_clusters, first = self.n_clusters, self.n_clusters - n_leaves
        below = {n_clusters + step: pair for step, pair in enumerate(self.merges[:, :2].astype(int).tolist())}
        lowest = list(range(n_clusters))
        for pair in below.values():
            lowest.append(min(lowest[pair[0]], lowest[pair[1]]))
        order, waiting = [], [n_clusters + len(self.merges) - 1]
        while waiting:
            node = waiting.pop()
            if node >= n_clusters + first:
                waiting += sorted(below[node], key=lambda each: -lowest[each])
            else:
                order.append(node)
        places, ends, found = {node: float(index) for index, node in enumerate(order)}, dict.fromkeys(order, 0.0), []
        for step in range(first, len(self.merges)):
            (one, other), node = below[n_clusters + step], n_clusters + step
            found.append(
                Branch(
                    (places[one], places[other]), (ends[one], ends[other]), self.rises[step], bool(self.in_noise[step])
                )
            )
            places[node], ends[node] = (places[one] + places[other]) / 2.0, self.rises[step]
        return [lowest[node] for node in order], found
