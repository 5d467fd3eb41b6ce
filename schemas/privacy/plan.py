"""The privacy plan: every noised aggregate of a run, its sensitivity and its noise, before data are read."""

import dataclasses
import enum
import math
from typing import Any


class PrivacyUnit(enum.StrEnum):
    """What one neighbor adds or removes."""

    RECORD = "record"
    CLIENT = "client"


class Mechanism(enum.StrEnum):
    """Noise laws on the lattice (Canonne, Kamath, Steinke 2020)."""

    DISCRETE_GAUSSIAN = "discrete_gaussian"
    DISCRETE_LAPLACE = "discrete_laplace"


class Geometry(enum.StrEnum):
    """The space in which a sensitivity is a norm.

    VECTOR: the plain L2 (Gaussian) or L1 (Laplace) norm of the released vector.
    SYMMETRIC: the vector is the upper triangle (row by row, diagonal included) of a symmetric matrix and
      the norm is the matrix's Frobenius norm. An off-diagonal entry stands for two, so isotropic noise in
      that norm has a stddev smaller by sqrt(2) there.
    """

    VECTOR = "vector"
    SYMMETRIC = "symmetric"


class Role(enum.StrEnum):
    """What a release may be used for by code that knows no protocol.

    CLUSTER_SUMS: over the cluster counts of its round they are means of rows, measured from wherever the round did.
    CLUSTER_COUNTS: how many rows (clients) each cluster has.
    CLUSTER_TERMS: how many rows (clients) with each public term each cluster has.
    SQUARED_LENGTHS: upper triangle of a scatter around the frame's center: its trace adds up squared lengths of rows.
    SCATTER: upper triangle of a scatter of rows around their noisy mean.
    CELLS: how many rows each cell of a grid has.
    UNITS: how many rows (clients) there are.
    NORMS: how long rows are, by bins of `transforms.numerics.statistics.norms`.
    POINT_WEIGHTS: how much data each public point stands for.
    GROUPS: which public points have rows near them; the noise of what follows depends on it.
    OTHER: anything else.
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
    """What the numbers of a release are measured in."""

    COUNT = "rows or clients"
    LENGTH = "feature units"
    SQUARE = "feature units squared"


class Replaced(enum.StrEnum):
    """How far one row in place of another moves a release, where one row moves it by at most its sensitivity.

    TURNED: its parts may turn around, so twice as far.
    LEFT: all parts are of one sign, and so is their inner product: sqrt(2) times as far in L2.
    BOUNDED: it is one number from 0 to its bound, so no farther.
    """

    TURNED = "turned"
    LEFT = "left"
    BOUNDED = "bounded"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a release says: pages, files, memory and drift ask it, never the name.

    Attributes:
      tells: in words that complete "it says", for example "where each center lies"; never empty.
      role: see `Role`.
      quantity: see `Quantity`.
      replaced: see `Replaced`.
      settles: whether it is small once centers have arrived, so that noise alone is no bad news.
    """

    tells: str
    role: Role = Role.OTHER
    quantity: Quantity = Quantity.COUNT
    replaced: Replaced = Replaced.TURNED
    settles: bool = False


UNSAID = Meaning(tells="")
"""Of a release of which only the law is known, as in the plan of an exchange."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSpec:
    """One noised aggregate before calibration.

    Attributes:
      name: last component of the release path, unique in its round, for example "sums".
      shape: shape of the released int64 array; for SYMMETRIC the upper triangle, (d * (d + 1) / 2,).
      mechanism: noise law.
      sensitivity: lattice units; how far one privacy unit moves the exact sum, in L2 (Gaussian; Frobenius
        for SYMMETRIC) or L1 (Laplace).
      share: > 0; part of the budget, relative to the shares of the other releases of the run.
      geometry: see `Geometry`.
      windows: releases of this law that one unit moves, if `sensitivity` is that of all of them together.
      meaning: what it says; no part of its law, so that specs are equal, and plans bound, without it.
    """

    name: str
    shape: tuple[int, ...]
    mechanism: Mechanism
    sensitivity: int
    share: float
    geometry: Geometry = Geometry.VECTOR
    windows: int = 1
    meaning: Meaning = dataclasses.field(default=UNSAID, compare=False, repr=False)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    @property
    def law(self) -> dict[str, Any]:
        """All but the meaning, by name."""
        found = dataclasses.asdict(self)
        del found["meaning"]
        return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlan:
    """A calibrated `ReleaseSpec`.

    Attributes:
      spec: what is released.
      noise_multiplier: Gaussian: noise stddev / sensitivity. Laplace: scale / sensitivity, which is
        1 / (pure epsilon of this release).
    """

    spec: ReleaseSpec
    noise_multiplier: float

    @property
    def noise_scale(self) -> float:
        """Lattice units: stddev of the discrete Gaussian (diagonal entries if SYMMETRIC) or scale of the Laplace."""
        scale = self.noise_multiplier * self.spec.sensitivity
        return float(math.ceil(scale)) if self.spec.mechanism is Mechanism.DISCRETE_LAPLACE else scale

    @property
    def noise_stddev(self) -> float:
        """Lattice units: stddev of one coordinate's noise (diagonal entries if SYMMETRIC)."""
        if self.spec.mechanism is Mechanism.DISCRETE_LAPLACE:
            return math.sqrt(2.0) * self.noise_scale
        return self.noise_scale


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoundSpec:
    """One round before calibration: `path` is unique in the run, for example "feddp_kmeans/weights"."""

    path: str
    releases: tuple[ReleaseSpec, ...]

    @property
    def size(self) -> int:
        """Coordinates of the round's statistic, all releases together."""
        return sum(release.size for release in self.releases)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """A calibrated round; its statistic is the concatenation of its releases, in order."""

    path: str
    releases: tuple[ReleasePlan, ...]

    @property
    def label(self) -> str:
        """What its steps are called in the graph."""
        return self.path.rpartition("/")[2].title().replace("_", "")

    @property
    def size(self) -> int:
        """Coordinates of the round's statistic, all releases together."""
        return sum(release.spec.size for release in self.releases)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPlan:
    """What a run will spend.

    Attributes:
      unit: privacy unit; neighbors add or remove one.
      epsilon: composed epsilon of all rounds at `delta`; at most the target.
      delta: the target delta, `discretization_slack` included.
      discretization_slack: part of delta that pays for discrete instead of continuous noise.
      rounds: in the order in which they run.
    """

    unit: PrivacyUnit
    epsilon: float
    delta: float
    discretization_slack: float
    rounds: tuple[RoundPlan, ...]

    def round(self, name: str) -> RoundPlan:
        """The round whose path is `name` or ends in "/name"; raises KeyError."""
        for candidate in self.rounds:
            if candidate.path == name or candidate.path.endswith("/" + name):
                return candidate
        raise KeyError(name)
