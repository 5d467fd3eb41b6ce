"""Decodes centers from reports without levels: principal directions, then a mixture of codewords along them.

A first pass over the reports sums their second moments, whose directions span the centers; a second one keeps every
report's coordinates along these few directions, up to `MOST_POINTS`; expectation maximization on them finds the
clusters; a third pass sums codewords by cluster in all dimensions. All of it is post-processing of private
reports.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.reports.parameters import ReportParameters
from dapple_dp.transforms.numerics.kmeans.starts.seeding import best_starts
from dapple_dp.transforms.numerics.reports import codebook
from dapple_dp.transforms.numerics.reports.decoding.decode_tree import LIFTED_NORM, Spectrum
from dapple_dp.transforms.numerics.reports.encoder import Reports
from dapple_dp.transforms.numerics.reports.mechanism import codeword_moments, log_score_ratios
from dapple_dp.transforms.numerics.reports.sums import LIFTED, DecodedCenters, ReportSums, codewords, in_ball
from dapple_dp.transforms.numerics.tables.partition import mix

MOST_POINTS = 1 << 20
"""Most reports whose coordinates are kept; more would hardly improve centers, and memory stays flat."""
_START_POINTS = 20_000
_SAMPLE_POINTS = 200_000
_STARTS = 4
_RESTARTS = 20
_START_STEPS = 15
_SAMPLE_STEPS = 20
_FULL_STEPS = 3
SHARE_UNITS = 1 << 16


class CodewordMixture(NamedTuple):
    """Mixture of clusters on the sphere, seen through reports.

    Attributes:
      means: shape (n_clusters, r): lifted centers along the principal directions, of norm at most 1.
      weights: shape (n_clusters,), adding up to 1.
      log_likelihood: of the points, per point.
    """

    means: NDArray[np.float64]
    weights: NDArray[np.float64]
    log_likelihood: float


def principal_directions(sums: ReportSums, parameters: ReportParameters) -> NDArray[np.float64]:
    """Returns directions that hold the signal, shape (n_dims, n_clusters), orthonormal."""
    n_dims = len(sums.moments)
    vectors = np.linalg.eigh(sums.moments / max(sums.n_reports, 1))[1][:, ::-1]
    kept = max(len(Spectrum.of(sums, parameters).powers), min(parameters.n_clusters, n_dims))
    return vectors[:, :kept]


def scrambled(nonces: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns nonces in another order, so that a sample of reports isn't one of neighbors."""
    return mix(nonces)


def project(reports: Reports, parameters: ReportParameters, directions: NDArray[np.float64]) -> NDArray[np.float32]:
    """Projects codewords of variance 1 onto directions, shape (n, r)."""
    scale = np.sqrt(codebook.code_width(len(directions)))
    parts = [np.zeros((0, directions.shape[1]), dtype=np.float32)]
    for block in reports.blocks():
        parts.append((codewords(block, parameters) @ directions / scale).astype(np.float32))
    return np.concatenate(parts)


class SoftSums(NamedTuple):
    """Codewords summed by cluster, each shared by its likelihood for each; integers.

    Attributes:
      totals: int64, shape (n_clusters,): shares of 2**16 units.
      sums: int64, shape (n_clusters, n_dims): shares times codewords.
    """

    totals: NDArray[np.int64]
    sums: NDArray[np.int64]

    @classmethod
    def of(
        cls, reports: Reports, parameters: ReportParameters, directions: NDArray[np.float64], mixture: CodewordMixture
    ) -> "SoftSums":
        """Adds up some reports."""
        n_dims = len(directions)
        total = cls(np.zeros(parameters.n_clusters, np.int64), np.zeros((parameters.n_clusters, n_dims), np.int64))
        scale = np.sqrt(codebook.code_width(n_dims))
        for block in reports.blocks():
            vectors = codewords(block, parameters)
            shares = np.rint(_shares(vectors @ directions / scale, mixture, parameters)[0] * SHARE_UNITS)
            total = total.merge(cls(shares.sum(axis=0).astype(np.int64), (shares.T @ vectors).astype(np.int64)))
        return total

    def merge(self, other: "SoftSums") -> "SoftSums":
        """Returns the sums of both, in new arrays."""
        return SoftSums(self.totals + other.totals, self.sums + other.sums)

    def centers(self, parameters: ReportParameters, n_reports: int) -> DecodedCenters:
        """Returns centers in all dimensions."""
        mean = codeword_moments(parameters.choices[-1][0]).mean * np.sqrt(codebook.code_width(self.sums.shape[1]))
        lifted = self.sums / (mean * np.maximum(self.totals, 1)[:, None])
        shares = self.totals / max(int(self.totals.sum()), 1)
        return DecodedCenters(in_ball(lifted[:, :-LIFTED] * LIFTED_NORM), shares * n_reports)


def fit_mixture(points: NDArray[np.float32], parameters: ReportParameters, seed: int) -> CodewordMixture:
    """Returns the likeliest of several runs of expectation maximization on a sample, finished on all points.

    Args:
      points: shape (n, r), of `project`; in any fixed order that is independent of the data.
      parameters: of a collection of depth 0.
      seed: public.
    """
    n_clusters = parameters.n_clusters
    start = points[:_START_POINTS].astype(np.float64)
    if len(start) < n_clusters:
        missing = n_clusters - len(start), points.shape[1]
        start = np.vstack([start, np.random.default_rng([seed, 4]).normal(size=missing)])
    runs = []
    for means in best_starts(start, n_clusters, _RESTARTS, _STARTS, seed):
        first = CodewordMixture(means, np.full(n_clusters, 1.0 / n_clusters), -np.inf)
        runs.append(_maximized(points[:_START_POINTS], first, parameters, _START_STEPS))
    best = max(runs, key=lambda run: run.log_likelihood)
    best = _maximized(points[:_SAMPLE_POINTS], best, parameters, _SAMPLE_STEPS)
    return _maximized(points, best, parameters, _FULL_STEPS) if len(points) > _SAMPLE_POINTS else best


def _maximized(
    points: NDArray[np.float32], mixture: CodewordMixture, parameters: ReportParameters, steps: int
) -> CodewordMixture:
    """Runs some steps of expectation maximization."""
    mean = codeword_moments(parameters.choices[-1][0]).mean
    for _ in range(steps):
        totals, sums, log_likelihood = np.zeros(len(mixture.means)), np.zeros_like(mixture.means), 0.0
        for start in range(0, len(points), _START_POINTS):
            block = points[start : start + _START_POINTS].astype(np.float64)
            shares, likelihoods = _shares(block, mixture, parameters)
            totals, sums = totals + shares.sum(axis=0), sums + shares.T @ block
            log_likelihood += float(likelihoods.sum())
        means = in_ball(sums / (mean * np.maximum(totals, 1e-9)[:, None]))
        weights = totals / max(float(totals.sum()), 1e-300)
        mixture = CodewordMixture(means, weights, log_likelihood / max(len(points), 1))
    return mixture


def _shares(
    points: NDArray[np.float64], mixture: CodewordMixture, parameters: ReportParameters
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns each point's probabilities of clusters, shape (n, n_clusters), and log likelihood up to a constant."""
    scores, log_ratios = log_score_ratios(parameters.choices[-1][0])
    units = mixture.means / np.maximum(np.linalg.norm(mixture.means, axis=1, keepdims=True), 1e-12)
    odds = np.exp(np.interp(points @ units.T, scores, log_ratios)) * mixture.weights
    whole = odds.sum(axis=1)
    return odds / whole[:, None], np.log(whole)
