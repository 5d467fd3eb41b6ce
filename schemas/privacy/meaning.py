"""Meanings of releases, by which pages, files, memory and drift read them without knowing the protocol."""

import dataclasses
import enum

from dapple_dp.schemas.core.plan import ReleaseSpec


class Role(enum.StrEnum):
    """Use of a release for code that doesn't know the protocol; counts are of rows or clients.

    CLUSTER_SUMS: sums by cluster; divided by the round's cluster counts, the means of rows in its coordinates.
    CLUSTER_COUNTS: counts by cluster.
    CLUSTER_TERMS: counts by cluster and public term.
    SQUARED_LENGTHS: upper triangle of a scatter around the frame's center; its trace adds up squared lengths of rows.
    SCATTER: upper triangle of a scatter of rows around their noisy mean.
    CELLS: counts by cell of a grid.
    UNITS: the number of rows or clients.
    NORMS: counts by norm, in bins of `dapple_dp.transforms.core.statistics.distances`.
    POINT_WEIGHTS: counts by public point.
    GROUPS: public points that have rows near them, in outputs before 0.3.0.
    """

    CLUSTER_SUMS = "cluster_sums"
    CLUSTER_COUNTS = "cluster_counts"
    CLUSTER_TERMS = "cluster_terms"
    SQUARED_LENGTHS = "squared_lengths"
    SCATTER = "scatter"
    CELLS = "cells"
    UNITS = "units"
    NORMS = "norms"
    POINT_WEIGHTS = "point_weights"
    GROUPS = "groups"
    OTHER = "other"


class Quantity(enum.StrEnum):
    """The unit of measure of a release."""

    COUNT = "rows or clients"
    LENGTH = "feature units"
    SQUARE = "feature units squared"


class Replaced(enum.StrEnum):
    """Bounds on the move of a release when one row replaces another, in multiples of its sensitivity.

    TURNED: 2, since the contribution may change its direction.
    LEFT: sqrt(2) in L2: no part of a contribution is negative, so neither is the inner product of two.
    BOUNDED: 1: contributions are single numbers from 0 to the bound.
    """

    TURNED = "turned"
    LEFT = "left"
    BOUNDED = "bounded"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The meaning of a release, for pages and files; it doesn't affect the noise.

    Attributes:
      tells: words that complete "it says", for example "where each center lies"; never empty.
      settles: true if it is small once centers have converged, so that a value below the noise is no problem.
    """

    tells: str
    role: Role = Role.OTHER
    quantity: Quantity = Quantity.COUNT
    replaced: Replaced = Replaced.TURNED
    settles: bool = False


UNSAID = Meaning(tells="")
"""The meaning of a release of which only the law is known, as in the plan of an exchange."""


def meaning_of(spec: ReleaseSpec) -> Meaning:
    """Returns the meaning of a release; `UNSAID` if it has none."""
    meaning: Meaning = UNSAID if spec.meaning is None else spec.meaning
    return meaning
