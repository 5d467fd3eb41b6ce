"""Server steps of DP-Lloyd's rounds: pure functions of releases and public data."""

import dataclasses
from typing import TypeVar

from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import stretch
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.lloyd.box import lattice_centers, lattice_radius
from dapple_dp.transforms.numerics.kmeans import folding, moves

AnyLloydState = TypeVar("AnyLloydState", bound=LloydState)


def relative_step(state: AnyLloydState, releases: Releases) -> AnyLloydState:
    """Handles relative sums and counts: moves every center, at most by the radius, inside the domain."""
    settings, radius = state.settings, state.settings.radius(state.n_features)
    sums = releases[0].with_unit(relative_unit(state, state.sums_bound))
    counts = releases[1].with_unit(state.count_bound / lattice.SUM_UNITS)
    # A fine round has room for more cells than it may use.
    own, sizes = (each.decoded[: len(state.known_centers)] for each in (sums, counts))
    if settings.options.shrinks:
        n_rows = state.n_rows or moves.total_rows(sizes, counts.stddev)
        blended = moves.blended_counts(sizes, counts.stddev, n_rows)
        state, found = state.moved(own, blended, sums.stddev)
        longest = min(radius, state.radius * state.unit)
    else:
        found, longest = moves.divided(own, sizes), radius
    moved = state.known_centers * state.unit + folding.clip_moves(found, longest)
    following = state.radius if settings.starts_near else lattice_radius(state.frame, radius)
    return dataclasses.replace(
        state,
        centers=lattice_centers(state.frame, folding.fold(moved, settings.box.half_side)),
        radius=following,
        origins=state.centers,
        sizes=sizes,
        releases=(*state.releases, sums, counts),
    )


def relative_unit(state: LloydState, bound: int) -> float:
    """Returns the feature units of one lattice step of relative sums bounded by `bound` lattice units."""
    return state.unit / stretch(bound)
