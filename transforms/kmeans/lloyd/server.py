"""Server steps of rounds of sums and counts: pure functions of releases and public data."""

import dataclasses
import functools
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ClippingCenter, ClippingRule
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.kmeans.model import BEFORE_LAST_STEP
from dapple_dp.schemas.kmeans.sections.clipping_config import CLIPPING_NORMS
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.kmeans.lloyd.state import ClippingBounds, MeansSettings, MeansState
from dapple_dp.transforms.numerics.kmeans import bounds, centers, lloyd_rules
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans
from dapple_dp.transforms.numerics.kmeans.starts import seeding

AnyMeansState = TypeVar("AnyMeansState", bound=MeansState)


def public_state(config: FitConfig, server: NDArray[np.float64]) -> MeansState:
    """Returns the state before the first round, from public data only; it has no centers to start from.

    Args:
      config: the job; its clipping section sets the frame.
      server: shape (q, d), feature units; public server points.

    Raises:
      ConfigError: if there are fewer server points than clusters, or they don't span a ball.
    """
    settings = MeansSettings.from_config(config)
    if len(server) < settings.n_clusters:
        raise ConfigError(
            f"n_clusters must be at most the number of server rows, got {settings.n_clusters} clusters and "
            f"{len(server)} rows; ask for fewer clusters or use more server data."
        )
    lattice.check_features(server.shape[1], lattice.SUM_BITS)
    unit, n_simulated = settings.unit, settings.unit.simulated(bounds.PSEUDO_CLIENTS)
    samples = seeding.pseudo_clients(len(server), unit.rows, n_simulated, settings.seed)
    return MeansState(settings=settings, server=server, frame=Frame(_lattice(config, server)), samples=samples)


def _lattice(config: FitConfig, server: NDArray[np.float64]) -> Lattice:
    """Returns the public center and clipping norm of a run; a private norm is 1 until it is released."""
    if isinstance(config, DPLloydFit) and config.clipping.norm is ClippingRule.DOMAIN:
        return Frame.of_box(lloyd_rules.box_of(config.dp_lloyd), server.shape[1]).lattice
    center = np.zeros(server.shape[1])
    if config.clipping.center is ClippingCenter.SERVER_MEAN:
        center = server.mean(axis=0)
    norm = config.clipping.norm
    if norm is ClippingRule.PRIVATE:
        return Lattice(center, 1.0)
    radius = float(np.linalg.norm(server - center, axis=1).max()) if norm is ClippingRule.SERVER_RADIUS else float(norm)
    if not CLIPPING_NORMS[0] <= radius <= CLIPPING_NORMS[1]:
        raise ConfigError(
            f"clipping.norm must be between {CLIPPING_NORMS[0]:g} and {CLIPPING_NORMS[1]:g}, but the radius of the "
            f"server data is {radius}; set it as a number, or scale the features."
        )
    return Lattice(center, radius)


def await_means(state: AnyMeansState, *, absolute: bool) -> AnyMeansState:
    """Returns the state with bounds of a sums-and-counts round; `absolute` for FedDP-Lloyds of the paper."""
    return state.bounded(functools.partial(_means_bounds, state, absolute=absolute))


def _means_bounds(state: MeansState, *, absolute: bool) -> ClippingBounds:
    """Returns the bounds of clients in a sums-and-counts round, found on public rows."""
    settings, rows, labels = state.settings, state.server_rows(), state.labels()
    samples, client_rows, size = state.samples, float(settings.unit.rows), state.known_assigner.size
    if settings.tuned:
        sums = bounds.sums_bound(rows, labels, samples, size) / client_rows
        counts = bounds.histogram_bound(labels, samples, size)
    elif absolute:
        sums, counts = bounds.sums_bound(rows, labels, samples, size), client_rows
    else:
        sums = bounds.means_bound(rows, labels, samples, size)
        counts = bounds.presence_bound(labels, samples, size)
    return ClippingBounds(sums=sums, counts=counts)


def _counted(assigner: Assigner) -> str:
    """Describes the rows that a round of sums and counts has counted, as in `ClusterModel`."""
    compared = "" if assigner.projection is None else ", compared in the subspace of the start"
    return BEFORE_LAST_STEP + compared


def means_step(state: AnyMeansState, releases: Releases) -> AnyMeansState:
    """Handles sums and counts (FedDP-Init's third round or a Lloyd step): finds the next centers."""
    if state.prior is None:
        raise ValueError("means_step needs a state with a prior; run the rounds of the start first.")
    settings = state.settings
    units = (state.bounds.sums / lattice.SUM_UNITS, state.bounds.counts / lattice.SUM_UNITS)
    sums, counts = (release.with_unit(unit) for release, unit in zip(releases, units, strict=True))
    chosen = len(state.prior.means)
    noisy = NoisyMeans(sums.decoded[:chosen], counts.decoded[:chosen], sums.stddev, counts.stddev)
    prior = state.prior.widened(noisy)
    guarded = centers.printed_means if settings.as_printed else centers.guarded_means
    blend = centers.shrunken_means if prior.informative else guarded
    integers = state.integers(blend(noisy, prior))
    inside = integers * state.sum_unit
    state = dataclasses.replace(
        state,
        centers=inside,
        sizes=noisy.counts,
        size_stddevs=np.full(chosen, counts.stddev),
        counted=_counted(state.known_assigner),
        assigner=Assigner(integers),
        prior=prior.updated(inside, noisy),
        releases=(*state.releases, sums, counts),
    )
    return await_means(state, absolute=True)
