"""What each audited statistic states: how far one privacy unit moves the parts of its vector, in lattice units.

The numbers are those of the code that bounds the rows, and the plan of a round must not promise less. Keys are names
of functions, "module:name"; a round's statistic is one of them, or a partial application of one.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from schemas.privacy.plan import Geometry, Mechanism, PrivacyUnit, ReleaseSpec, RoundPlan
from schemas.profile.plan import (
    CLIENTS,
    COUNT,
    TREE_LEVELS,
    UNITS_PER_HALF_RANGE,
    ProfileEvent,
    ProfileLaw,
    ProfilePlan,
)
from schemas.tables.contract import TableContract
from transforms.numerics.statistics.by_unit import STATISTICS
from transforms.numerics.tables.participation import n_moved, worst_column


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """How far one unit moves one part of a statistic.

    Attributes:
      bound: in L2; for a symmetric part in the Frobenius norm.
      vectors: whether it is a sum of vectors, whose L1 norm may be sqrt(d) times as large and which may turn around;
        other parts are non-negative and have `bound` in L1, too.
      symmetric: whether it is the upper triangle of a symmetric matrix.
      interval: whether it is one number between 0 and `bound`.
    """

    bound: int
    vectors: bool = False
    symmetric: bool = False
    interval: bool = False

    def required(self, spec: ReleaseSpec, *, replaces: bool) -> float:
        """The smallest sensitivity that a release of this part may state; infinity if there is none.

        Args:
          spec: the release.
          replaces: whether one added row may take the place of another.
        """
        if (spec.geometry is Geometry.SYMMETRIC) > self.symmetric:
            return math.inf
        if spec.mechanism is Mechanism.DISCRETE_LAPLACE:
            if self.symmetric:
                return math.inf
            bound = math.isqrt(spec.shape[-1] * self.bound**2) if self.vectors else self.bound
            return bound * (2 if replaces and not self.interval else 1)
        if not replaces or self.interval:
            return self.bound
        return 2 * self.bound if self.vectors else math.isqrt(2 * self.bound**2) + 1


_SCATTER = Stated(bound=max(each.OUTER_SENSITIVITY for each in STATISTICS.values()), symmetric=True)
_SUMS = Stated(bound=max(each.SUM_SENSITIVITY for each in STATISTICS.values()), vectors=True)
_RELATIVE = Stated(bound=max(each.RELATIVE_SENSITIVITY for each in STATISTICS.values()), vectors=True)
_DIRECTIONS = Stated(bound=max(each.DIRECTION_SENSITIVITY for each in STATISTICS.values()), vectors=True)
_COUNTS = Stated(bound=max(each.COUNT_SENSITIVITY for each in STATISTICS.values()))
_TERMS = Stated(bound=max(each.TERMS_SENSITIVITY for each in STATISTICS.values()), vectors=True)
_COST = Stated(bound=max(each.QUALITY_SENSITIVITY for each in STATISTICS.values()), interval=True)
_COSTS_APART = Stated(bound=_COST.bound, vectors=True)
_SIZES = Stated(bound=max(each.QUALITY_SENSITIVITY for each in STATISTICS.values()))

STATED: dict[str, dict[str, Stated]] = {
    "transforms.kmeans.feddp_kmeans.rounds:outer_statistic": {"scatter": _SCATTER, "rows": _COUNTS},
    "transforms.kmeans.feddp_kmeans.rounds:norm_statistic": {"histogram": _COUNTS},
    "transforms.kmeans.feddp_kmeans.rounds:histogram_statistic": {"histogram": _COUNTS},
    "transforms.kmeans.lloyd.rounds:means_statistic": {"sums": _SUMS, "counts": _COUNTS},
    "transforms.kmeans.lloyd.quality:statistic": {"cost": _COST, "sizes": _SIZES},
    "transforms.kmeans.dp_lloyd.rounds:rows_statistic": {"rows": _COUNTS},
    "transforms.kmeans.dp_lloyd.rounds:mean_statistic": {"sums": _RELATIVE},
    "transforms.kmeans.dp_lloyd.rounds:scatter_statistic": {"scatter": _SCATTER},
    "transforms.kmeans.dp_lloyd.rounds:grid_statistic": {"histogram": _COUNTS},
    "transforms.kmeans.dp_lloyd.rounds:directions_statistic": {"scatter": _SCATTER},
    "transforms.kmeans.dp_lloyd.rounds:candidates_statistic": {"candidates": _COUNTS},
    "transforms.kmeans.dp_lloyd.rounds:relative_statistic": {"sums": _RELATIVE, "counts": _COUNTS},
    "transforms.kmeans.dp_lloyd.rounds:server_statistic": {"cost": _COSTS_APART},
    "transforms.kmeans.dp_lloyd.rounds:spread_statistic": {"cost": _COST},
    "transforms.kmeans.dp_lloyd.rounds:fine_statistic": {"sums": _RELATIVE, "counts": _COUNTS},
    "transforms.kmeans.dp_lloyd.rounds:absolute_statistic": {"sums": _SUMS, "counts": _COUNTS},
    "transforms.kmeans.dp_medians.rounds:median_statistic": {"directions": _DIRECTIONS, "counts": _COUNTS},
    "transforms.kmeans.spherical.rounds:sums_statistic": {"sums": _SUMS},
    "transforms.kmeans.spherical.rounds:names_statistic": {"counts": _COUNTS, "terms": _TERMS},
    "transforms.kmeans.windows.rounds:window_statistic": {
        "weighted_sums": _RELATIVE,
        "weighted_counts": _COUNTS,
    },
    "transforms.kmeans.central_tree.rounds:shape_statistic": {"scatter": _SCATTER, "sums": _SUMS, "rows": _COUNTS},
    "transforms.kmeans.central_tree.rounds:split_statistic": {"cells": _COUNTS},
    "transforms.kmeans.central_tree.rounds:leaves_statistic": {"sums": _SUMS, "counts": _COUNTS},
}
"""Parts of each statistic's vector, in order; the last may be left out of a round."""


class Moves(NamedTuple):
    """What a unit moves.

    Attributes:
      column: by how much it moves successive releases at most, in units of one statistic.
      n_releases: how many it moves at most.
    """

    column: tuple[int, ...] = (1,)
    n_releases: int = 1


ONE_RELEASE = Moves()
"""Of statistics that no other release adds up."""


def weights_of(statistic: Any) -> tuple[int, ...] | None:
    """By what a statistic multiplies rows of each window of an epoch; None where there are no windows."""
    while isinstance(statistic, functools.partial):
        if "weights" in statistic.keywords:
            return tuple(statistic.keywords["weights"])
        statistic = statistic.func
    return None


def moves_of(statistic: Any, contracts: Sequence[TableContract], unit: PrivacyUnit | None) -> Moves | None:
    """What a unit moves; None if nothing bounds it.

    Args:
      statistic: of a round.
      contracts: by which its rows are read.
      unit: of the plan.
    """
    weights = weights_of(statistic)
    rolls = [each.participation for each in contracts if each.participation is not None]
    if weights is None or unit is not PrivacyUnit.CLIENT:
        weights = weights or (1,)
        return Moves(weights, n_moved(weights, 1)) if not rolls else None
    if not rolls or len(rolls) < len(contracts):
        return None
    times, separation = max(each.max_windows for each in rolls), min(each.min_separation for each in rolls)
    return Moves(worst_column(weights, times, separation), n_moved(weights, times))


def understatement(statistic: str | None, plan: RoundPlan, *, replaces: bool, moves: Moves = ONE_RELEASE) -> str | None:
    """The fault in the sensitivities that a round states for its statistic, in words; None if nothing is.

    Args:
      statistic: its name; None if it has none.
      plan: of the round.
      replaces: whether one added row may take the place of another.
      moves: what one unit moves.
    """
    stated = STATED.get(statistic or "")
    if stated is None:
        return "a statistic that states no sensitivity"
    if [each.spec.name for each in plan.releases] != list(stated)[: len(plan.releases)]:
        return f"releases that are not the parts of {statistic}"
    for release in plan.releases:
        required = stated[release.spec.name].required(release.spec, replaces=replaces)
        required = math.sqrt(sum(each**2 for each in moves.column)) * required
        if release.spec.sensitivity < required:
            return (
                f"{release.spec.sensitivity} lattice units for {release.spec.name}, which one unit moves by {required}"
            )
        if release.spec.windows < moves.n_releases:
            return f"{release.spec.windows} windows for {release.spec.name}, of which one unit moves {moves.n_releases}"
    return None


def profile_understatement(plan: ProfilePlan) -> str | None:
    """The fault in the sensitivities that a profile states, in words; None if nothing is."""
    for event in plan.events:
        required = _profile_bound(event, plan)
        if not event.sensitivity >= required:
            return f"{event.sensitivity:g} for {event.path}, which one unit moves by {required:g}"
    return None


def _profile_bound(event: ProfileEvent, plan: ProfilePlan) -> float:
    """How far the rows of one unit that count move what an event noises, at most; infinity if nobody knows.

    Each row moves one count by 1, one sum by half the range, and one count on each level of one tree by 1. Distinct
    clusters and values of a client move as many cells by 1 each.
    """
    rows = plan.unit_rows
    kind, _, column = event.path.removeprefix("profile/").partition("/")
    if event.path == COUNT:
        return float(rows)
    if event.path == CLIENTS:
        return math.sqrt(min(rows, plan.n_clusters))
    if kind == "means":
        return float(rows * UNITS_PER_HALF_RANGE)
    if kind == "percentiles":
        return float(rows * (math.sqrt(TREE_LEVELS) if event.law is ProfileLaw.GAUSSIAN else TREE_LEVELS))
    if kind in ("histograms", "selections") and column in plan.categorical:
        values = plan.categorical[column].values
        return math.sqrt(rows if values is None else min(rows, plan.n_clusters * len(values)))
    return math.inf
