"""Before and between the rounds of k-prototypes: pure functions of releases and public data."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.prototypes_config import BOX, KPrototypesFit
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.kmeans.k_prototypes.merge import Parts, merged
from dapple_dp.transforms.kmeans.k_prototypes.state import PrototypeSettings, PrototypeState
from dapple_dp.transforms.numerics.kmeans import moves

FINE = 6
"""Prototypes of the first rounds for each cluster, so that no cluster goes without one."""
SPREAD = 0.3
"""Stddev of the numbers of the first prototypes around the noisy mean of all rows, in halves of the domain."""
SEEN_STDDEVS = 3.0
"""Noise stddevs of a size from which on its rows change the modes; below, noise would draw them."""


def initial_state(config: KPrototypesFit, _: NDArray[np.float64], n_features: int) -> PrototypeState:
    """State before the first round: one prototype, to which all rows belong.

    Args:
      config: the job.
      _: no public points are used.
      n_features: of rows.

    Raises:
      ConfigError: if rows have other features than the job says.
    """
    settings = PrototypeSettings.from_config(config)
    if n_features != settings.columns.n_features:
        raise ConfigError(
            f"rows must have the {settings.columns.n_features} features of k_prototypes.domain and encode, got "
            f"{n_features}; list every column in data.features."
        )
    lattice.check_features(n_features, lattice.SUM_BITS)
    nothing = np.zeros((0, n_features))
    frame = Frame.of_box(Box(*BOX), n_features)
    return PrototypeState(settings=settings, frame=frame, server=nothing, centers=np.zeros((1, n_features)))


def prototypes_step(state: PrototypeState, releases: Releases) -> PrototypeState:
    """After sums and cells: numbers move as far as noise does not explain it, and modes follow the cells.

    A cluster whose size noise explains keeps its modes.
    """
    columns, own = state.settings.columns, list(state.settings.columns.numbers)
    sums = releases[0].with_unit(state.sums_unit)
    cells = releases[1].with_unit(1.0 / columns.limits.cell_units)
    counts, stddev = state.weighed(cells.decoded), state.size_stddev(cells.stddev)
    blended = moves.blended_counts(counts, stddev, moves.total_rows(counts, stddev))
    moved = moves.shrunken(sums.decoded[:, own], blended, sums.stddev)
    seen = counts > SEEN_STDDEVS * stddev
    modes = np.where(seen[:, None], columns.modes(cells.decoded), state.modes)
    return dataclasses.replace(
        state,
        centers=state.placed(np.clip(state.numbers + moved, *BOX), modes),
        origins=state.centers,
        counts=counts,
        histograms=cells.decoded,
        releases=(*state.releases, sums, cells),
    )


def first_step(state: PrototypeState, releases: Releases) -> PrototypeState:
    """After sums and cells of all rows: prototypes drawn around their mean, with codes as frequent as they are."""
    after = prototypes_step(state, releases)
    assert after.histograms is not None  # which the step has set
    settings, columns = after.settings, after.settings.columns
    n_drawn, rng = FINE * settings.n_clusters, np.random.default_rng([settings.seed, 50])
    numbers = after.numbers + rng.normal(0.0, SPREAD, (n_drawn, len(columns.numbers)))
    shares = columns.by_column(columns.shares(after.histograms))
    modes = np.stack([rng.choice(part.shape[1], n_drawn, p=part[0]) for part in shares], axis=1)
    return _started(after, np.clip(numbers, *BOX), modes.astype(np.int64))


def merge_step(state: PrototypeState, releases: Releases) -> PrototypeState:
    """After the last round with many prototypes: k of them are left."""
    after = prototypes_step(state, releases)
    assert after.counts is not None  # as above
    assert after.histograms is not None
    settings, columns = after.settings, after.settings.columns
    least = SEEN_STDDEVS * after.size_stddev(after.releases[-1].stddev)
    seen = np.flatnonzero(after.counts > min(least, float(after.counts.max()) - 1.0))
    parts = Parts(
        weights=np.maximum(after.counts[seen], 1.0),
        numbers=after.numbers[seen],
        shares=columns.shares(after.histograms[seen]),
    )
    found = merged(parts, columns, settings.n_clusters, np.random.default_rng([settings.seed, 51]))
    return _started(after, found.numbers, found.modes)


def _started(state: PrototypeState, numbers: NDArray[np.float64], modes: NDArray[np.int64]) -> PrototypeState:
    """The state with other prototypes, of which no round has said anything yet."""
    centers = state.placed(numbers, modes)
    return dataclasses.replace(state, centers=centers, origins=None, counts=None, histograms=None)
