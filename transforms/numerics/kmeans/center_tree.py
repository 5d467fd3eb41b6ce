"""The tree of released centers: Ward linkage, with noisy sizes as weights. Post-processing, so it costs nothing.

If a clustering has more clusters than the data, the tree shows which of them belong together. Cutting it answers
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
"""Weight of a center whose noisy size is smaller."""


def ward_tree(centers: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Merges the two groups of centers whose union costs least, until one group is left.

    Args:
      centers: shape (k, d), finite, any unit.
      sizes: shape (k,), noisy; those below `LEAST_WEIGHT`, or not finite, count as that.

    Returns:
      Shape (k - 1, 4), a linkage matrix of SciPy, which can draw and cut it: two nodes (k + i is the group of
      merge i), height, and number of centers in the union. The height is the root of twice what the merge adds to the
      sum of squared distances. Heights ascend. If all sizes are 1, it equals SciPy's Ward linkage.

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
    """Adds up the values of all centers in the union that each merge makes.

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
    """Returns the weights of centers of these noisy sizes, shape (k,)."""
    return np.maximum(np.nan_to_num(sizes, nan=0.0, posinf=0.0), LEAST_WEIGHT)


def _costs(
    place: NDArray[np.float64], weight: float, places: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the increase of the sum of squared distances for merging one group with each other one, shape (k,)."""
    return np.asarray(weight * weights / (weight + weights) * ((places - place) ** 2).sum(axis=1))


def joined_below(centers: NDArray[np.float64], sizes: NDArray[np.float64], least: float) -> NDArray[np.int64]:
    """Joins centers to groups with noisy sizes of at least `least`, as far as possible.

    While there is a smaller group, the smallest one joins the one with which its union costs least. So a small cluster
    far away joins only its nearest neighbor, and not all centers that a cut of the tree would join.

    Args:
      centers: shape (k, d), finite, any unit.
      sizes: shape (k,), noisy, finite; a group's size is their sum.
      least: in units of `sizes`.

    Returns:
      Shape (k,): the lowest index in the group of each center.
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
    """Returns the heights below which noise alone explains the merge of two equal centers.

    Args:
      tree: shape (k - 1, 4), of `ward_tree`.
      sizes: shape (k,), from which the tree was made.
      variances: shape (k,): noise variance of a coordinate of each center; NaN if unknown.
      n_features: d.

    Returns:
      Shape (k - 1,): the height of two centers whose squared distance is two stddevs above its mean under noise
      alone; NaN if the noise is unknown.
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
      places: positions of its two groups among the leaves; integers for leaves.
      ends: start of each of the two: the cost of its own merge, 0 for a leaf.
      height: cost of this merge, as in `CenterTree.rises`.
      in_noise: True if noise alone may explain it.
    """

    places: tuple[float, float]
    ends: tuple[float, float]
    height: float
    in_noise: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CenterTree:
    """Merges of k released centers, and the heights that noise reaches.

    Attributes:
      merges: shape (k - 1, 4), of `ward_tree`.
      floors: shape (k - 1,): heights that noise alone reaches; NaN if the noise is unknown.
      weight: of all centers together.
    """

    merges: NDArray[np.float64]
    floors: NDArray[np.float64]
    weight: float

    @classmethod
    def of(
        cls, centers: NDArray[np.float64], sizes: NDArray[np.float64], variances: NDArray[np.float64] | None = None
    ) -> Self:
        """Creates the tree of centers.

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
        """Mask of the merges that noise alone may explain, shape (k - 1,)."""
        return self.merges[:, 2] <= np.nan_to_num(self.floors, nan=-1.0)

    @property
    def rises(self) -> NDArray[np.float64]:
        """Root of each merge's increase of the mean squared distance of rows, shape (k - 1,), unit of the centers."""
        return np.asarray(self.merges[:, 2] / np.sqrt(2.0 * self.weight))

    def cut(self, n_groups: int) -> NDArray[np.int64]:
        """Groups the centers into this many groups, from 1 to k: returns the lowest index in each one's group."""
        firsts, groups = np.arange(self.n_clusters + len(self.merges)), np.arange(self.n_clusters)
        for step, pair in enumerate(self.merges[: self.n_clusters - n_groups, :2].astype(int)):
            one, other = sorted(firsts[pair])
            groups[groups == other] = one
            firsts[self.n_clusters + step] = one
        return groups

    def gap(self, n_groups: int) -> float:
        """Returns the ratio of the costs of the merge after this many groups and the one before."""
        heights = self._heights()[self.n_clusters - n_groups - 1 :][:2]
        return float((heights[1] / max(heights[0], 1e-300)) ** 2)

    def between(self, n_groups: int) -> float:
        """Returns a value of `rises` that lies between these two merges."""
        one, other = self.rises[self.n_clusters - n_groups - 1 :][:2]
        floor = self._heights()[self.n_clusters - n_groups - 1] / (2.0 * self.weight) ** 0.5
        return float(np.sqrt(max(one, floor, 1e-3 * other) * other))

    def widest_gap(self, least: float = CLEAR) -> int | None:
        """Returns the number of groups, from 2 to k - 1, after which the merge costs rise most.

        Args:
          least: factor of their costs below which no gap counts.

        Returns:
          None if no gap counts, or every merge lies in the noise.
        """
        heights = self._heights()
        if len(heights) < 2 or self.in_noise.all():
            return None
        found = self.n_clusters - 1 - int((heights[1:] / np.maximum(heights[:-1], 1e-300)).argmax())
        return found if self.gap(found) >= least else None

    def _heights(self) -> NDArray[np.float64]:
        """Returns the heights, with those in the noise raised to what noise reaches."""
        return np.asarray(np.maximum.accumulate(np.fmax(self.merges[:, 2], self.floors)))

    def branches(self, n_leaves: int) -> tuple[list[int], list[Branch]]:
        """Returns the last merges as they are drawn, so that none crosses another.

        Args:
          n_leaves: groups of centers that are drawn as leaves, from 1 to k.

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
