"""DP-Lloyd's start `candidates`: public draws in a noisy subspace, refined by histograms round by round.

A noisy mean and a noisy scatter locate the rows, and give the directions along which clusters differ. Candidates
are drawn from that Gaussian; each round counts the rows nearest to each candidate, and the next candidates evolve from
those with many rows. The Lloyd rounds start from k-means of the last ones. At client level all bounds are those
of a client with identically distributed rows, so they fall with its number of rows; clients that differ are clipped.

Source: after Humphries, Lin, Yekhanin (2026), "PE-means" (arXiv 2606.00342), for candidates that evolve by public
mutation; Scott, Lampert, Saulpic (2025) for the subspace. Shares, counts and spreads were found by prototypes.
"""

import dataclasses
import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import LloydStart
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.lloyd_config import START_SHARE, DPLloydFit
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import assignment, lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.differences import stretch
from dapple_dp.transforms.kmeans.dp_lloyd import served
from dapple_dp.transforms.kmeans.dp_lloyd import server as dp_lloyd_server
from dapple_dp.transforms.kmeans.dp_lloyd import starts as dp_lloyd_starts
from dapple_dp.transforms.kmeans.dp_lloyd.served import ServerStart
from dapple_dp.transforms.kmeans.dp_lloyd.state import KMEANS_RESTARTS, LloydState
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings, lattice_centers, lattice_radius
from dapple_dp.transforms.numerics.kmeans import centers, folding, moves, scatter
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans, Prior
from dapple_dp.transforms.numerics.kmeans.starts import evolution, seeding
from dapple_dp.transforms.numerics.one_thread import one_thread

HISTOGRAMS = 3
"""Rounds that refine the candidates."""
PER_CLUSTER = 10
"""Fewest candidates for each cluster."""
MOST_PER_CLUSTER = 20
"""Most candidates for each cluster, if rows are many compared to a bin's noise. Additional ones lie anywhere."""
PLENTY = 50.0
"""Noise stddevs of a bin in the mean cluster from which on `PER_CLUSTER` is exceeded, and fine cells are split."""
STDDEVS_PER_CANDIDATE = 3.0
"""Rows of the mean candidate, in noise stddevs of a bin, between these two limits."""
SHARES = {"rows": 0.02, "server": 0.12, "mean": 0.1, "scatter": 0.68, "candidates": 0.2, "spread": 0.02}
"""Shares of the start's budget, in proportion; that of `candidates` is for all of these rounds."""
WIDE = 25
"""Features from which on the scatter needs all of its share; with fewer, the candidates get the rest of it."""
FINE_ROUNDS = 1
"""Lloyd rounds with more centers than clusters, so that no cluster goes without one."""
FINE_CENTERS = 2
"""Centers of these rounds for each cluster."""
SPLIT_CENTERS = 3
"""Centers of these rounds for each cluster if their cells are split."""
INNER = 2.5
"""Radius of an inner cell, in root mean squared distances of rows from their center."""
OUTER = 4.0
"""Radius to which rows beyond an inner cell are shortened, in radii of the Lloyd rounds."""
SEEN_STDDEVS = 3.0
"""Noise stddevs of a count from which on the rows beyond an inner cell count as a separate cluster."""
MERGE_RESTARTS = 30
"""Restarts of k-means on the centers of these rounds."""
ROOM = 1.1
"""First radius of the Lloyd rounds, in root mean squared distances of rows from their mean."""
OFF = 3.5
"""Noise stddevs by which a mean must differ from server rows that are off; every round looks at every cluster."""
SHORTENED = 0.9
"""Distance of rows from their mean, in norms of the scatter's frame, above which too many rows were shortened."""
IN_DOUBT = 0.5
"""Noise stddevs by which server rows may seem worse than the candidates and still start the Lloyd rounds."""

DECISIVE = 0.5
"""Largest difference that counts, as a part of the squared distance of most server rows to their centers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateState(LloydState):
    """State between the rounds of a job that starts from candidates.

    Attributes:
      candidates: of the next histogram, in the subspace; None before it is known.
      deviations: shape (n_dims,), feature units: stddevs of the rows along the directions of the subspace.
      step: number of released histograms.
      inner: lattice units: radius of the inner cells of a fine round; None if cells are not split.
      served: start from public server rows; None without them.
      server_centers: shape (SERVER_CENTERS k, d), feature units, from the middle of the domain: of weighted points.
      prior: prior of the centers from server rows, updated by rounds; None if they started from candidates.
      alternatives: as `centers`, two for each cluster: first those of the candidates, then those of the server rows.
    """

    candidates: Assigner | None = None
    deviations: NDArray[np.float64] | None = None
    step: int = 0
    inner: int | None = None
    served: ServerStart | None = None
    server_centers: NDArray[np.float64] | None = None
    alternatives: NDArray[np.float64] | None = None
    prior: Prior | None = None

    @property
    def sums_bound(self) -> int:
        """Lattice units: bound of a unit whose rows lie around their centers in all directions."""
        alike = min(self.settings.unit_radius, 1.0 / math.sqrt(self.settings.unit.rows))
        return max(1, int(alike * self.radius))

    @property
    def count_bound(self) -> float:
        """Bound of a unit whose rows are spread over all clusters."""
        return spread_norm(self.settings, self.settings.n_clusters if self.centers is None else len(self.centers))

    @property
    def outer(self) -> int:
        """Lattice units: radius to which rows beyond the inner cells are shortened."""
        return min(int(OUTER * self.radius), 2 * lattice.SUM_UNITS)

    @property
    def subspace(self) -> NDArray[np.float64] | None:
        """Orthonormal basis, shape (d, n_dims)."""
        return None if self.candidates is None else self.directions.basis

    @property
    def directions(self) -> Projection:
        """Projection to the subspace; raises ValueError before it is known."""
        return self.known_candidates.projection or Projection.from_basis(np.eye(self.n_features))

    def moved(
        self, sums: NDArray[np.float64], counts: NDArray[np.float64], stddev: float
    ) -> tuple[Self, NDArray[np.float64]]:
        """Returns moves that are shrunken in the subspace and across it, or blended with the server rows' prior."""
        if self.prior is None:
            return LloydState.moved(self, sums, counts, stddev)
        origins = self.known_centers * self.unit
        noisy = NoisyMeans(sums + counts[:, None] * origins, counts, stddev, 0.0)
        prior = self.prior.widened(noisy, OFF)
        means = centers.shrunken_means(noisy, prior)
        return dataclasses.replace(self, prior=prior.updated(means, noisy)), means - origins

    @property
    def known_candidates(self) -> Assigner:
        """`candidates`; raises ValueError before there are some."""
        if self.candidates is None:
            raise ValueError("the candidates are unknown until the scatter is released; run that round first.")
        return self.candidates


def spread_norm(settings: LloydSettings, n_parts: float) -> float:
    """Returns the L2 norm of the fractions of a unit's rows over equal parts, for independent rows; 1 for one row."""
    return settings.unit.share(min(1.0, math.sqrt(1.0 / settings.unit.rows + 1.0 / n_parts)))


def n_candidates(settings: LloydSettings, n_features: int) -> int:
    """Returns the bins of a histogram: public, enough for any number of rows and of server rows."""
    return _most_drawn(settings, n_features) + (served.PER_CLUSTER * settings.n_clusters if settings.served else 0)


def _most_drawn(settings: LloydSettings, n_features: int) -> int:
    """Returns the most candidates that are drawn."""
    return n_used(settings, n_features, math.inf if settings.public_rows is None else settings.public_rows)


def n_used(settings: LloydSettings, n_features: int, n_rows: float) -> int:
    """Returns the number of candidates for a public or noisy number of rows; clients' bounds assume `PER_CLUSTER`."""
    fewest = PER_CLUSTER * settings.n_clusters
    if not _plenty(settings, n_features, n_rows):
        return fewest
    in_stddevs = n_rows / _bin_stddev(settings, n_features)
    return int(min(max(in_stddevs / STDDEVS_PER_CANDIDATE, fewest), MOST_PER_CLUSTER * settings.n_clusters))


def _bin_stddev(settings: LloydSettings, n_features: int) -> float:
    """Returns the noise of a bin of a histogram, in rows."""
    return settings.multiplier(shares(settings, n_features)["candidates"])


def _plenty(settings: LloydSettings, n_features: int, n_rows: float) -> bool:
    """Returns whether the number of rows is so large compared to the noise of a bin that small clusters show."""
    by_row = settings.unit.kind is PrivacyUnit.RECORD
    return by_row and n_rows >= PLENTY * settings.n_clusters * _bin_stddev(settings, n_features)


def splits(settings: LloydSettings, n_features: int) -> bool:
    """Returns whether cells of the fine round are split if there are enough rows, by public settings."""
    return settings.unit.kind is PrivacyUnit.RECORD and fine_rounds(settings, n_features) > 0


def n_fine(settings: LloydSettings, n_features: int, n_rows: float) -> int:
    """Returns the centers of a fine round for a public or noisy number of rows."""
    split = splits(settings, n_features) and _plenty(settings, n_features, n_rows)
    return (SPLIT_CENTERS if split else FINE_CENTERS) * settings.n_clusters


def fine_cells(settings: LloydSettings, n_features: int) -> int:
    """Returns the cells of a fine round: public, enough for any number of rows."""
    return (2 if splits(settings, n_features) else 1) * n_fine(settings, n_features, math.inf)


def fine_rounds(settings: LloydSettings, n_features: int) -> int:
    """Returns how many Lloyd rounds are fine, with more centers than clusters."""
    begins = settings.options.start is LloydStart.CANDIDATES and not settings.warm
    return min(FINE_ROUNDS, settings.n_rounds(n_features) - 1) if begins else 0


def shares(settings: LloydSettings, n_features: int) -> dict[str, float]:
    """Returns the shares of the whole budget by release; that of the histograms is for one of them."""
    unused = {
        "rows": settings.public_rows is not None,
        "spread": not splits(settings, n_features),
        "server": not settings.served,
    }
    found = {name: share for name, share in SHARES.items() if not unused.get(name)}
    if settings.unit.kind is PrivacyUnit.RECORD:
        spared = found["scatter"] * max(0.0, 1.0 - n_features / WIDE)
        found |= {"scatter": found["scatter"] - spared, "candidates": found["candidates"] + spared}
    scale = START_SHARE / math.fsum(found.values())
    return {name: share * scale / (HISTOGRAMS if name == "candidates" else 1) for name, share in found.items()}


def initial_state(config: DPLloydFit, server: NDArray[np.float64], n_features: int) -> CandidateState:
    """Returns the state before the first round, from public data; arguments as in `dp_lloyd_starts.initial_state`."""
    plain = dp_lloyd_starts.initial_state(config, server, n_features)
    given = {field.name: getattr(plain, field.name) for field in dataclasses.fields(LloydState)}
    if not plain.settings.served:
        return CandidateState(**given)
    return CandidateState(**given | {"server": server}, served=ServerStart.of(plain.settings, server))


def scatter_bound(state: CandidateState) -> float:
    """Returns the public bound on a unit's mean outer product around the mean, feature units squared (Frobenius)."""
    return dp_lloyd_starts.near(state).lattice.clipping_norm ** 2 * spread_norm(
        state.settings, min(state.settings.n_clusters, state.n_features)
    )


def histogram_bound(state: CandidateState) -> float:
    """Returns the largest norm of a unit's histogram of candidates, as fractions of its rows; public."""
    return spread_norm(state.settings, _most_drawn(state.settings, state.n_features) / 2.0)


def scatter_step(state: CandidateState, releases: Releases) -> CandidateState:
    """Handles the scatter: finds the subspace, candidates in it, and a first radius for the Lloyd rounds."""
    settings, n_features = state.settings, state.n_features
    near = dp_lloyd_starts.near(state)
    release = releases[0].with_unit(scatter_bound(state) * 2.0 ** (-2 * lattice.OUTER_BITS))
    total = dp_lloyd_starts.known_rows(state)
    matrix = scatter.unpack_symmetric(release.decoded) / total
    if state.served is not None:
        around = state.served.rows - dp_lloyd_starts.known_mean(state) * state.unit
        matrix = scatter.shrink_to_public(matrix, 0.5 * (release.stddev / total) ** 2, around)
    with one_thread():
        variances, directions = np.linalg.eigh(matrix)
    n_dims = min(max(settings.n_clusters - 1, 1), n_features)
    mean_variance = max(float(variances.mean()), 1e-6 * near.lattice.clipping_norm**2 / n_features)
    edge = math.sqrt(2.0 * n_features) * release.stddev / total
    used = np.maximum(variances[::-1][:n_dims] - 0.5 * edge, 0.5 * mean_variance)
    projection = Projection.from_basis(directions[:, ::-1][:, :n_dims])
    fewest, n_drawn = PER_CLUSTER * settings.n_clusters, n_used(settings, n_features, total)
    anywhere = evolution.anywhere(settings.box.half_side, n_features, n_drawn - fewest, settings.seed)
    around = anywhere - dp_lloyd_starts.known_mean(state) * state.unit
    points = np.vstack([evolution.first(np.sqrt(used), fewest, settings.seed), around @ projection.basis])
    state = dataclasses.replace(
        state,
        radius=_radius(state, math.sqrt(mean_variance * n_features)),
        deviations=np.sqrt(used),
        candidates=Assigner(np.zeros((1, n_dims)), projection),
        releases=(*state.releases, release),
    )
    return _with_candidates(state, points)


def _radius(state: CandidateState, distance: float) -> int:
    """Returns the lattice radius of the Lloyd rounds, by the noisy distance (feature units) of rows from their mean.

    Rows were shortened to the norm of the scatter's frame; if many were, the public radius is the better guess.
    """
    if distance > SHORTENED * dp_lloyd_starts.near(state).lattice.clipping_norm:
        return state.radius
    return min(state.radius, max(1, int(ROOM * distance / state.unit)))


def _with_candidates(state: CandidateState, points: NDArray[np.float64]) -> CandidateState:
    """Returns the state with candidates at points (n, n_dims) of the subspace, measured from the mean, feature units.

    Server points, or the centers found from them, come last.
    """
    projection = state.directions
    if state.served is not None:
        of_server = state.served.points if state.server_centers is None else state.server_centers
        mean = dp_lloyd_starts.known_mean(state) * state.unit
        points = np.vstack([points, (of_server - mean) @ projection.basis])
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    points = points * np.minimum(1.0, state.frame.lattice.clipping_norm / np.maximum(norms, 1e-300))
    origin = assignment.project(dp_lloyd_starts.known_mean(state)[None, :], projection)[0]
    return dataclasses.replace(state, candidates=Assigner(np.rint(points / state.unit) + origin, projection))


def candidates_step(state: CandidateState, releases: Releases) -> CandidateState:
    """Handles a histogram of candidates: draws the next generation or, after the last one, runs k-means on it."""
    settings, projection = state.settings, state.directions
    release = releases[0].with_unit(histogram_bound(state) / lattice.SUM_UNITS)
    mean = dp_lloyd_starts.known_mean(state)
    points = (state.known_candidates.centers - assignment.project(mean[None, :], projection)[0]) * state.unit
    weights = dp_lloyd_starts.significant(state, release.decoded[: len(points)], release.stddev)
    step, n_rows = state.step + 1, dp_lloyd_starts.known_rows(state)
    n_drawn = n_used(settings, state.n_features, n_rows)
    state = dataclasses.replace(state, step=step, releases=(*state.releases, release))
    if step == 1:
        state = _with_server_centers(state, release.decoded[n_drawn : len(points)], release.stddev)
    if step < HISTOGRAMS and state.deviations is not None:
        elite = n_drawn > PER_CLUSTER * settings.n_clusters
        seed, deviations = settings.seed, state.deviations
        following = evolution.following(points, weights, deviations, seed, step, n_drawn, elite=elite)
        return _with_candidates(state, following)
    fine = fine_rounds(settings, state.n_features) > 0
    n_centers = n_fine(settings, state.n_features, n_rows) if fine else settings.n_clusters
    state = dataclasses.replace(state, centers=_lifted(state, points, weights, n_centers))
    if state.alternatives is None:
        return state
    found = _lifted(state, points, weights, settings.n_clusters)
    return dataclasses.replace(state, alternatives=np.vstack([found, state.alternatives]))


def _with_server_centers(state: CandidateState, counts: NDArray[np.float64], stddev: float) -> CandidateState:
    """Returns the state with centers of server points, weighted by the first histogram, if there are some."""
    if state.served is None:
        return state
    k, seed, basis = state.settings.n_clusters, state.settings.seed, state.directions.basis
    server_centers = state.served.prior(counts, stddev, basis, min(served.SERVER_CENTERS * k, len(counts)), seed).means
    prior = state.served.prior(counts, stddev, basis, k, seed)
    return dataclasses.replace(
        state, server_centers=server_centers, alternatives=lattice_centers(state.frame, prior.means), prior=prior
    )


def _lifted(
    state: CandidateState, points: NDArray[np.float64], weights: NDArray[np.float64], n_centers: int
) -> NDArray[np.float64]:
    """Clusters weighted points of the subspace by k-means, and returns centers as lattice integers in the domain."""
    settings = state.settings
    found = seeding.weighted_kmeans(points, weights, n_centers, KMEANS_RESTARTS, settings.seed).centers
    absolute = dp_lloyd_starts.known_mean(state) * state.unit + found @ state.directions.basis.T
    return lattice_centers(state.frame, folding.fold(absolute, settings.box.half_side))


def spread_bound(state: CandidateState) -> int:
    """Returns the public cap on squared distances of rows from their center, squared lattice units."""
    return squared_bound(state.known_centers, state.radius)


def spread_step(state: CandidateState, releases: Releases) -> CandidateState:
    """Handles the squared distances of rows from the fine centers: sets the radius of inner cells if rows are many."""
    bound = spread_bound(state)
    release = releases[0].with_unit(bound * state.unit**2 / lattice.SUM_UNITS)
    state = dataclasses.replace(state, releases=(*state.releases, release))
    n_rows = dp_lloyd_starts.known_rows(state)
    if not _plenty(state.settings, state.n_features, n_rows) or state.prior is not None:
        return state
    mean = (float(release.decoded[0]) + release.stddev) / n_rows / state.unit**2
    inner = int(INNER * math.sqrt(max(mean, 1e-4 * bound)))
    return dataclasses.replace(state, inner=inner if inner < state.radius else None)


def fine_step(state: CandidateState, releases: Releases, *, last: bool) -> CandidateState:
    """Handles a fine round: moves its centers and, after the last one, merges them to one for each cluster."""
    split = state.inner is not None
    near = state if state.inner is None else dataclasses.replace(state, radius=state.inner)
    moved = dataclasses.replace(dp_lloyd_server.relative_step(near, releases), radius=state.radius)
    if not last or moved.sizes is None or moved.prior is not None:
        return moved
    counts, points = moved.releases[-1], moved.known_centers
    decoded = counts.decoded[: len(points)]
    total = moved.n_rows or moves.total_rows(decoded, counts.stddev)
    weights = moves.blended_counts(decoded, counts.stddev, total)
    if split:
        beyond = _beyond(state, *moved.releases[-2:])
        # A center whose rows are all far away moves to them.
        left = beyond.origins[decoded[beyond.origins] <= SEEN_STDDEVS * counts.stddev]
        points, weights = np.vstack([points, beyond.points]), np.concatenate([weights, beyond.weights])
        weights[left] = 0.0
    found = seeding.weighted_kmeans(
        points, weights, moved.settings.n_clusters, MERGE_RESTARTS, moved.settings.seed
    ).centers
    return dataclasses.replace(moved, centers=np.rint(found), origins=None, sizes=None, inner=None, errors=None)


class _Beyond(NamedTuple):
    """Outer cells that hold many rows: means in lattice units, noisy counts, and indices of their centers."""

    points: NDArray[np.float64]
    weights: NDArray[np.float64]
    origins: NDArray[np.int64]


def _beyond(state: CandidateState, sums: Release, counts: Release) -> _Beyond:
    """Returns the means of the outer cells with a count above the noise; releases know their lattice units."""
    size, origins = len(state.known_centers), state.known_centers
    seen = np.flatnonzero(counts.decoded[size : 2 * size] > SEEN_STDDEVS * counts.stddev)
    # A difference was stretched from the outer radius, and the unit of the release is that of the inner one.
    scale = stretch(state.inner or state.radius) / stretch(state.outer)
    weights = counts.decoded[size:][seen]
    found = moves.blended(sums.decoded[size:][seen] * scale, weights, sums.stddev * scale, state.subspace, None).moves
    points = folding.fold(origins[seen] * state.unit + found, state.settings.box.half_side) / state.unit
    return _Beyond(points, weights, seen)


def gain_bound(state: CandidateState) -> int:
    """Returns the largest difference of two squared distances of a row that counts, squared lattice units; public."""
    reach = 0.0 if state.served is None else state.served.reach
    return max(1, int(DECISIVE * (reach / state.unit) ** 2))


def server_step(state: CandidateState, releases: Releases) -> CandidateState:
    """Handles the comparison of two costs: starts the Lloyd rounds from server rows if these are nearer to the rows.

    Most rows are about as near to both starts, so the cap on differences is small, and so is the noise.
    """
    release = releases[0].with_unit(gain_bound(state) * state.unit**2 / lattice.SUM_UNITS)
    after = dataclasses.replace(
        state, alternatives=None, server_centers=None, prior=None, releases=(*state.releases, release)
    )
    if state.alternatives is None or state.served is None or release.decoded[0] <= -IN_DOUBT * release.stddev:
        return after
    of_server = state.alternatives[state.settings.n_clusters :]
    radius = lattice_radius(state.frame, state.served.reach)
    return dataclasses.replace(after, centers=of_server, radius=radius, prior=state.prior)
