"""Steps before, between and after the rounds of k-medians: pure functions of releases and public data."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import DIRECTION_UNITS
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.dp_medians.state import MedianSettings, MedianState
from dapple_dp.transforms.numerics.kmeans import folding, moves

ONWARD, TURNED, SILENT = 1.0, 0.5, 0.7
"""Factors for the lengths of moves after a move onward, one back, and one hidden by noise."""


def initial_state(
    settings: MedianSettings, frame: Frame, centers: NDArray[np.float64], releases: tuple[Release, ...] = ()
) -> MedianState:
    """Returns the state before the first round of medians.

    Args:
      settings: public parameters.
      frame: of the domain.
      centers: shape (k, d), feature units: public, or computed from releases.
      releases: of the start, in order.
    """
    n_features = centers.shape[1]
    lattice.check_features(n_features, lattice.SUM_BITS)
    inside = np.clip(centers - frame.lattice.center, -settings.half_side, settings.half_side)
    state = MedianState(
        settings=settings,
        frame=frame,
        server=np.zeros((0, n_features)),
        centers=_integers(frame, inside),
        lengths=np.zeros(len(centers)),
        releases=releases,
    )
    return dataclasses.replace(state, lengths=settings.first_length * _separations(state))


def _integers(frame: Frame, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns centers measured from the middle of the domain on the lattice, in the clipping ball."""
    return frame._replace(lattice=frame.lattice._replace(center=np.zeros(centers.shape[1])), box=None).quantize(
        centers, lattice.SUM_BITS
    )


def _separations(state: MedianState) -> NDArray[np.float64]:
    """Returns the distance of each center to the nearest different one, at most the clipping norm; shape (k,)."""
    norms = lattice.squared_norms(state.centers)
    squared = norms[:, None] + norms - 2.0 * state.centers @ state.centers.T
    squared[squared < state.least_radius**2] = np.inf
    return np.minimum(np.sqrt(squared.min(axis=1)) * state.unit, state.frame.lattice.clipping_norm)


def median_step(state: MedianState, releases: Releases) -> MedianState:
    """Handles sums of directions and counts: moves every center along its mean direction, inside the domain."""
    settings = state.settings
    sums = releases[0].with_unit(state.directions_bound / DIRECTION_UNITS)
    counts = releases[1].with_unit(1.0 / lattice.SUM_UNITS)
    total = moves.total_rows(counts.decoded, counts.stddev)
    means = moves.shrunken(sums.decoded, moves.blended_counts(counts.decoded, counts.stddev, total), sums.stddev)
    means = folding.clip_moves(means, 1.0)
    lengths = state.lengths if state.last is None else state.lengths * _shortening(state.last, means)
    moved = state.centers * state.unit + means * lengths[:, None]
    inside = folding.fold(moved, settings.half_side)
    return dataclasses.replace(
        state,
        centers=_integers(state.frame, inside),
        lengths=lengths,
        last=means,
        sizes=counts.decoded,
        releases=(*state.releases, sums, counts),
    )


def _shortening(before: NDArray[np.float64], now: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the factors for the lengths of moves: less if a center has turned around or nothing is above the noise.

    Source: after Riedmiller, Braun (1993), "Rprop".
    """
    along = (before * now).sum(axis=1)
    return np.where(along > 0.0, ONWARD, np.where(along < 0.0, TURNED, SILENT))
