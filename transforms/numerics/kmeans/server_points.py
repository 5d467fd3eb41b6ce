"""Optional preparations of the server points by released histograms: thinning and diameter reduction."""

import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Components, Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.numerics.kmeans.starts import seeding

NEIGHBORS = 10
"""Points over which weights are averaged in full space, at most; half of those of an average cluster, at most."""
PLENTY = 30.0
"""Noise stddevs of a bin in the mean cluster from which on weak bins are distinguished from empty ones."""
_EMPTY_SHARE = 0.01
"""Share of the rows that empty bins may add."""
SPACING = 100.0
"""Distance of moved components, in units of their largest diameter."""


def thinning_rounds(n_points: int, epsilon: float, w_min: float) -> int:
    """Histogram rounds of Algorithm 4: 10 log(4 log|Q| / (epsilon w_min)), at least one.

    Example:
      >>> thinning_rounds(300, 1.0, 0.1)
      55
    """
    return max(1, math.ceil(10.0 * math.log(max(4.0 * math.log(n_points) / (epsilon * w_min), 1.0))))


def thin(
    active: NDArray[np.bool_],
    frozen: NDArray[np.bool_],
    weights: NDArray[np.float64],
    threshold: float,
    seed: int,
    step: int,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """One round of SimplifyServerData: freezes heavy points and keeps each of the light ones with probability 1/2.

    Args:
      active: shape (q,): points that took part in the histogram, frozen ones included.
      frozen: shape (q,): points frozen in earlier rounds.
      weights: shape (q,): noisy weights.
      threshold: weight above which a point is frozen.
      seed: public.
      step: index of the round.

    Returns:
      The next active and frozen masks, each of shape (q,).

    Source: Scott et al. (2025), Algorithm 4.
    """
    frozen = frozen | (active & (weights > threshold))
    return frozen | seeding.halve(active & ~frozen, seed, step), frozen


def significant_weights(noisy: NDArray[np.float64], stddev: float) -> NDArray[np.float64]:
    """Noisy weights with those under one noise stddev set to zero; shape (q,)."""
    return np.where(noisy > stddev, noisy, 0.0)


def weights_beyond_noise(
    noisy: NDArray[np.float64], stddev: float, n_rows: float, n_clusters: int
) -> NDArray[np.float64]:
    """Noisy weights of bins with those that noise alone may explain set to zero; shape (q,).

    Where the mean cluster has at least `PLENTY` noise stddevs of a bin, the threshold is as high as it must be so that
    empty bins add at most 1% of the rows, and at most 3.5 stddevs or 15% of that mean cluster; else one stddev.

    Args:
      noisy: shape (q,), released.
      stddev: noise stddev of each.
      n_rows: > 0, public or released.
      n_clusters: k.
    """
    known = n_rows / n_clusters / stddev if stddev > 0.0 else math.inf
    if known < PLENTY:
        return significant_weights(noisy, stddev)
    # An empty bin adds stddev * density(t) above t stddevs, in the mean.
    density = _EMPTY_SHARE * n_rows / (len(noisy) * max(stddev, 1e-300)) * math.sqrt(2.0 * math.pi)
    threshold = math.sqrt(max(-2.0 * math.log(density), 0.0)) if density > 0.0 else math.inf
    return np.where(noisy > min(max(threshold, 1.0), 3.5, 0.15 * known) * stddev, noisy, 0.0)


def printed_weights(noisy: NDArray[np.float64], _stddev: float) -> NDArray[np.float64]:
    """Noisy weights, those below zero set to zero, since k-means takes none; shape (q,)."""
    return np.maximum(noisy, 0.0)


def shrunken_weights(noisy: NDArray[np.float64], stddev: float) -> NDArray[np.float64]:
    """Noisy weights blended with equal weights by the known noise, and never negative.

    Args:
      noisy: shape (q,), released weights.
      stddev: noise stddev of each.

    Returns:
      shape (q,): mean + t (noisy - mean) with t = signal / (signal + noise), the signal being what the spread
      of the weights shows beyond the noise. With vanishing noise t goes to 1; with growing noise the private
      weights fade out into the public points as they are.

    Source: Efron and Morris (1973), empirical Bayes estimation.
    """
    mean = max(float(noisy.mean()), stddev * 1e-6, 1e-12)
    signal = max(float(noisy.var()) - stddev**2, 0.0)
    trust = signal / (signal + stddev**2) if stddev > 0 else 1.0
    return np.maximum(mean + trust * (noisy - mean), 0.0)


def smoothed_weights(
    noisy: NDArray[np.float64], stddev: float, points: NDArray[np.float64], n_neighbors: int
) -> NDArray[np.float64]:
    """`shrunken_weights` of the means over each point's neighbors: weights that differ little from one to the next.

    A mean of m bins has the m-th part of their noise variance, and rows lie near several points rather than at one.

    Args:
      noisy: shape (q,), released weights.
      stddev: noise stddev of each.
      points: shape (q, d), whose nearest rows each bin counts.
      n_neighbors: points in a mean, the point itself included, from 2 to q.

    Returns:
      shape (q,), never negative.
    """
    from sklearn.neighbors import NearestNeighbors

    # scikit-learn's distances lose the digits of rows far from zero.
    centered = points - points.mean(axis=0)
    near = NearestNeighbors(n_neighbors=n_neighbors - 1, algorithm="brute").fit(centered).kneighbors()[1]
    own = np.arange(len(points))[:, None]
    means = noisy[np.hstack([own, near])].mean(axis=1)
    return shrunken_weights(means, stddev / math.sqrt(n_neighbors))


def at_least(active: NDArray[np.bool_], weights: NDArray[np.float64], n_points: int) -> NDArray[np.bool_]:
    """`active`, topped up with the heaviest other points to `n_points` where it holds fewer."""
    missing = n_points - int(active.sum())
    if missing <= 0:
        return active
    order = np.argsort(-np.where(active, -np.inf, weights), kind="stable")
    filled = active.copy()
    filled[order[:missing]] = True
    return filled


def massive_points(
    points: NDArray[np.float64],
    weights: NDArray[np.float64],
    distance: float,
    n_rows: float,
    w_min: float,
    epsilon: float,
) -> NDArray[np.bool_]:
    """Points whose ball of radius `distance` holds many server points or much noisy mass.

    Args:
      points: shape (q, d), feature units.
      weights: shape (q,), noisy rows per point.
      distance: D of Lemma 16, feature units.
      n_rows: public or noisy number of rows.
      w_min: smallest share of a cluster.
      epsilon: of the histogram round.

    Returns:
      shape (q,). All points if no ball is heavy enough.

    Source: Scott et al. (2025), Lemma 16.
    """
    # Few jobs need these libraries, and their import keeps the first round waiting.
    from scipy.spatial.distance import cdist

    near = cdist(points, points) <= distance
    crowded = near.sum(axis=1) >= epsilon * n_rows * w_min / (200.0 * math.log(max(len(points), 2)))
    kept = crowded | (near @ weights >= n_rows * w_min / 3.0)
    return kept if kept.any() else np.ones(len(points), dtype=np.bool_)


def reduce_diameter(
    points: NDArray[np.float64], kept: NDArray[np.bool_], distance: float, frame: Frame, *, centered: bool
) -> Frame:
    """Moves the connected components of the kept points close to each other.

    Args:
      points: shape (q, d), feature units (not centered).
      kept: shape (q,): points with enough mass.
      distance: D of Lemma 16: points nearer than this are connected.
      frame: the present frame.
      centered: whether the new frame is centered on the moved points.

    Returns:
      A frame with `components` if that makes the clipping norm smaller, else `frame`.

    Source: Scott et al. (2025), Lemma 16: component i is translated so that its representative lies at
    (100 D' i, 0, ..., 0), D' the largest diameter of a component.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial.distance import cdist

    anchors = points[kept]
    distances = cdist(anchors, anchors)
    n_components, labels = connected_components(csr_array(distances < distance), directed=False)
    if n_components < 2:
        return frame
    diameter = float(np.where(labels[:, None] == labels[None, :], distances, 0.0).max())
    representative = anchors[np.unique(labels, return_index=True)[1]]
    targets = np.zeros_like(representative)
    targets[:, 0] = SPACING * max(diameter, distance / SPACING) * np.arange(n_components)
    shifts = (representative - targets)[labels]
    moved = anchors - shifts
    center = moved.mean(axis=0) if centered else np.zeros(points.shape[1])
    norm = float(np.linalg.norm(moved - center, axis=1).max())
    if not norm < frame.lattice.clipping_norm:
        return frame
    integers = lattice.quantize(anchors, frame.lattice, lattice.SUM_BITS)
    return Frame(Lattice(center, norm), Components(frame.lattice, integers, shifts))


def restore(frame: Frame, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Moves centers, feature units, shape (n, n_features), back to where the data were.

    A center belongs to the component of the nearest moved anchor.
    """
    if frame.components is None:
        return centers
    anchors = frame.components.anchors * frame.components.lattice.unit(lattice.SUM_BITS)
    moved = anchors + frame.components.lattice.center - frame.components.shifts
    squared = ((centers[:, None, :] - moved[None, :, :]) ** 2).sum(axis=2)
    return centers + frame.components.shifts[squared.argmin(axis=1)]
