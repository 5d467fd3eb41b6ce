"""What a run guarantees, in the words every output repeats."""

import dataclasses
from typing import Any

from schemas.plan import PrivacyPlan, PrivacyUnit

NEIGHBORING_RELATION = "add_or_remove_one"
TRUST = "central"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatement:
    """The guarantee of a run.

    Attributes:
      unit: what one neighbor adds or removes.
      neighboring_relation: "add_or_remove_one".
      epsilon: spent, composed over all events.
      delta: spent.
      events: one row per release: path, mechanism, sensitivity, noise multiplier.
      trust: "central": the pipeline is the trusted aggregator.
    """

    unit: PrivacyUnit
    neighboring_relation: str
    epsilon: float
    delta: float
    events: tuple[dict[str, Any], ...]
    trust: str

    @classmethod
    def from_plan(cls, plan: PrivacyPlan, events: list[dict[str, Any]]) -> "PrivacyStatement":
        """Statement of a plan; `events` are its rows as the accountant describes them."""
        return cls(
            unit=plan.unit,
            neighboring_relation=NEIGHBORING_RELATION,
            epsilon=plan.epsilon,
            delta=plan.delta,
            events=tuple(events),
            trust=TRUST,
        )

    def to_json(self) -> dict[str, Any]:
        """Content of `privacy.json`."""
        return dataclasses.asdict(self) | {"unit": str(self.unit), "events": list(self.events)}
