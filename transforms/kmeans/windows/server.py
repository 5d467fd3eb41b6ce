"""Steps before and after the round of a window: pure functions of releases and public data."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import stretch
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings, lattice_centers, lattice_radius, rounds_frame
from dapple_dp.transforms.kmeans.windows.state import WindowState
from dapple_dp.transforms.numerics.kmeans import folding
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans
from dapple_dp.transforms.numerics.kmeans.recurring.windows import own_noise, own_part


def initial_state(config: WindowsFit, centers: NDArray[np.float64], memory: Memory | None = None) -> WindowState:
    """Returns the state before the round of a window.

    Args:
      config: the job.
      centers: shape (k, d), feature units: released before this window.
      memory: own parts of the windows before it; None for the first window of an epoch.
    """
    n_features = centers.shape[1]
    settings, frame = LloydSettings.from_config(config), rounds_frame(config, n_features)
    middle, (column, dates) = frame.lattice.center, config.folders
    inside = folding.fold(centers - middle, settings.box.half_side)
    now = lattice_centers(frame, inside)
    older = 0 if memory is None else min(len(memory), len(dates) - 1)
    past = np.zeros((0, *now.shape)) if memory is None else memory.origins[::-1][:older]
    unit = frame.lattice.unit(lattice.SUM_BITS)
    return WindowState(
        settings=settings,
        frame=frame,
        server=np.zeros((0, n_features)),
        column=column,
        dates=dates[: older + 1],
        anchors=np.concatenate([now[None], np.rint((past - middle) / unit)]),
        radius=lattice_radius(frame, settings.first_radius(n_features)),
        earlier_sums=np.zeros((0, *now.shape)) if memory is None else memory.sums[::-1][:older],
        earlier_counts=np.zeros((0, len(now))) if memory is None else memory.counts[::-1][:older],
    )


def window_step(state: WindowState, releases: Releases, *, weights: Sequence[int], index: int) -> WindowState:
    """Handles the round: extracts the part that this window adds to the series; centers stay where they were.

    Args:
      state: before the round.
      releases: of it.
      weights: of the windows, by age.
      index: of the window in its epoch, from 0.
    """
    released, noise = _with_units(state, releases), float(own_noise(tuple(weights), index + 1)[-1])
    return dataclasses.replace(state, noisy=own_means(state, released, weights), own_noise=noise, releases=released)


def own_means(state: WindowState, releases: Releases, weights: Sequence[int]) -> NoisyMeans:
    """Returns the own part of a window, with the noise that it would have if windows were independent.

    Args:
      state: before its round.
      releases: of the round, with their lattice units.
      weights: of the windows, by age.
    """
    sums, counts = releases
    return NoisyMeans(
        own_part(sums.decoded, state.earlier_sums, weights),
        own_part(counts.decoded, state.earlier_counts, weights),
        sums.stddev / weights[0],
        counts.stddev / weights[0],
    )


def _with_units(state: WindowState, releases: Releases) -> Releases:
    """Returns the releases with their lattice units."""
    sums, counts = releases
    return sums.with_unit(state.unit / stretch(state.sums_bound)), counts.with_unit(1.0 / lattice.SUM_UNITS)
