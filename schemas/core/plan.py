"""The privacy plan: every noised aggregate of a run, its sensitivity and its noise, fixed before data are read.

A job promises plans for its graph (`Promise`); the checker compares them with what it finds there (`GraphPrivacy`).
"""

import dataclasses
import enum
import math
from collections.abc import Hashable
from typing import Any, NamedTuple


class PrivacyUnit(enum.StrEnum):
    """The unit that neighboring data sets add or remove."""

    RECORD = "record"
    CLIENT = "client"


class Mechanism(enum.StrEnum):
    """Noise laws on the lattice (Canonne, Kamath, Steinke 2020)."""

    DISCRETE_GAUSSIAN = "discrete_gaussian"
    DISCRETE_LAPLACE = "discrete_laplace"


class Allocation(enum.StrEnum):
    """Ways to split the budget: Gaussian noise everywhere and shrinkage, or as Scott et al. do."""

    TUNED = "tuned"
    PAPER = "paper"


class Geometry(enum.StrEnum):
    """The space in which a sensitivity is a norm.

    VECTOR: the L2 (Gaussian) or L1 (Laplace) norm of the released vector.
    SYMMETRIC: the Frobenius norm of the symmetric matrix whose upper triangle (row by row, diagonal included) is the
      vector. An off-diagonal entry stands for two, so isotropic noise has a stddev smaller by sqrt(2) there.
    """

    VECTOR = "vector"
    SYMMETRIC = "symmetric"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSpec:
    """One noised aggregate before calibration.

    Attributes:
      name: last component of the release path, unique in its round, for example "sums".
      shape: of the released int64 array; for SYMMETRIC the upper triangle, (d * (d + 1) / 2,).
      mechanism: noise law.
      sensitivity: lattice units; bounds the move of the exact sum by one unit, in L2 (Gaussian) or L1 (Laplace).
      share: > 0; part of the budget, relative to the shares of the other releases of the run.
      geometry: norm of the sensitivity.
      windows: releases of this law that one unit moves, if `sensitivity` is that of all of them together.
      meaning: a `Meaning` of `schemas/privacy/meaning.py`; no part of the law, so specs are compared without it.
    """

    name: str
    shape: tuple[int, ...]
    mechanism: Mechanism
    sensitivity: int
    share: float
    geometry: Geometry = Geometry.VECTOR
    windows: int = 1
    meaning: Any = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def is_enumerated(self) -> bool:
        """True unless mechanism or geometry is text, which equals a member of its enumeration without being one."""
        return type(self.mechanism) is Mechanism and type(self.geometry) is Geometry

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    @property
    def law(self) -> dict[str, Any]:
        """All fields but the meaning, by name."""
        fields = dataclasses.asdict(self)
        del fields["meaning"]
        return fields


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlan:
    """A calibrated `ReleaseSpec`.

    Attributes:
      noise_multiplier: noise stddev (Gaussian) or scale (Laplace: 1 / pure epsilon of the release) / sensitivity.
    """

    spec: ReleaseSpec
    noise_multiplier: float

    @property
    def noise_scale(self) -> float:
        """Stddev of the Gaussian (diagonal entries if SYMMETRIC) or scale of the Laplace noise, lattice units."""
        scale = self.noise_multiplier * self.spec.sensitivity
        return float(math.ceil(scale)) if self.spec.mechanism is Mechanism.DISCRETE_LAPLACE else scale

    @property
    def noise_stddev(self) -> float:
        """Stddev of one coordinate's noise (diagonal entries if SYMMETRIC), lattice units."""
        if self.spec.mechanism is Mechanism.DISCRETE_LAPLACE:
            return math.sqrt(2.0) * self.noise_scale
        return self.noise_scale


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoundSpec:
    """One round before calibration: `path` is unique in the run, for example "feddp_kmeans/weights"."""

    path: str
    releases: tuple[ReleaseSpec, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """A calibrated round; its statistic is the concatenation of its releases, in order."""

    path: str
    releases: tuple[ReleasePlan, ...]

    @property
    def label(self) -> str:
        """Name of its steps in the graph."""
        return self.path.rpartition("/")[2].title().replace("_", "")

    @property
    def size(self) -> int:
        """Coordinates of the round's statistic, all releases together."""
        return sum(release.spec.size for release in self.releases)


class LatticeNoise(NamedTuple):
    """Parameters of Gaussian noise on the lattice, all zero if every mechanism is continuous or pure.

    Attributes:
      lower: A, the logarithm of the largest ratio of discrete to rounded continuous noise.
      mean: the mean of B, the logarithm of the inverse ratio.
      square, largest: weights of B's fluctuations, summed in square, and the largest.
    """

    lower: float = 0.0
    mean: float = 0.0
    square: float = 0.0
    largest: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPlan:
    """The calibrated plan of a run.

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
        """Finds the round whose path is `name` or ends in "/name"; raises KeyError."""
        for candidate in self.rounds:
            if candidate.path == name or candidate.path.endswith("/" + name):
                return candidate
        raise KeyError(name)


class Zone(enum.StrEnum):
    """Destinations of a job's outputs.

    PUBLIC: anywhere; all that leaves the graph is public, released or masked.
    TRUSTED: nowhere; outputs are as private as the input, and labeled so.
    """

    PUBLIC = "public"
    TRUSTED = "trusted"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PromisedPlan:
    """The calibrated rounds of one run.

    Attributes:
      rounds: in order.
      unit: None if the checker can't know it.
      replaces: true if one added row may take the place of another, because rows of a client are sampled.
      shares_cost: epsilon that sums of shares cost beside single draws of the noise.
      epsilon: limit for all rounds together; None if the job doesn't compose them.
      delta: likewise.
      shares: split of the noise among senders, equal only to itself; None if a noise stage draws the noise.
    """

    rounds: tuple[RoundPlan, ...]
    unit: PrivacyUnit | None = None
    replaces: bool = False
    shares_cost: float = 0.0
    epsilon: float | None = None
    delta: float | None = None
    shares: Hashable | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The promise of a job for a graph.

    Attributes:
      zone: destination of the outputs.
      plans: of the runs in the graph; paths of their rounds differ.
      stages: rounds whose noise this graph draws, in order; None for all rounds of all plans.
      chunk: the same if earlier and later graphs of the job draw the rest, and the job states the spending of all.
      declared: statements of spending by declared mechanisms, in order.
    """

    zone: Zone
    plans: tuple[PromisedPlan, ...] = ()
    stages: tuple[RoundPlan, ...] | None = None
    chunk: tuple[RoundPlan, ...] | None = None
    declared: tuple[Any, ...] = ()

    @property
    def noised(self) -> tuple[RoundPlan, ...]:
        """Rounds whose noise this graph draws."""
        drawn = self.stages if self.chunk is None else self.chunk
        return tuple(round_ for plan in self.plans for round_ in plan.rounds) if drawn is None else drawn


TRUSTED_ZONE = Promise(zone=Zone.TRUSTED)
"""The promise of jobs whose output stays in the trusted zone and that release nothing on the way."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GraphPrivacy:
    """Spending of a checked graph.

    Attributes:
      rounds: rounds whose noise it draws, in the order of the graph.
      extended: types that were registered when it was checked, as `privacy.json` lists them.
      declared: statements of spending by declared mechanisms.
      epsilon: of all rounds, composed; None if the job doesn't compose them.
      delta: likewise.
    """

    rounds: tuple[RoundPlan, ...] = ()
    extended: tuple[dict[str, Any], ...] = ()
    declared: tuple[Any, ...] = ()
    epsilon: float | None = None
    delta: float | None = None
