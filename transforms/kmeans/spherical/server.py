"""Steps before and between the rounds of spherical k-means: pure functions of releases and public data."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.spherical_config import SphericalFit
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.kmeans.spherical.state import SphericalSettings, SphericalState
from dapple_dp.transforms.numerics.kmeans.starts import seeding

FINE_CENTERS = 2
"""Centers of the first rounds for each cluster, so that no cluster goes without one."""
KEPT = 0.5
"""Weight of earlier sums relative to those of a round: several rounds together locate centers that have settled."""
_MERGE_RESTARTS = 30
_START_RESTARTS = 5
_STRAY = 0.3
"""Distance from a crowded center at which a lost one starts over, in clipping norms."""
_LOST = 0.5
"""Length of a sum, relative to its noise, below which it carries no information."""


def initial_state(config: SphericalFit, server: NDArray[np.float64], n_features: int) -> SphericalState:
    """Returns the state before the first round: public directions, or k-means of the public server data.

    Args:
      config: the job.
      server: shape (q, d), feature units: the server data; points that stand in for them are not used.
      n_features: d.

    Raises:
      ConfigError: if there are fewer server points than clusters.
    """
    settings = SphericalSettings.from_config(config)
    lattice.check_features(n_features, lattice.SUM_BITS)
    norm = float(config.clipping.norm)
    frame = Frame(Lattice(np.zeros(n_features), norm))
    if config.server_data is None:
        n_centers = settings.n_clusters * (FINE_CENTERS if settings.fine_rounds else 1)
        start = np.random.default_rng([settings.seed, 39]).normal(size=(n_centers, n_features))
    else:
        if len(server) < settings.n_clusters:
            raise ConfigError(
                f"n_clusters must be at most the number of server rows, got {settings.n_clusters} clusters and "
                f"{len(server)} rows; ask for fewer clusters or leave out server_data."
            )
        points, weights = unit_rows(server), np.ones(len(server))
        start = seeding.weighted_kmeans(points, weights, settings.n_clusters, _START_RESTARTS, settings.seed).centers
    state = SphericalState(
        settings=settings,
        frame=frame,
        server=np.zeros((0, n_features)),
        centers=np.zeros_like(start),
        totals=np.zeros_like(start),
    )
    return dataclasses.replace(state, centers=_integers(start))


def unit_rows(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scales vectors (n, d) to length 1; a vector of zeros becomes the first direction."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled = vectors / np.where(largest > 0.0, largest, 1.0)
    scaled[largest[:, 0] == 0.0, 0] = 1.0
    return np.asarray(scaled / np.linalg.norm(scaled, axis=1, keepdims=True))


def _integers(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the directions of vectors (n, d) as centers on the lattice."""
    return np.trunc(unit_rows(vectors) * lattice.SUM_UNITS)


def sums_step(state: SphericalState, releases: Releases) -> SphericalState:
    """Handles sums of rows: turns every center to the sum of its rows, over several rounds with falling weights."""
    settings = state.settings
    release = releases[0].with_unit(state.sums_bound / lattice.SUM_UNITS)
    totals = KEPT * state.totals + release.decoded
    variance = KEPT**2 * state.variance + release.stddev**2
    # Noise alone adds d times its variance to a squared length.
    lengths = np.sqrt(np.maximum((totals**2).sum(axis=1) - totals.shape[1] * variance, 0.0))
    state = dataclasses.replace(
        state, totals=totals, variance=variance, step=state.step + 1, releases=(*state.releases, release)
    )
    if state.step == settings.fine_rounds:
        centers = seeding.weighted_kmeans(
            unit_rows(totals), lengths, settings.n_clusters, _MERGE_RESTARTS, settings.seed
        ).centers
        return dataclasses.replace(state, centers=_integers(centers), totals=np.zeros_like(centers), variance=0.0)
    if state.step >= settings.fine_rounds:
        return dataclasses.replace(state, centers=_integers(totals))
    return _with_lost_ones(state, lengths)


def _with_lost_ones(state: SphericalState, lengths: NDArray[np.float64]) -> SphericalState:
    """Returns the state with new centers; those without information start over, each next to one with many rows."""
    n_features = state.totals.shape[1]
    lost = np.flatnonzero(lengths < _LOST * math.sqrt(n_features * state.variance))
    crowded = np.argsort(-lengths, kind="stable")[: len(lost)]
    centers, totals = unit_rows(state.totals), state.totals.copy()
    aside = np.random.default_rng([state.settings.seed, 40, state.step]).normal(size=(len(lost), n_features))
    centers[lost] = centers[crowded] + _STRAY * unit_rows(aside) if len(lost) else centers[lost]
    totals[lost] = 0.0
    return dataclasses.replace(state, centers=_integers(centers), totals=totals)


def names_step(state: SphericalState, releases: Releases) -> SphericalState:
    """Handles sizes and, with names, cells of clusters and terms: stores them with their units."""
    limits = state.settings.limits
    units = (1.0 / lattice.SUM_UNITS, 1.0 if limits is None else 1.0 / limits.cell_units)
    released = tuple(release.with_unit(unit) for release, unit in zip(releases, units, strict=False))
    return dataclasses.replace(state, sizes=released[0].decoded, releases=(*state.releases, *released))
