"""Charges of runs to the ledger, and the limit of a data set."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import pydantic

from dapple_dp.schemas.core.plan import LatticeNoise, Mechanism, PrivacyUnit
from dapple_dp.schemas.privacy.statement import PrivacyStatement
from dapple_dp.schemas.settings.json_schema import FILE_CONTENT, check_content

_KNOWN_CORRECTIONS = 2
"""Number of known corrections of earlier versions' faults; a charge stores the number that its version knew.

1: wide rows (`Charge.correction`). 2: statements (`wrong_statements`).
"""
_RELATIVE_UNITS = 1 << 26
"""Sensitivity of relative sums, in lattice units, by which they are distinguished from other sums."""
_SAFE_FEATURES, _SAFE_FEATURES_OF_MEAN = 1024, 4096
"""Numbers of features up to which the epsilon was right, as long as centers lay in the clipping ball."""


_NO_LATTICE = LatticeNoise()


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Privacy limit for all runs on a data set, as stored in a ledger entry.

    Attributes:
      epsilon: total.
      delta: total.
      basic_epsilon: part of the total that is reserved for runs with other than Gaussian mechanisms.
      basic_delta: the same for delta.
      unit: the protected privacy unit; None lets the first run decide.
    """

    epsilon: float
    delta: float
    basic_epsilon: float = 0.0
    basic_delta: float = 0.0
    unit: PrivacyUnit | None = None


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Privacy cost of one run, fixed before it reads data.

    Attributes:
      dataset: `data.name`.
      job: name of the job.
      unit: privacy unit.
      neighboring_relation: add or remove one, or replace one.
      epsilon: total in the run's statement, composed over its events.
      delta: total in the run's statement.
      events: releases of the run, in the form of `privacy.json`.
      noise: parameters of the Gaussian noise on the lattice.
      scope: the partition that is charged, if the user declared that no unit is in two partitions.
      reason: the user's reason for that.
      epoch: epoch of a window, whose windows share one charge; None for a single run.
      corrections: number of corrections that the version which wrote the charge knew.
    """

    dataset: str
    job: str
    unit: PrivacyUnit
    neighboring_relation: str
    epsilon: float
    delta: float
    events: tuple[dict[str, Any], ...]
    noise: LatticeNoise = _NO_LATTICE
    scope: str | None = None
    reason: str | None = None
    epoch: dict[str, Any] | None = None
    corrections: int = _KNOWN_CORRECTIONS

    @classmethod
    def of(cls, statement: PrivacyStatement, *, dataset: str, job: str, **more: Any) -> "Charge":
        """Creates the charge of a run from its privacy statement.

        Args:
          statement: privacy statement of the run.
          dataset: its `data.name`.
          job: name of the job.
          more: `noise`, `scope` and `reason`.
        """
        return cls(
            dataset=dataset,
            job=job,
            unit=statement.unit,
            neighboring_relation=statement.neighboring_relation,
            epsilon=statement.epsilon,
            delta=statement.delta,
            events=statement.events,
            epoch=statement.epoch,
            **more,
        )

    @property
    def is_drawn_once(self) -> bool:
        """True if a lost release can't be drawn again: the next window has overwritten the counts behind it."""
        return self.epoch is not None

    @property
    def correction(self) -> str | None:
        """Describes how `epsilon` is wrong, if an earlier version charged it too low; None otherwise."""
        relative = [] if self.corrections >= 1 else [event for event in self.events if _is_relative(event)]
        if any(event["shape"][-1] > _safe_features(event) for event in relative):
            return "its epsilon is too small: a row changed what thousands of others added (sharp edge edge-wide-rows)"
        if relative:
            return (
                "its epsilon is too small if centers could lie far outside the clipping ball (sharp edge "
                "edge-wide-rows)"
            )
        return None

    @property
    def is_gaussian(self) -> bool:
        """True if there are events, and all of them are Gaussian noise with a known multiplier."""
        return bool(self.events) and all(
            event.get("mechanism") == str(Mechanism.DISCRETE_GAUSSIAN) and event.get("noise_multiplier", 0.0) > 0.0
            for event in self.events
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the charge as the content of a ledger entry."""
        return dataclasses.asdict(self) | {"events": list(self.events), "noise": self.noise._asdict()}

    def equals(self, content: dict[str, Any]) -> bool:
        """Returns whether a ledger entry holds this charge; the number of corrections isn't compared."""
        return alike(Charge.from_json(content).to_json() | {"corrections": self.corrections}, self.to_json())

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Charge":
        """Inverse of `to_json`; content without `corrections` is older than the first correction."""
        return check_content({"corrections": 0} | content, cls)


def _is_relative(event: dict[str, Any]) -> bool:
    """Returns whether an event is the release of relative sums."""
    return (
        str(event.get("path")).endswith("sums")
        and event.get("mechanism") == str(Mechanism.DISCRETE_GAUSSIAN)
        and event.get("sensitivity_lattice", 0) >= _RELATIVE_UNITS
    )


def _safe_features(event: dict[str, Any]) -> int:
    """Returns the number of features up to which a release was safe; the mean is measured from the ball's center."""
    return _SAFE_FEATURES_OF_MEAN if event["path"].endswith("/mean/sums") else _SAFE_FEATURES


def canonical(content: Any) -> str:
    """Serializes plain data to JSON in exactly one way; raises ValueError for NaN and infinities."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def alike(left: object, right: object, within: float = 1e-12) -> bool:
    """Compares plain data; floats may differ in their last bits, which depend on the processor.

    Args:
      left: mappings, sequences, numbers, texts.
      right: the same.
      within: maximum relative difference of floats.
    """
    if isinstance(left, float) and isinstance(right, float | int):
        return math.isclose(left, right, rel_tol=within)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(alike(left[name], right[name], within) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(alike(*pair, within) for pair in zip(left, right, strict=True))
    return left == right
