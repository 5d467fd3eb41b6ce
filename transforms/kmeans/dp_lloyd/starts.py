"""Starts of DP-Lloyd's centers: a public packing, or rounds that look for the clusters.

`best` finds them on a public grid: over the domain if it has few features, otherwise along the principal
directions around a noisy mean. Mean, scatter and histogram are releases like any other.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import LloydStart
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.kmeans.lloyd_config import START_SHARE, DPLloydFit
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import assignment, lattice
from dapple_dp.transforms.core.statistics.assignment import Projection
from dapple_dp.transforms.core.statistics.differences import Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.kmeans.dp_lloyd import server as dp_lloyd_server
from dapple_dp.transforms.kmeans.dp_lloyd.state import KMEANS_RESTARTS, LloydState
from dapple_dp.transforms.kmeans.lloyd.box import (
    LloydSettings,
    box_frame,
    lattice_centers,
    lattice_radius,
    rounds_frame,
)
from dapple_dp.transforms.kmeans.lloyd.state import MeansState
from dapple_dp.transforms.numerics.kmeans import folding, moves, scatter, server_points
from dapple_dp.transforms.numerics.kmeans.starts import grid, seeding, sphere_packing
from dapple_dp.transforms.numerics.kmeans.starts.grid import Grid

PLAIN_GRID_FEATURES = 3
"""Most features for which the grid covers the whole domain."""
MEAN_RADIUS = 0.7
"""Distance from the middle of the domain to which rows are shortened for their mean, in half diagonals."""
SCATTER_RADIUS = 0.5
"""Distance from the mean to which rows are shortened for their scatter, in half diagonals."""
_SMALLEST_VARIANCE = 1e-3
_CLIENT_SCATTER = 0.5


def initial_state(config: DPLloydFit, server: NDArray[np.float64], n_features: int) -> LloydState:
    """Returns the state before the first round, from public data only.

    Args:
      config: the job, with a `dp_lloyd` section.
      server: shape (q, d), feature units; public points, which only start `candidates` reads.
      n_features: d.
    """
    settings, frame = LloydSettings.from_config(config), box_frame(config, n_features)
    lattice.check_features(n_features, lattice.SUM_BITS)
    centers = _public_centers(settings, n_features)
    state = LloydState(
        settings=settings,
        frame=frame,
        server=server[:0],
        centers=None if centers is None else lattice_centers(frame, centers),
        radius=lattice_radius(frame, settings.first_radius(n_features)),
        n_rows=settings.public_rows,
    )
    plain = settings.options.start is LloydStart.BEST and n_features <= PLAIN_GRID_FEATURES
    return _await_plain_grid(state) if plain and settings.public_rows else state


def warm_state(config: DPLloydFit, centers: NDArray[np.float64]) -> LloydState:
    """Returns the state before the first round from known centers, shape (k, d), feature units."""
    n_features = centers.shape[1]
    lattice.check_features(n_features, lattice.SUM_BITS)
    settings, frame = LloydSettings.from_config(config), rounds_frame(config, n_features)
    return LloydState(
        settings=settings,
        frame=frame,
        server=np.zeros((0, n_features)),
        centers=lattice_centers(frame, centers - frame.lattice.center),
        radius=lattice_radius(frame, settings.first_radius(n_features)),
        n_rows=settings.public_rows,
    )


def _public_centers(settings: LloydSettings, n_features: int) -> NDArray[np.float64] | None:
    """Returns packed centers, measured from the middle of the domain; None for a private start."""
    if settings.options.starts_privately:
        return None
    return sphere_packing.pack(settings.n_clusters, n_features, settings.box.half_side, settings.seed)


def grid_share(settings: LloydSettings, n_features: int) -> float:
    """Returns the share of the whole budget for the histogram of start `best`."""
    return start_shares(settings, n_features)["grid"]


def start_shares(settings: LloydSettings, n_features: int) -> dict[str, float]:
    """Returns the shares of the whole budget for the releases of start `best`, by round."""
    total, counted = START_SHARE, settings.public_rows is None
    if n_features <= PLAIN_GRID_FEATURES:
        return {"rows": 0.05 * total, "grid": 0.95 * total} if counted else {"grid": total}
    shares = {"mean": 0.2 * total, "scatter": 0.4 * total, "grid": 0.4 * total}
    return {"rows": 0.05 * total} | {name: 0.95 * share for name, share in shares.items()} if counted else shares


def grid_cells(settings: LloydSettings, n_features: int) -> int:
    """Returns the number of coordinates of the histogram: public, enough for any grid that later releases may need."""
    if settings.public_rows is None:
        return max(grid.UNKNOWN_ROWS_CELLS, 2 * settings.n_clusters)
    multiplier = settings.multiplier(grid_share(settings, n_features))
    plain = n_features <= PLAIN_GRID_FEATURES
    n_directions = n_features if plain else min(settings.n_clusters, n_features)
    cells = grid.n_cells(settings.public_rows, settings.n_clusters, n_directions, multiplier)
    return math.prod(grid.cube_shape(cells, n_features)) if plain else cells


def mean_neighborhood(state: LloydState) -> Neighborhoods:
    """Returns a neighborhood of the middle of the domain with all rows, shortened to the radius of the mean."""
    origin = np.zeros((1, state.n_features))
    return Neighborhoods(origin, lattice_radius(state.frame, MEAN_RADIUS * state.frame.lattice.clipping_norm), True)


def scatter_bound(state: LloydState) -> float:
    """Returns the public bound on the scatter of a unit around the mean, feature units squared (Frobenius)."""
    unit = state.settings.unit
    return unit.share(_CLIENT_SCATTER) * unit.rows * near(state).lattice.clipping_norm ** 2


def near(state: LloydState) -> Frame:
    """Returns the frame around the noisy mean; raises ValueError before its round."""
    if state.near is None:
        raise ValueError("the scatter depends on the mean; run the round of the mean first.")
    return state.near


def rows_step(state: LloydState, releases: Releases) -> LloydState:
    """Handles the number of rows (clients)."""
    release = releases[0].with_unit(1.0 / lattice.SUM_UNITS)
    n_rows = moves.total_rows(release.decoded, release.stddev)
    state = dataclasses.replace(state, n_rows=n_rows, releases=(*state.releases, release))
    return _await_plain_grid(state) if state.n_features <= PLAIN_GRID_FEATURES else state


def _await_plain_grid(state: LloydState) -> LloydState:
    """Returns the state with a grid over the domain."""
    settings, n_features = state.settings, state.n_features
    multiplier = settings.multiplier(grid_share(settings, n_features))
    most = grid_cells(settings, n_features)
    cells = grid.n_cells(_known(state.n_rows), settings.n_clusters, n_features, multiplier, most)
    shape = grid.cube_shape(cells, n_features)
    while math.prod(shape) > most:
        shape = tuple(max(1, along - 1) for along in shape)
    half = np.full(n_features, np.floor(settings.box.half_side / state.unit))
    return dataclasses.replace(state, grid=Grid(shape, half, np.zeros(n_features)))


def known_rows(state: LloydState) -> float:
    """Returns the public or noisy number of rows (clients); raises ValueError before it is known."""
    return _known(state.n_rows)


def _known(n_rows: float | None) -> float:
    if n_rows is None:
        raise ValueError("the grid depends on n_rows; run the round that counts rows first.")
    return n_rows


def significant(state: LloydState, noisy: NDArray[np.float64], stddev: float) -> NDArray[np.float64]:
    """Returns the weights of the bins of a histogram that noise does not explain, shape (q,)."""
    if state.settings.unit.kind is not PrivacyUnit.RECORD:
        return server_points.significant_weights(noisy, stddev)
    n_rows = known_rows(state)
    return server_points.weights_beyond_noise(noisy, stddev, n_rows, state.settings.n_clusters)


def mean_step(state: LloydState, releases: Releases) -> LloydState:
    """Handles the relative sum around the middle: finds the mean, shrunken by its noise, and the scatter's frame."""
    unit = dp_lloyd_server.relative_unit(state, mean_neighborhood(state).radius)
    release = releases[0].with_unit(unit)
    moved = moves.shrunken(release.decoded, np.array([_known(state.n_rows)]), release.stddev)
    half_side = state.settings.box.half_side
    mean = lattice_centers(state.frame, folding.fold(moved, half_side))[0]
    middle, norm = state.frame.lattice.center, state.frame.lattice.clipping_norm
    near = Frame(Lattice(middle + mean * state.unit, SCATTER_RADIUS * norm), state.frame.box)
    return dataclasses.replace(state, mean=mean, near=near, releases=(*state.releases, release))


def scatter_step(state: LloydState, releases: Releases) -> LloydState:
    """Handles the scatter around the mean: lays a grid along the directions whose variance is above the noise."""
    settings, n_features = state.settings, state.n_features
    release = releases[0].with_unit(scatter_bound(state) * 2.0 ** (-2 * lattice.OUTER_BITS))
    total = _known(state.n_rows) * settings.unit.rows
    most = min(settings.n_clusters, n_features)
    found = scatter.top_eigenpairs(scatter.unpack_symmetric(release.decoded) / total, most)
    variances, directions = found[0][::-1], found[1][:, ::-1]
    # The largest eigenvalue of symmetric noise is about 2 sqrt(d) stddevs of an off-diagonal entry.
    edge = math.sqrt(2.0 * n_features) * release.stddev / total
    used = max(1, int((variances > edge).sum()))
    deviations = np.sqrt(np.maximum(variances[:used], _SMALLEST_VARIANCE * settings.box.half_side**2))
    state = dataclasses.replace(state, releases=(*state.releases, release))
    return _await_aligned_grid(state, directions, deviations)


def _await_aligned_grid(
    state: LloydState, directions: NDArray[np.float64], deviations: NDArray[np.float64]
) -> LloydState:
    """Returns the state with a grid along directions (d, n) around the mean, scaled by the deviations along them."""
    settings, n_features = state.settings, state.n_features
    multiplier = settings.multiplier(grid_share(settings, n_features))
    most = grid_cells(settings, n_features)
    shape = grid.aligned_shape(deviations, _known(state.n_rows), settings.n_clusters, multiplier, most)
    projection = Projection.from_basis(directions[:, : len(shape)])
    half = np.maximum(1.0, np.rint(grid.SPREAD * deviations[: len(shape)] / state.unit))
    origin = assignment.project(known_mean(state)[None, :], projection)[0]
    return dataclasses.replace(state, grid=Grid(shape, half, origin, projection))


def known_mean(state: LloydState) -> NDArray[np.float64]:
    """Returns the noisy mean, lattice units; raises ValueError before its round."""
    if state.mean is None:
        raise ValueError("the mean is unknown until it is released; run its round first.")
    return state.mean


def grid_step(state: LloydState, releases: Releases) -> LloydState:
    """Handles the histogram: clusters the cells by their weights, and lifts the centers into the domain."""
    if state.grid is None:
        raise ValueError("grid_step depends on the grid; run the earlier rounds first.")
    settings, cells = state.settings, state.grid
    release = releases[0].with_unit(1.0 / lattice.SUM_UNITS)
    weights = significant(state, release.decoded[: cells.size], release.stddev)
    points = cells.midpoints() * state.unit
    found = seeding.weighted_kmeans(points, weights, settings.n_clusters, KMEANS_RESTARTS, settings.seed).centers
    if cells.projection is not None:
        found = known_mean(state) * state.unit + found @ cells.projection.basis.T
    inside = folding.fold(found, settings.box.half_side)
    return dataclasses.replace(state, centers=lattice_centers(state.frame, inside), releases=(*state.releases, release))


def state_after(
    after: MeansState, settings: LloydSettings, frame: Frame, centers: NDArray[np.float64], radius: float
) -> LloydState:
    """Returns the state of DP-Lloyd with the centers of a start, folded into the domain.

    Args:
      after: last state of the start.
      settings: of the Lloyd rounds.
      frame: of these rounds.
      centers: shape (k, d), measured from the middle of the domain, feature units.
      radius: of the first Lloyd round, feature units.
    """
    return LloydState(
        settings=settings,
        frame=frame,
        server=after.server[:0],
        centers=lattice_centers(frame, folding.fold(centers, settings.box.half_side)),
        radius=lattice_radius(frame, radius),
        n_rows=after.n_rows,
        sizes=after.sizes,
        releases=after.releases,
    )
