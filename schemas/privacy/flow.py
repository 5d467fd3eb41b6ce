"""What a job promises of its graph, and what was found in it: the privacy-flow checker compares the two."""

import dataclasses
import enum
import json
from typing import Any

from schemas.privacy.noise_shares import ShareLaw
from schemas.privacy.plan import PrivacyUnit, RoundPlan

NOT_PRIVATE = {"private": False, "label": "evaluation (not private)"}
NOT_PRIVATE_METADATA = {f"dapple.{name}": json.dumps(value) for name, value in NOT_PRIVATE.items()}
"""The same as key-value metadata of a Parquet file."""


class Zone(enum.StrEnum):
    """Where the outputs of a job may go.

    PUBLIC: anywhere; all that leaves the graph is public, released or masked.
    TRUSTED: nowhere; they are as private as the input, and labelled so.
    """

    PUBLIC = "public"
    TRUSTED = "trusted"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PromisedPlan:
    """The calibrated rounds of one run.

    Attributes:
      rounds: of the run, in order.
      unit: privacy unit; None where the checker cannot know it.
      replaces: whether one added row may take the place of another, because rows of a client are sampled.
      epsilon: that all rounds together may spend; None where the job does not compose them.
      delta: likewise.
      shares: how senders split the noise; None where a noise stage draws it.
    """

    rounds: tuple[RoundPlan, ...]
    unit: PrivacyUnit | None = None
    replaces: bool = False
    epsilon: float | None = None
    delta: float | None = None
    shares: ShareLaw | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a graph must keep.

    Attributes:
      zone: where outputs may go.
      plans: of the runs in the graph; paths of their rounds differ.
      stages: rounds whose noise this graph draws, in order; None for all rounds of all plans.
      chunk: rounds whose noise this graph draws, in order, where the same job draws that of the others in graphs
        before and after it; None where this graph is the whole run. The job states what all of them spend.
      declared: what declared mechanisms spend, in order, in the words of each.
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
        return tuple(each for plan in self.plans for each in plan.rounds) if drawn is None else drawn


TRUSTED_ZONE = Promise(zone=Zone.TRUSTED)
"""Of jobs whose output stays in the trusted zone and that release nothing on the way."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GraphPrivacy:
    """What a graph spends by its own noise stages.

    Attributes:
      rounds: whose noise it draws, in the order of its graph.
      declared: what its declared mechanisms spend.
      epsilon: of all rounds, composed; None where the job does not compose them.
      delta: likewise.
      extended: types that were registered when it was checked, as `privacy.json` lists them.
    """

    rounds: tuple[RoundPlan, ...] = ()
    extended: tuple[dict[str, Any], ...] = ()
    declared: tuple[Any, ...] = ()
    epsilon: float | None = None
    delta: float | None = None
