"""The sensitivity of each audited statistic: how far one privacy unit moves the parts of its vector, lattice units.

The numbers are those of the code that bounds the rows, and a round's plan must not promise less. A round's statistic is
one of the listed functions, or a partial application of one.
"""

import dataclasses
import enum
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dapple_dp.schemas.core.plan import Geometry, Mechanism, PrivacyUnit, ReleaseSpec, RoundPlan
from dapple_dp.transforms.core.statistics.by_unit import STATISTICS


class L1(enum.Enum):
    """The case in which one unit moves a part by a stated bound in L1.

    ALWAYS: for every state. ASKED: if the statistic is given `l1=True`. NEVER: no such bound is stated.
    """

    ALWAYS = enum.auto()
    ASKED = enum.auto()
    NEVER = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """The most by which one unit moves one part of a statistic.

    Attributes:
      bound: in L2; for a symmetric part in the Frobenius norm.
      vectors: True if its direction may be reversed; other parts are non-negative.
      rows: True for a sum of rows by cluster, shape (k, d).
      symmetric: True for the upper triangle of a symmetric matrix of d rows.
      interval: True for one number between 0 and `bound`.
      one: True for one row or number, whatever the state.
      per_cluster: True for one number for each of the state's clusters.
      cells: True for some numbers for each cluster, shape (k, n).
      optional: True if the statistic has a form without this part, whose vector ends before it.
      l1: the case in which it has a bound in L1, which Laplace noise needs: `bound` itself, or sqrt(d) * `bound` for
        sums of rows. Clients that are clipped in L2 have none.
    """

    bound: int
    vectors: bool = False
    rows: bool = False
    symmetric: bool = False
    interval: bool = False
    one: bool = False
    per_cluster: bool = False
    cells: bool = False
    optional: bool = False
    l1: L1 = L1.NEVER

    def required(self, spec: ReleaseSpec, *, replaces: bool, l1: bool = False) -> float:
        """Returns the smallest sensitivity that a release of this part may state; infinity if there is none.

        `replaces` is True if one added row may take the place of another, `l1` if the statistic is asked to clip in L1.
        """
        if (spec.geometry is Geometry.SYMMETRIC) > self.symmetric:
            return math.inf
        if spec.mechanism is Mechanism.DISCRETE_LAPLACE:
            if self.l1 is L1.NEVER or (self.l1 is L1.ASKED and not l1):
                return math.inf
            bound = math.isqrt(spec.shape[-1] * self.bound**2) if self.rows else self.bound
            return bound * (2 if replaces and not self.interval else 1)
        if not replaces or self.interval:
            return self.bound
        return 2 * self.bound if self.vectors else math.isqrt(2 * self.bound**2) + 1


_SCATTER = Stated(bound=max(each.OUTER_SENSITIVITY for each in STATISTICS.values()), symmetric=True)
_SUMS = Stated(bound=max(each.SUM_SENSITIVITY for each in STATISTICS.values()), vectors=True, rows=True)
_RELATIVE = Stated(bound=max(each.RELATIVE_SENSITIVITY for each in STATISTICS.values()), vectors=True, rows=True)
_DIRECTIONS = Stated(bound=max(each.DIRECTION_SENSITIVITY for each in STATISTICS.values()), vectors=True, rows=True)
_COUNTS = Stated(bound=max(each.COUNT_SENSITIVITY for each in STATISTICS.values()))
_COUNTS_L1 = dataclasses.replace(_COUNTS, l1=L1.ALWAYS)
"""Of units, or of a client's fractions of rows, which add up to 1 at most."""
_COUNTS_ASKED = dataclasses.replace(_COUNTS, l1=L1.ASKED)
_TERMS = Stated(bound=max(each.TERMS_SENSITIVITY for each in STATISTICS.values()), vectors=True, optional=True)
_CELLS = Stated(bound=max(each.TERMS_SENSITIVITY for each in STATISTICS.values()), cells=True)
_SIZES = Stated(bound=max(each.QUALITY_SENSITIVITY for each in STATISTICS.values()), l1=L1.ALWAYS)
_COST = dataclasses.replace(_SIZES, interval=True, one=True)
_COSTS_APART = Stated(bound=_COST.bound, vectors=True)

STATED: dict[str, dict[str, Stated]] = {
    "dapple_dp.transforms.kmeans.feddp_kmeans.rounds:outer_statistic": {
        "scatter": _SCATTER,
        "rows": dataclasses.replace(_COUNTS_L1, optional=True),
    },
    "dapple_dp.transforms.kmeans.feddp_kmeans.rounds:norm_statistic": {"histogram": _COUNTS_L1},
    "dapple_dp.transforms.kmeans.feddp_kmeans.rounds:histogram_statistic": {"histogram": _COUNTS_ASKED},
    "dapple_dp.transforms.kmeans.lloyd.rounds:means_statistic": {"sums": _SUMS, "counts": _COUNTS_ASKED},
    "dapple_dp.transforms.kmeans.lloyd.quality:statistic": {"cost": _COST, "sizes": _SIZES},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:rows_statistic": {"rows": _COUNTS_L1},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:mean_statistic": {"sums": dataclasses.replace(_RELATIVE, one=True)},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:scatter_statistic": {"scatter": _SCATTER},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:grid_statistic": {"histogram": _COUNTS},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:directions_statistic": {"scatter": _SCATTER},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:candidates_statistic": {"candidates": _COUNTS},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:relative_statistic": {"sums": _RELATIVE, "counts": _COUNTS},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:server_statistic": {"cost": _COSTS_APART},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:spread_statistic": {"cost": _COST},
    "dapple_dp.transforms.kmeans.dp_lloyd.rounds:fine_statistic": {"sums": _RELATIVE, "counts": _COUNTS},
    "dapple_dp.transforms.kmeans.dp_medians.rounds:median_statistic": {"directions": _DIRECTIONS, "counts": _COUNTS},
    "dapple_dp.transforms.kmeans.k_prototypes.rounds:prototypes_statistic": {"sums": _RELATIVE, "cells": _CELLS},
    "dapple_dp.transforms.kmeans.spherical.rounds:sums_statistic": {"sums": _SUMS},
    "dapple_dp.transforms.kmeans.spherical.rounds:names_statistic": {
        "counts": dataclasses.replace(_COUNTS, per_cluster=True),
        "terms": _TERMS,
    },
    "dapple_dp.transforms.kmeans.windows.rounds:window_statistic": {
        "weighted_sums": _RELATIVE,
        "weighted_counts": _COUNTS,
    },
    "dapple_dp.transforms.kmeans.central_tree.rounds:shape_statistic": {
        "scatter": _SCATTER,
        "sums": dataclasses.replace(_SUMS, one=True),
        "rows": dataclasses.replace(_COUNTS, optional=True),
    },
    "dapple_dp.transforms.kmeans.central_tree.rounds:split_statistic": {"cells": _COUNTS},
    "dapple_dp.transforms.kmeans.central_tree.rounds:leaves_statistic": {"sums": _SUMS, "counts": _COUNTS},
}
"""Parts of each statistic's vector, in order, by "module:name"."""


def worst_column(weights: Sequence[int], times: int, separation: int) -> tuple[int, ...]:
    """Returns the most by which one unit moves successive releases, in units of the sensitivity of one window.

    A unit that counts in window u moves the release of window t by weights[t - u]. If it counts in several windows
    whose weights meet in one release, its statistics may all point in one direction, so these weights add up. Products
    of weights that are i apart do not grow with i, since weights descend. So the worst case is to count as often and
    as closely as allowed: nothing else that a rule of separation allows has a larger norm.

    Args:
      weights: by age; positive, descending.
      times: number of windows in which a unit counts at most, >= 1.
      separation: smallest distance between two of these windows, >= 1.

    Returns:
      A number for each release, from the first one that it moves.

    Example:
      >>> worst_column((16, 8, 6), 2, 2)
      (16, 8, 22, 8, 6)
    """
    column = np.zeros((times - 1) * separation + len(weights), dtype=np.int64)
    for first in range(0, times * separation, separation):
        column[first : first + len(weights)] += np.array(weights)
    return tuple(column.tolist())


def n_moved(weights: Sequence[int], times: int) -> int:
    """Returns the largest number of releases that one unit moves, for the accountant and the checker.

    The windows in which it counts may lie so far apart that their weights never meet. That moves more releases than
    `worst_column` does, each by less.
    """
    return len(weights) * times


class Moves(NamedTuple):
    """The releases that one unit moves.

    Attributes:
      column: the most by which it moves successive releases, in units of the sensitivity of one statistic.
      n_releases: the largest number of releases that it moves.
    """

    column: tuple[int, ...] = (1,)
    n_releases: int = 1


ONE_RELEASE = Moves()
"""The moves for a statistic that enters one release."""


def weights_of(statistic: Any) -> tuple[int, ...] | None:
    """Returns the weights of an epoch's windows in a statistic, or None without windows."""
    weights = _keyword(statistic, "weights")
    return None if weights is None else tuple(weights)


def _keyword(statistic: Any, name: str) -> Any:
    """Returns the keyword argument that a partial application binds, or None."""
    while isinstance(statistic, functools.partial):
        if name in statistic.keywords:
            return statistic.keywords[name]
        statistic = statistic.func
    return None


def moves_of(statistic: Any, contracts: Sequence[Any], unit: PrivacyUnit | None) -> Moves | None:
    """Returns the releases that a unit moves; None if nothing bounds them.

    Args:
      statistic: of a round.
      contracts: by which its rows are read.
      unit: of the plan.
    """
    weights = weights_of(statistic)
    if weights is not None and not (min(weights, default=0) > 0 and list(weights) == sorted(weights, reverse=True)):
        return None  # `worst_column` holds for positive weights that descend.
    parts = [contract.participation for contract in contracts if contract.participation is not None]
    if weights is None or unit is not PrivacyUnit.CLIENT:
        weights = weights or (1,)
        return Moves(weights, n_moved(weights, 1)) if not parts else None
    if not parts or len(parts) < len(contracts):
        return None
    times, separation = max(part.max_windows for part in parts), min(part.min_separation for part in parts)
    return Moves(worst_column(weights, times, separation), n_moved(weights, times))


def understatement(
    statistic: str | None, plan: RoundPlan, *, replaces: bool, moves: Moves = ONE_RELEASE, l1: bool = False
) -> str | None:
    """Describes a fault in the sensitivities that a round's plan states; None if there is none.

    Args:
      statistic: "module:name" of the round's statistic; None if it has no name.
      plan: of the round.
      replaces: True if one added row may take the place of another.
      moves: the releases that one unit moves.
      l1: True if the statistic is asked to clip in L1.
    """
    stated = STATED.get(statistic or "")
    if stated is None:
        return "a statistic that states no sensitivity"
    named = [release.spec.name for release in plan.releases]
    if named != list(stated)[: len(named)] or not all(stated[name].optional for name in list(stated)[len(named) :]):
        return f"releases that are not the parts of {statistic}"
    for release in plan.releases:
        required = stated[release.spec.name].required(release.spec, replaces=replaces, l1=l1)
        required = math.sqrt(sum(weight**2 for weight in moves.column)) * required
        if release.spec.sensitivity < required:
            return (
                f"{release.spec.sensitivity} lattice units for {release.spec.name}, which one unit moves by {required}"
            )
        if release.spec.windows < moves.n_releases:
            return f"{release.spec.windows} windows for {release.spec.name}, of which one unit moves {moves.n_releases}"
    return None


def asks_l1(statistic: Any) -> bool:
    """Returns whether a statistic is asked to clip in L1."""
    return _keyword(statistic, "l1") is True


def misshapen(statistic: str | None, plan: RoundPlan, n_features: int, n_clusters: int | None = None) -> str | None:
    """Describes the first release whose shape is not that of its part of the statistic; None if all fit.

    Parts of a vector are distinguished by their sizes alone. A plan of other shapes could have the same total size, and
    its counts would get a part of the sums. By these rules the size of a vector determines where each part begins.

    Args:
      statistic: "module:name" of the round's statistic.
      plan: of the round.
      n_features: of the state that the round starts from.
      n_clusters: likewise, if it has any.
    """
    stated = STATED.get(statistic or "", {})
    n_sums: int | None = None
    for release in plan.releases:
        part, shape = stated.get(release.spec.name), release.spec.shape
        if part is None:
            continue
        n_parts = 1 if part.one else n_clusters if part.per_cluster else n_sums
        wanted: tuple[int | None, ...] = shape if n_parts is None and not part.per_cluster else (n_parts,)
        if part.symmetric:
            wanted = (n_features * (n_features + 1) // 2,)
        elif part.rows:
            n_sums = shape[0] if n_parts is None and shape else n_parts
            wanted = (n_sums, n_features)
        elif part.cells:
            wanted = (n_sums, *shape[1:2])
        if shape != wanted:
            return f"{release.spec.name} of shape {shape}"
    return None
