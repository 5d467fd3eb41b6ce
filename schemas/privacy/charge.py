"""What a run charges to the ledger, and what a data set may spend."""

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
"""Corrections of faults of earlier versions that this one knows. A charge holds how many its own version knew.

1: wide rows (`Charge.correction`). 2: statements (`wrong_statements`).
"""
_RELATIVE_UNITS = 1 << 26
"""Lattice units: the sensitivity of relative sums, by which they are distinguished from other sums."""
_SAFE_FEATURES, _SAFE_FEATURES_OF_MEAN = 1024, 4096
"""This many features were safe with centers in the clipping ball."""


_NO_LATTICE = LatticeNoise()


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What all runs on a data set may spend together, as a ledger entry holds it.

    Attributes:
      epsilon: total.
      delta: total.
      basic_epsilon: part of it that is set aside for runs with other than Gaussian mechanisms.
      basic_delta: likewise.
      unit: the privacy unit that is protected; None lets the first run decide.
    """

    epsilon: float
    delta: float
    basic_epsilon: float = 0.0
    basic_delta: float = 0.0
    unit: PrivacyUnit | None = None


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one run spends, settled before it reads data.

    Attributes:
      dataset: `data.name`.
      job: name of the job.
      unit: privacy unit.
      neighboring_relation: add or remove one, or replace one.
      epsilon: stated by the run, composed over its events.
      delta: likewise.
      events: as `privacy.json` lists them.
      noise: of Gaussian events on the lattice.
      scope: the partition that is charged, if the user has declared that no unit is in two of them.
      reason: the user's words for that.
      epoch: of a window of an epoch, whose windows are charged once together; None of a run on its own.
      corrections: of earlier faults, as many as the version that charged it knew.
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
        """Charge of a run with this guarantee.

        Args:
          statement: of the run.
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
        """Whether a lost release stays lost: what a window has counted is replaced by what the next one counts."""
        return self.epoch is not None

    @property
    def correction(self) -> str | None:
        """The fault of `epsilon`, if the version that charged it had a fault; in words, None if nothing is."""
        relative = [] if self.corrections >= 1 else [each for each in self.events if _is_relative(each)]
        if any(each["shape"][-1] > _safe_features(each) for each in relative):
            return "its epsilon is too small: a row changed what thousands of others added (sharp edge edge-wide-rows)"
        if relative:
            return (
                "its epsilon is too small if centers could lie far outside the clipping ball (sharp edge "
                "edge-wide-rows)"
            )
        return None

    @property
    def is_gaussian(self) -> bool:
        """Whether all events are Gaussian noise of a known multiplier."""
        return bool(self.events) and all(
            each.get("mechanism") == str(Mechanism.DISCRETE_GAUSSIAN) and each.get("noise_multiplier", 0.0) > 0.0
            for each in self.events
        )

    def to_json(self) -> dict[str, Any]:
        """Content of a ledger entry."""
        return dataclasses.asdict(self) | {"events": list(self.events), "noise": self.noise._asdict()}

    def equals(self, content: dict[str, Any]) -> bool:
        """Whether this is what a ledger entry holds, whatever corrections the version that wrote it knew."""
        return alike(Charge.from_json(content).to_json() | {"corrections": self.corrections}, self.to_json())

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Charge":
        """Inverse of `to_json`; what does not name its corrections was written before there were any."""
        return check_content({"corrections": 0} | content, cls)


def _is_relative(event: dict[str, Any]) -> bool:
    """Whether an event is the release of relative sums."""
    return (
        str(event.get("path")).endswith("sums")
        and event.get("mechanism") == str(Mechanism.DISCRETE_GAUSSIAN)
        and event.get("sensitivity_lattice", 0) >= _RELATIVE_UNITS
    )


def _safe_features(event: dict[str, Any]) -> int:
    """This many features were safe in the round of an event: the mean is measured from the middle of the ball."""
    return _SAFE_FEATURES_OF_MEAN if event["path"].endswith("/mean/sums") else _SAFE_FEATURES


def canonical(content: Any) -> str:
    """Plain data as JSON in one way only; raises ValueError for NaN and infinities."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def alike(left: object, right: object, within: float = 1e-12) -> bool:
    """Whether plain data are the same, but for the last bits of what is computed, which depend on the processor.

    Args:
      left: mappings, sequences, numbers, texts.
      right: likewise.
      within: relative difference of floats, at most.
    """
    if isinstance(left, float) and isinstance(right, float | int):
        return math.isclose(left, right, rel_tol=within)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(alike(left[name], right[name], within) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(alike(*pair, within) for pair in zip(left, right, strict=True))
    return left == right
