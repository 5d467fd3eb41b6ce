"""Server steps of FedDP-KMeans: pure functions of releases and public data, one per kind of round."""

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ClippingRule, StartSpace
from dapple_dp.schemas.core.plan import Allocation
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.feddp_kmeans.state import FedDPState
from dapple_dp.transforms.kmeans.lloyd.server import await_means, public_state
from dapple_dp.transforms.kmeans.lloyd.state import ClippingBounds
from dapple_dp.transforms.numerics.kmeans import bounds, centers, scatter, server_points
from dapple_dp.transforms.numerics.kmeans.centers import Prior
from dapple_dp.transforms.numerics.kmeans.norms import noisy_quantile
from dapple_dp.transforms.numerics.kmeans.starts import seeding, spaces


def initial_state(config: FitConfig, server: NDArray[np.float64], n_features: int) -> FedDPState:
    """Returns the state before the first round, from public data only; arguments and errors as in `public_state`."""
    in_full_space = config.feddp_kmeans.space is StartSpace.FULL
    state = FedDPState.of(public_state(config, server), in_full_space=in_full_space)
    return state if config.clipping.norm is ClippingRule.PRIVATE else _await_scatter(state)


def norm_step(state: FedDPState, releases: Releases, quantile: float) -> FedDPState:
    """Handles the histogram of norms: sets the clipping norm; points that stand in for server data fill its ball."""
    release = releases[0].with_unit(1.0 / lattice.SUM_UNITS)
    norm = noisy_quantile(release.decoded, release.stddev, quantile)
    server = state.server if state.settings.representative else state.server * norm
    frame = Frame(state.frame.lattice._replace(clipping_norm=norm))
    return _await_scatter(dataclasses.replace(state, server=server, frame=frame, releases=(*state.releases, release)))


def _await_scatter(state: FedDPState) -> FedDPState:
    """Adds the bounds of the outer-product round; in full space, assigner and bounds of the histogram instead."""
    return await_histogram(state) if state.in_full_space else state.bounded(functools.partial(_scatter_bounds, state))


def _scatter_bounds(state: FedDPState) -> ClippingBounds:
    """Returns the bound of clients in the outer-product round, found on public rows."""
    bound = bounds.scatter_bound(state.server_rows(), state.samples)
    return dataclasses.replace(state.bounds, scatter=bound)


def await_histogram(state: FedDPState) -> FedDPState:
    """Adds the assigner and bounds of the histogram over the server points."""
    state = dataclasses.replace(state, assigner=Assigner(state.projected_server(), state.projection))
    return state.bounded(functools.partial(_histogram_bounds, state))


def _histogram_bounds(state: FedDPState) -> ClippingBounds:
    """Returns the bound of clients in a histogram, found on public rows."""
    bound = float(state.settings.unit.rows)
    if state.settings.tuned:
        bound = bounds.histogram_bound(state.labels(), state.samples, state.known_assigner.size)
    return dataclasses.replace(state.bounds, histogram=bound)


def _histogram_unit(state: FedDPState) -> float:
    """Returns the rows, or parts of clients' bound, of one lattice step of a histogram."""
    return state.bounds.histogram / lattice.SUM_UNITS


def outer_product_step(state: FedDPState, releases: Releases) -> FedDPState:
    """Handles the outer product: blends it with the public scatter (tuned) and finds the subspace."""
    settings = state.settings
    release = releases[0].with_unit(state.bounds.scatter * 2.0 ** (-2 * lattice.OUTER_BITS))
    matrix = scatter.unpack_symmetric(release.decoded)
    done: list[Release] = [release]
    n_rows: float | None = settings.public_rows
    if len(releases) > 1:
        count = releases[1].with_unit(1.0 / lattice.SUM_UNITS)
        done.append(count)
        n_rows = max(float(count.decoded[0]), count.stddev)
    if settings.tuned and n_rows is not None:
        total = n_rows * settings.unit.rows
        matrix = matrix / total
        if settings.shrinks:
            entry_variance = 0.5 * (release.stddev / total) ** 2
            matrix = scatter.shrink_to_public(matrix, entry_variance, state.server_rows())
    n_dims = min(settings.n_clusters, len(matrix))
    projection = Projection.from_basis(scatter.top_eigenvectors(matrix, n_dims))
    return await_histogram(
        dataclasses.replace(state, projection=projection, n_rows=n_rows, releases=(*state.releases, *done))
    )


def weights_step(state: FedDPState, releases: Releases) -> FedDPState:
    """Handles the histogram: clusters the weighted projected server points."""
    settings = state.settings
    release = releases[0].with_unit(_histogram_unit(state))
    points = state.projected_server() * state.sum_unit
    weights = _weights(state, release, points)
    proxy_costs = state.proxy_costs
    n_clusters = settings.n_clusters
    if settings.chooses:
        proxy_costs = seeding.clustering_costs(points, weights, n_clusters, settings.restarts, settings.seed)
        n_clusters = seeding.elbow(proxy_costs)
    clustering = seeding.weighted_kmeans(points, weights, n_clusters, settings.restarts, settings.seed)
    integers = np.rint(clustering.centers / state.sum_unit)
    state = dataclasses.replace(
        state,
        assigner=Assigner(integers, state.projection),
        prior=_prior(state, clustering, weights),
        proxy_costs=proxy_costs,
        releases=(*state.releases, release),
    )
    return await_means(state, absolute=False)


def _weights(state: FedDPState, release: Release, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the weights of the server points, shape (q,), from released bins; smoothed if in full space."""
    settings, noisy = state.settings, release.decoded
    if not settings.shrinks:
        clean = server_points.printed_weights if settings.as_printed else server_points.significant_weights
        return clean(noisy, release.stddev)
    n_neighbors = min(server_points.NEIGHBORS, len(points) // (2 * settings.n_clusters))
    if state.in_full_space and n_neighbors > 1:
        return server_points.smoothed_weights(noisy, release.stddev, points, n_neighbors)
    return server_points.shrunken_weights(noisy, release.stddev)


def _prior(state: FedDPState, clustering: seeding.Clustering, weights: NDArray[np.float64]) -> Prior:
    """Returns centers lifted from the projection, or (tuned) the means of the server points of each cluster."""
    lifted = clustering.centers
    if state.projection is not None:
        lifted = clustering.centers @ state.projection.basis.T
    if not state.settings.shrinks:
        return Prior(lifted, np.full(len(lifted), np.inf))
    return centers.public_prior(state.server_rows(), clustering.labels, weights, lifted)


def with_space(config: FitConfig, server: NDArray[np.float64]) -> FitConfig:
    """Replaces space `auto` by `subspace` or `full`, decided on public data.

    Full space needs server data whose cross-validation prefers it. The method as printed, and a number of clusters that
    is still to be chosen, keep the subspace.

    Args:
      config: a job of algorithm feddp_kmeans.
      server: shape (q, d), feature units: public points.
    """
    options = config.feddp_kmeans
    if options.space is not StartSpace.AUTO:
        return config
    tuned = config.privacy.allocation is Allocation.TUNED and not config.chooses_clusters
    full = tuned and config.server_data is not None
    full = full and spaces.prefers_full_space(server, config.max_clusters)
    space = StartSpace.FULL if full else StartSpace.SUBSPACE
    return config.model_copy(update={"feddp_kmeans": options.model_copy(update={"space": space})})
