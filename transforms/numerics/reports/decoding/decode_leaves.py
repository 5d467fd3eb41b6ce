"""Decodes centers if clusters stand out as single leaves, from counts, first and second moments at once.

Reports of variant `leaves` spread evenly over all subsets of levels, so all leaves of the complete tree have the same
noise, a third of that in variant `nested` at six levels. A center is where the leaves of its cluster and the second
moments of all codewords agree best: the sums of leaves assign directions to clusters, and the second moments, which
need no tree, hold about a third of the information on the directions. All of it is post-processing of private
reports.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.reports.parameters import ReportParameters, ReportVariant
from dapple_dp.transforms.numerics.kmeans.starts.seeding import weighted_kmeans
from dapple_dp.transforms.numerics.reports import codebook
from dapple_dp.transforms.numerics.reports.decoding import decode_tree
from dapple_dp.transforms.numerics.reports.decoding.decode_tree import RESTARTS, features_of
from dapple_dp.transforms.numerics.reports.mechanism import codeword_moments
from dapple_dp.transforms.numerics.reports.sums import DecodedCenters, ReportSums

_STEPS = 30
_START_STDDEVS = 9.0
"""Stddevs above that of noise at which a leaf's energy along the principal directions makes it a start point."""
_LEAF_STDDEVS = 5.0
"""Noise stddevs along a center that a leaf's sum must reach to belong to its cluster."""
_LEAST_SHARE = 0.05
"""Smallest weight of a cluster, as a share of an average one."""
_ENOUGH = 0.5
"""Share of all reports that must be in such leaves; with fewer, clusters are spread, and the tree does better."""

_DOUBT = 2.0
"""Noise that stands out as leaves makes more reports be found than there are; centers shrink by twice its square."""


class LeafView(NamedTuple):
    """Leaves and directions as reports show them.

    Attributes:
      sums: estimated sums of lifted unit vectors by leaf, shape (2**depth, n_dims).
      variance: of the noise of a coordinate of these.
      second: estimated mean of v v^T over all lifted unit vectors v, shape (n_dims, n_dims).
      precision: one over the noise variance of an entry of `second` off the diagonal.
      n_reports: number of reports.
    """

    sums: NDArray[np.float64]
    variance: float
    second: NDArray[np.float64]
    precision: float
    n_reports: int

    @classmethod
    def of(cls, sums: ReportSums, parameters: ReportParameters) -> "LeafView":
        """Creates the view of a collection of variant `leaves` with at least one report."""
        masks, variance = decode_tree.subset_sums(sums, parameters)
        moments = codeword_moments(parameters.choices[-1][0])
        n_dims, n_reports = len(sums.moments), max(sums.n_reports, 1)
        scale = codebook.code_width(n_dims) * n_reports
        excess = max(moments.excess, 1e-9)
        second = (sums.moments / scale - np.eye(n_dims)) / excess
        leaves = decode_tree.node_sums(masks, parameters.depth)
        return cls(leaves, variance, second, n_reports * excess**2, n_reports)


class _Fit(NamedTuple):
    """Unit directions (n_clusters, n_dims), sizes in reports, and precision of a coordinate of each direction."""

    directions: NDArray[np.float64]
    sizes: NDArray[np.float64]
    precisions: NDArray[np.float64]


def decode(sums: ReportSums, parameters: ReportParameters, seed: int) -> DecodedCenters:
    """Decodes centers of reports of any variant with a tree.

    Args:
      sums: of at least one report.
      parameters: of depth 1 or more.
      seed: public.
    """
    if parameters.variant is ReportVariant.LEAVES:
        view = LeafView.of(sums, parameters)
        fit = _fitted(view, _start(view, parameters.n_clusters, seed))
        if fit.sizes.sum() >= _ENOUGH * view.n_reports:
            return _centers(view, fit)
    return decode_tree.decode_tree(sums, parameters, seed)


def _centers(view: LeafView, fit: _Fit) -> DecodedCenters:
    """Returns centers, shortened to the part of unit vectors that noise leaves on average."""
    kept = 1.0 / np.sqrt(1.0 + fit.directions.shape[1] / fit.precisions)
    found = float(fit.sizes.sum()) / view.n_reports
    doubt = max(0.0, 1.0 - _DOUBT * max(0.0, found - 1.0) ** 2)
    return DecodedCenters(features_of(fit.directions * (doubt * kept)[:, None]), fit.sizes / found)


def _start(view: LeafView, n_clusters: int, seed: int) -> NDArray[np.float64]:
    """Returns first directions, shape (n_clusters, n_dims): k-means of leaves that stand out along principal ones."""
    principal = np.linalg.eigh(view.second)[1][:, ::-1][:, :n_clusters]
    along = view.sums @ principal
    n_kept = principal.shape[1]
    energies = (along**2).sum(axis=1) / view.variance
    chosen = np.flatnonzero(energies > n_kept + _START_STDDEVS * np.sqrt(2.0 * n_kept))
    if len(chosen) <= n_clusters:
        chosen = np.argsort(-energies, kind="stable")[:n_clusters]
        labels = np.arange(len(chosen))
    else:
        weights = np.sqrt(np.maximum(energies[chosen] - n_kept, 0.0))
        labels = weighted_kmeans(_units(along[chosen]), weights, n_clusters, RESTARTS, seed).labels
    members = labels == np.arange(n_clusters)[:, None]
    return _units(members @ along[chosen] @ principal.T)


def _fitted(view: LeafView, directions: NDArray[np.float64]) -> _Fit:
    """Moves directions to the likeliest first and second moments, alternating with shares of leaves."""
    n_clusters = len(directions)
    sizes: NDArray[np.float64] = np.zeros(n_clusters)
    precisions: NDArray[np.float64] = np.zeros(n_clusters)
    for _ in range(_STEPS):
        owners, counts = _owned(view, directions)
        sizes = np.bincount(owners, counts, n_clusters).astype(np.float64)
        bounded = np.maximum(sizes, _LEAST_SHARE * view.n_reports / n_clusters)
        shares = bounded / bounded.sum()
        counts = counts * min(1.0, view.n_reports / bounded.sum())
        members = (owners == np.arange(n_clusters)[:, None]) * counts
        first = members @ view.sums / view.variance
        unexplained = view.second - (directions.T * shares) @ directions
        second = shares[:, None] * (directions @ unexplained + shares[:, None] * directions)
        directions = _units(directions + _units(first + view.precision * second))
        precisions = (members**2).sum(axis=1) / view.variance + view.precision * shares**2
    return _Fit(directions, sizes, precisions)


def _owned(view: LeafView, directions: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns the cluster of every leaf, and its significant reports; every cluster has at least one leaf."""
    along = view.sums @ directions.T
    owners = along.argmax(axis=1)
    best = along.max(axis=1)
    counts = np.where(best > _LEAF_STDDEVS * np.sqrt(view.variance), best, 0.0)
    own = along.argmax(axis=0)
    bare = np.bincount(owners, counts, len(directions)) == 0.0
    counts[own[bare]] = np.maximum(best[own[bare]], 0.0)
    return owners, counts


def _units(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300))
