"""DP-Lloyd's start `candidates`: public draws in a noisy subspace, which histograms refine round by round.

A noisy mean and a noisy scatter say where the rows lie, and along which directions their clusters differ. Candidates
are drawn from that Gaussian; each round asks rows for their nearest candidate and lets the next ones evolve from those
that many rows are near to. The Lloyd rounds start from k-means of the last ones. At client level all bounds are those
of a client whose rows are drawn alike, so they fall with its number of rows; clients that differ are clipped.

Source: after Humphries, Lin, Yekhanin (2026), "PE-means" (arXiv 2606.00342), for candidates that evolve by public
mutation; Scott, Lampert, Saulpic (2025) for the subspace. Shares, counts and spreads were found by prototypes.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from schemas.choices import LloydStart
from schemas.kmeans.lloyd_config import DPLloydFit
from transforms.kmeans.dp_lloyd import server as dp_lloyd_server
from transforms.kmeans.dp_lloyd import starts as dp_lloyd_starts
from transforms.kmeans.dp_lloyd.state import KMEANS_RESTARTS, LloydState
from transforms.kmeans.lloyd.box import LloydSettings, lattice_centers
from transforms.numerics.kmeans import evolution, folding, moves, scatter, server_points
from transforms.numerics.kmeans.starts import seeding
from transforms.numerics.one_thread import one_thread
from transforms.numerics.statistics import assignment, lattice
from transforms.numerics.statistics.assignment import Assigner, Projection
from transforms.rounds.protocol import Releases

HISTOGRAMS = 3
"""Rounds that refine the candidates."""
PER_CLUSTER = 10
"""Candidates for each cluster."""
SHARES = {"rows": 0.02, "mean": 0.1, "scatter": 0.68, "candidates": 0.2}
"""Of the start's budget; that of `candidates` is for all of these rounds."""
FINE_ROUNDS = 1
"""Lloyd rounds with more centers than clusters, so that no cluster goes without one."""
FINE_CENTERS = 2
"""Centers of these rounds for each cluster."""
MERGE_RESTARTS = 30
"""Restarts of k-means on the centers of these rounds."""
ROOM = 1.1
"""First radius of the Lloyd rounds, in root mean squared distances of rows from their mean."""
SHORTENED = 0.9
"""Distance of rows from their mean, in norms of the scatter's frame, from which too many were shortened to judge it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateState(LloydState):
    """What travels between the rounds of a job that starts from candidates.

    Attributes:
      candidates: of the next histogram, in the subspace; None before it is known.
      deviations: shape (n_dims,), feature units: of the rows along the directions of the subspace.
      step: histograms that were released.
    """

    candidates: Assigner | None = None
    deviations: NDArray[np.float64] | None = None
    step: int = 0

    @property
    def sums_bound(self) -> int:
        """Lattice units: that of a unit whose rows lie around their centers in all directions."""
        alike = min(self.settings.unit_radius, 1.0 / math.sqrt(self.settings.unit.rows))
        return max(1, int(alike * self.radius))

    @property
    def count_bound(self) -> float:
        """That of a unit whose rows are spread over all clusters."""
        return spread_norm(self.settings, self.settings.n_clusters if self.centers is None else len(self.centers))

    @property
    def subspace(self) -> NDArray[np.float64] | None:
        """Orthonormal basis, shape (d, n_dims)."""
        return None if self.candidates is None else self.directions.basis

    @property
    def directions(self) -> Projection:
        """Of the subspace; raises ValueError before it is known."""
        return self.known_candidates.projection or Projection.from_basis(np.eye(self.n_features))

    @property
    def known_candidates(self) -> Assigner:
        """`candidates`; raises ValueError before there are some."""
        if self.candidates is None:
            raise ValueError("candidates must be asked for after the scatter; run that round first.")
        return self.candidates


def spread_norm(settings: LloydSettings, n_parts: float) -> float:
    """L2 norm of the fractions of a unit's rows over equal parts, as expected of independent rows; 1 for one row."""
    return settings.unit.share(min(1.0, math.sqrt(1.0 / settings.unit.rows + 1.0 / n_parts)))


def n_candidates(settings: LloydSettings) -> int:
    """Bins of a histogram: public."""
    return PER_CLUSTER * settings.n_clusters


def n_fine(settings: LloydSettings) -> int:
    """Centers of a fine round."""
    return FINE_CENTERS * settings.n_clusters


def fine_rounds(settings: LloydSettings, n_rounds: int) -> int:
    """How many of the Lloyd rounds are fine: with more centers than clusters."""
    begins = settings.options.start is LloydStart.CANDIDATES and not settings.warm
    return min(FINE_ROUNDS, n_rounds - 1) if begins else 0


def shares(settings: LloydSettings) -> dict[str, float]:
    """Shares of the whole budget by release; that of the histograms is for one of them."""
    found = SHARES if settings.public_rows is None else {name: SHARES[name] for name in SHARES if name != "rows"}
    scale = settings.options.start_share / math.fsum(found.values())
    return {name: share * scale / (HISTOGRAMS if name == "candidates" else 1) for name, share in found.items()}


def initial_state(config: DPLloydFit, server: NDArray[np.float64], n_features: int) -> CandidateState:
    """State before the first round, from public data only; arguments as of `dp_lloyd_starts.initial_state`."""
    plain = dp_lloyd_starts.initial_state(config, server, n_features)
    return CandidateState(**{field.name: getattr(plain, field.name) for field in dataclasses.fields(LloydState)})


def scatter_bound(state: CandidateState) -> float:
    """Bound on the mean outer product of a unit's rows around the mean, feature units squared (Frobenius); public."""
    return dp_lloyd_starts.near(state).lattice.clipping_norm ** 2 * spread_norm(
        state.settings, min(state.settings.n_clusters, state.n_features)
    )


def histogram_bound(state: CandidateState) -> float:
    """The largest norm of a unit's histogram of candidates, as fractions of its rows; public."""
    return spread_norm(state.settings, n_candidates(state.settings) / 2.0)


def scatter_step(state: CandidateState, releases: Releases) -> CandidateState:
    """After the scatter: the subspace, candidates drawn in it, and a first radius for the Lloyd rounds."""
    settings, n_features = state.settings, state.n_features
    near = dp_lloyd_starts.near(state)
    release = releases[0].with_unit(scatter_bound(state) * 2.0 ** (-2 * lattice.OUTER_BITS))
    total = dp_lloyd_starts.known_rows(state)
    with one_thread():
        variances, directions = np.linalg.eigh(scatter.unpack_symmetric(release.decoded) / total)
    n_dims = min(max(settings.n_clusters - 1, 1), n_features)
    mean_variance = max(float(variances.mean()), 1e-6 * near.lattice.clipping_norm**2 / n_features)
    edge = math.sqrt(2.0 * n_features) * release.stddev / total
    used = np.maximum(variances[::-1][:n_dims] - 0.5 * edge, 0.5 * mean_variance)
    projection = Projection.from_basis(directions[:, ::-1][:, :n_dims])
    points = evolution.first(np.sqrt(used), n_candidates(settings), settings.seed)
    state = dataclasses.replace(
        state,
        radius=_radius(state, math.sqrt(mean_variance * n_features)),
        deviations=np.sqrt(used),
        candidates=Assigner(np.zeros((1, n_dims)), projection),
        releases=(*state.releases, release),
    )
    return _with_candidates(state, points)


def _radius(state: CandidateState, distance: float) -> int:
    """Lattice units: of the Lloyd rounds, by the noisy distance (feature units) of rows from their mean.

    Rows were shortened to the norm of the scatter's frame; where many were, the public radius is the better guess.
    """
    if distance > SHORTENED * dp_lloyd_starts.near(state).lattice.clipping_norm:
        return state.radius
    return min(state.radius, max(1, int(ROOM * distance / state.unit)))


def _with_candidates(state: CandidateState, points: NDArray[np.float64]) -> CandidateState:
    """The state with candidates at points (n, n_dims) of the subspace, measured from the mean, feature units."""
    projection = state.directions
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    points = points * np.minimum(1.0, state.frame.lattice.clipping_norm / np.maximum(norms, 1e-300))
    origin = assignment.project(dp_lloyd_starts.known_mean(state)[None, :], projection)[0]
    return dataclasses.replace(state, candidates=Assigner(np.rint(points / state.unit) + origin, projection))


def candidates_step(state: CandidateState, releases: Releases) -> CandidateState:
    """After a histogram of candidates: the next generation, and after the last one k-means of it."""
    settings, projection = state.settings, state.directions
    release = releases[0].with_unit(histogram_bound(state) / lattice.SUM_UNITS)
    mean = dp_lloyd_starts.known_mean(state)
    points = (state.known_candidates.centers - assignment.project(mean[None, :], projection)[0]) * state.unit
    weights = server_points.significant_weights(release.decoded, release.stddev)
    step = state.step + 1
    state = dataclasses.replace(state, step=step, releases=(*state.releases, release))
    if step < HISTOGRAMS and state.deviations is not None:
        return _with_candidates(state, evolution.following(points, weights, state.deviations, settings.seed, step))
    n_centers = n_fine(settings) if fine_rounds(settings, settings.n_rounds(state.n_features)) else settings.n_clusters
    found = seeding.weighted_kmeans(points, weights, n_centers, KMEANS_RESTARTS, settings.seed).centers
    absolute = mean * state.unit + found @ projection.basis.T
    return dataclasses.replace(
        state, centers=lattice_centers(state.frame, folding.fold(absolute, settings.box.half_side))
    )


def fine_step(state: CandidateState, releases: Releases, *, last: bool) -> CandidateState:
    """After a fine round: its centers move, and after the last one k-means of them leaves one for each cluster."""
    moved = dp_lloyd_server.relative_step(state, releases)
    if not last or moved.sizes is None:
        return moved
    counts = moved.releases[-1]
    total = moved.n_rows or moves.total_rows(counts.decoded, counts.stddev)
    weights = moves.blended_counts(counts.decoded, counts.stddev, total)
    found = seeding.weighted_kmeans(
        moved.known_centers, weights, moved.settings.n_clusters, MERGE_RESTARTS, moved.settings.seed
    ).centers
    return dataclasses.replace(moved, centers=np.rint(found), origins=None, sizes=None)
