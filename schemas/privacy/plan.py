"""The privacy plan: every noised aggregate of a run, its sensitivity and its noise, before data are read."""

import dataclasses
import enum
import math


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
    """

    name: str
    shape: tuple[int, ...]
    mechanism: Mechanism
    sensitivity: int
    share: float
    geometry: Geometry = Geometry.VECTOR
    windows: int = 1

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)


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
