"""Decodes centers from sums of reports: the tree of prefixes, its leaves, k-means on them, shrinkage by known noise.

All of it is post-processing of private reports.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.reports.parameters import ReportParameters, ReportVariant
from dapple_dp.transforms.core.statistics.lattice import SUM_UNITS
from dapple_dp.transforms.numerics.kmeans.starts.seeding import weighted_kmeans
from dapple_dp.transforms.numerics.reports import codebook, published_protocol
from dapple_dp.transforms.numerics.reports.encoder import COUNT_UNITS
from dapple_dp.transforms.numerics.reports.mechanism import codeword_moments
from dapple_dp.transforms.numerics.reports.sums import LIFTED, DecodedCenters, ReportSums, in_ball

BRANCH_FACTOR = 1.5
"""Factor of the reports of an average cluster from which on a node is split (Appendix D)."""
RESTARTS = 20
_SHARP_VIEW = 0.7
"""Share of the signal that the released second moments must explain before counts are taken from it."""
_LEAST_SHARE = 0.25
"""Least share of an average cluster's reports over which a mean is taken."""
LIFTED_NORM = float(np.hypot(1.0, COUNT_UNITS / SUM_UNITS))
COUNT_COORDINATE = COUNT_UNITS / SUM_UNITS / LIFTED_NORM


class Spectrum(NamedTuple):
    """Second moment of lifted points, estimated from the second moments of codewords.

    Attributes:
      directions: shape (n_dims, r): of the signal, orthonormal.
      powers: shape (r,): signal along each, as far as its direction is reliable.
      rest: signal per direction outside of them; all add up to 1, the squared norm of a lifted point.
    """

    directions: NDArray[np.float64]
    powers: NDArray[np.float64]
    rest: float

    @classmethod
    def of(cls, sums: ReportSums, parameters: ReportParameters) -> "Spectrum":
        """Returns the spectrum of the directions that exceed the noise, at most one per cluster.

        Source: Baik, Ben Arous, Peche (2005) and Paul (2007) for eigenvalues and eigenvectors of spiked covariances.
        """
        n_dims = len(sums.moments)
        width, noise = codebook.code_width(n_dims), n_dims / max(sums.n_reports, 1)
        excess = codeword_moments(parameters.choices[-1][0]).excess
        values, vectors = np.linalg.eigh(sums.moments / (width * max(sums.n_reports, 1)) - np.eye(n_dims))
        values, vectors = values[::-1][: parameters.n_clusters], vectors[:, ::-1][:, : parameters.n_clusters]
        centered = values - noise
        seen = centered > 2.0 * np.sqrt(noise)
        kept = int(seen.argmin()) if not seen.all() else len(seen)
        spikes = 0.5 * (centered[:kept] + np.sqrt(centered[:kept] ** 2 - 4.0 * noise))
        trusted = (1.0 - noise / spikes**2) / (1.0 + noise / spikes)
        powers = np.clip(spikes / max(excess, 1e-9), 0.0, 1.0) * np.maximum(trusted, 0.0)
        rest = max(0.0, 1.0 - float(powers.sum())) / max(n_dims - kept, 1)
        return cls(vectors[:, :kept], powers, rest)

    @property
    def sharp(self) -> bool:
        """True if the directions hold nearly all of the signal."""
        return float(self.powers.sum()) >= _SHARP_VIEW

    def filtered(
        self, sums: NDArray[np.float64], counts: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Shrinks sums of vectors in every direction by the known noise and signal (Wiener).

        Args:
          sums: shape (n, n_dims).
          counts: shape (n,): vectors in each.
          variances: shape (n,): noise of one coordinate.
        """
        squared, noise = counts[:, None] ** 2, np.maximum(variances[:, None], 1e-300)
        along = sums @ self.directions
        gains = squared * self.powers / (squared * self.powers + noise)
        gain = squared * self.rest / (squared * self.rest + noise)
        return (along * (gains - gain)) @ self.directions.T + gain * sums


class Leaf(NamedTuple):
    """A node of the tree: its level, and its code of that many bits."""

    level: int
    code: int


def decode_tree(sums: ReportSums, parameters: ReportParameters, seed: int) -> DecodedCenters:
    """Decodes centers of nested reports.

    Args:
      sums: of at least one report.
      parameters: of any variant with a tree.
      seed: public.
    """
    if parameters.variant is ReportVariant.PAPER:
        return _decode_paper(sums, parameters, seed)
    n_clusters, depth = parameters.n_clusters, parameters.depth
    typical = sums.n_reports / n_clusters
    spectrum = Spectrum.of(sums, parameters)
    masks, variance = subset_sums(sums, parameters)
    nodes = [node_sums(masks, level) for level in range(depth + 1)]
    # All nodes have about the noise variance of the deepest ones, at any level.
    even = parameters.even_subsets
    node_variance = variance * _union_variance([Leaf(depth, 0)], depth, even)
    counts = [_counts(level, spectrum, typical, node_variance) for level in nodes]
    leaves = find_leaves(counts, sums.n_reports, n_clusters)
    held = np.array([float(counts[leaf.level][leaf.code]) for leaf in leaves])
    weights = np.maximum(held, 0.0)
    vectors = np.stack([nodes[leaf.level][leaf.code] for leaf in leaves])
    points = features_of(vectors / np.maximum(weights, _LEAST_SHARE * typical)[:, None])
    labels = cluster_leaves(points, weights, n_clusters, seed)
    # Noise below zero counts here, too: a sum of vectors goes with the unbiased count of the same leaves.
    sizes = np.bincount(labels, held, n_clusters).astype(np.float64)
    safe = np.maximum(sizes, _LEAST_SHARE * typical)
    members = labels == np.arange(n_clusters)[:, None]
    variances = np.array([_union_variance([leaves[i] for i in np.flatnonzero(own)], depth, even) for own in members])
    shrunk = spectrum.filtered(members @ vectors, safe, variances * variance)
    return DecodedCenters(features_of(shrunk / safe[:, None]), sizes)


def _decode_paper(sums: ReportSums, parameters: ReportParameters, seed: int) -> DecodedCenters:
    """Decodes centers of the paper's reports: k-means of the leaves' own noisy means.

    Source: Chang et al. (2021), Algorithms 6 and 8, Appendix D.
    """
    n_clusters, depth = parameters.n_clusters, parameters.depth
    (_, histogram_epsilon), (_, vector_epsilon) = parameters.choices
    norm = published_protocol.sphere_norm(vector_epsilon, parameters.n_features) / published_protocol.DIRECTION_UNITS
    scales = np.concatenate([[1.0 / np.tanh(histogram_epsilon / 2.0)], np.full(parameters.n_features, norm)]) * depth
    nodes = [np.zeros((1, 1 + parameters.n_features))]
    for level in range(1, depth + 1):
        cells = sums.cells[1 << level : 2 << level].astype(np.float64)
        nodes.append(codebook.walsh_hadamard(np.ascontiguousarray(cells.T)).T * scales)
    leaves = find_leaves([level[:, 0] for level in nodes], sums.n_reports, n_clusters)
    held = np.stack([nodes[leaf.level][leaf.code] for leaf in leaves])
    weights = np.maximum(held[:, 0], 0.0)
    points = in_ball(held[:, 1:] / np.maximum(held[:, :1], 1.0))
    labels = cluster_leaves(points, weights, n_clusters, seed)
    sizes = np.bincount(labels, weights, n_clusters).astype(np.float64)
    members = (labels == np.arange(n_clusters)[:, None]) * np.maximum(weights, 1e-9)
    return DecodedCenters(members @ points / np.maximum(members.sum(axis=1), 1e-300)[:, None], sizes)


def subset_sums(sums: ReportSums, parameters: ReportParameters) -> tuple[NDArray[np.float64], float]:
    """Returns unbiased sums of sign times lifted unit vector over all reports, by mask; shape (2**depth, n_dims).

    Returns:
      The sums, and n_reports / mean**2: noise variance of a coordinate, apart from the share of its mask.
    """
    mean = codeword_moments(parameters.choices[-1][0]).mean
    scale = mean * np.sqrt(codebook.code_width(sums.cells.shape[1]))
    shares = codebook.subset_shares(parameters.depth, parameters.even_subsets)
    return sums.cells / (scale * shares)[:, None], sums.n_reports / mean**2


def node_sums(masks: NDArray[np.float64], level: int) -> NDArray[np.float64]:
    """Returns sums of vectors of every node of a level, shape (2**level, n_dims), from sums by mask."""
    return codebook.walsh_hadamard(np.ascontiguousarray(masks[: 1 << level].T)).T / (1 << level)


def find_leaves(counts: list[NDArray[np.float64]], n_reports: int, n_clusters: int) -> list[Leaf]:
    """Returns the leaves of the tree that splits large nodes, level by level from the root down.

    Args:
      counts: by level, shape (2**level,); that of the root is ignored.
      n_reports: of the root.
      n_clusters: >= 1.

    Source: Chang et al. (2021), Algorithm 1.
    """
    leaves, front, sizes = [], [Leaf(0, 0)], np.array([float(n_reports)])
    for level in range(len(counts) - 1):
        split = sizes >= BRANCH_FACTOR * (n_reports // n_clusters)
        leaves += [leaf for leaf, large in zip(front, split, strict=True) if not large]
        parents = [leaf.code for leaf, large in zip(front, split, strict=True) if large]
        front = [Leaf(level + 1, code | bit << level) for code in parents for bit in (0, 1)]
        sizes = np.array([counts[level + 1][leaf.code] for leaf in front])
    return leaves + front


def cluster_leaves(
    points: NDArray[np.float64], weights: NDArray[np.float64], n_clusters: int, seed: int
) -> NDArray[np.int64]:
    """Returns the cluster of every leaf, shape (n_leaves,); leaves without weight join the nearest center."""
    distinct, labels = np.unique(points, axis=0, return_inverse=True)
    if len(distinct) <= n_clusters:
        return labels.astype(np.int64)
    return weighted_kmeans(points, weights, n_clusters, RESTARTS, seed).labels


def features_of(lifted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns points in the unit ball from noisy means of lifted unit vectors, none of which can be longer than 1."""
    return in_ball(in_ball(lifted)[:, :-LIFTED] * LIFTED_NORM)


def _counts(nodes: NDArray[np.float64], spectrum: Spectrum, typical: float, variance: float) -> NDArray[np.float64]:
    """Returns the reports in every node of a level, by the coordinate that counts."""
    if spectrum.sharp:
        nodes = spectrum.filtered(nodes, np.full(len(nodes), typical), np.full(len(nodes), variance))
    return nodes[:, -1] / COUNT_COORDINATE


def _union_variance(leaves: list[Leaf], depth: int, even: bool = False) -> float:
    """Returns the noise variance of a sum over some leaves, in units of n_reports / mean**2.

    Noise of different masks is independent; a union of leaves is a signed sum of masks.
    """
    index = np.arange(1 << depth)
    indicator = np.zeros(1 << depth)
    for leaf in leaves:
        indicator += (index & ((1 << leaf.level) - 1)) == leaf.code
    coefficients = codebook.walsh_hadamard(indicator[None])[0] / (1 << depth)
    return float((coefficients**2 / codebook.subset_shares(depth, even)).sum())
