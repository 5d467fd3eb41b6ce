"""What a run guarantees, in the words every output repeats."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
from pydantic import Field

from schemas.choices import ReportMode, Trust
from schemas.errors import PrivacyFlowError
from schemas.privacy.flow import GraphPrivacy
from schemas.privacy.plan import PrivacyPlan, PrivacyUnit
from schemas.privacy.unit import UNITS
from schemas.settings.json_schema import FILE_CONTENT, check_content

NEIGHBORING_RELATION = "add_or_remove_one"
_Spent = Annotated[float, Field(ge=0.0)]
_ACTORS: dict[Trust | ReportMode, str] = {
    Trust.CENTRAL: "the pipeline is the trusted aggregator",
    Trust.MASKED: "the aggregator adds up masked messages and adds noise; clients hold the masks",
    ReportMode.LOCAL: "nobody but a client's own device is trusted",
    ReportMode.SHUFFLE: "the shuffler is trusted to forget who sent what",
}


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatement:
    """The guarantee of a run.

    Attributes:
      unit: what one neighbor adds or removes.
      neighboring_relation: "add_or_remove_one"; "zeroed_out" where senders split the noise: who sends is public.
      epsilon: spent, composed over all events.
      delta: spent.
      events: one row per release: path, mechanism, sensitivity, noise multiplier.
      trust: "central": the pipeline is the trusted aggregator; "masked": it adds up masked messages;
        "local" and "shuffle": each report is private on its own, or once shuffled.
      extended: types on which it rests besides Dapple's own, as `privacy.json` lists them.
      masked: of trust "masked": scheme, who adds noise, bytes of a message by round, who plays the roles, and, where
        several parties do, what one unit is among them; of a window of an epoch what each role keeps of earlier ones.
      epoch: of a window of an epoch: epsilon and delta are those of all its windows together.
      chosen: space, shares and Lloyd rounds that public data chose for `privacy.shares: auto`; None elsewhere.
    """

    unit: PrivacyUnit
    neighboring_relation: str
    epsilon: _Spent
    delta: _Spent
    events: tuple[dict[str, Any], ...]
    trust: Trust | ReportMode
    masked: dict[str, Any] | None = None
    extended: tuple[dict[str, Any], ...] = ()
    epoch: dict[str, Any] | None = None
    chosen: dict[str, Any] | None = None

    @classmethod
    def from_plan(cls, plan: PrivacyPlan, events: list[dict[str, Any]], **more: Any) -> "PrivacyStatement":
        """Statement of a plan; `events` are its rows as the accountant describes them, `more` are other fields."""
        usual = {"neighboring_relation": NEIGHBORING_RELATION, "trust": Trust.CENTRAL}
        return cls(unit=plan.unit, epsilon=plan.epsilon, delta=plan.delta, events=tuple(events), **usual | more)

    def of_graph(self, found: GraphPrivacy) -> "PrivacyStatement":
        """The same guarantee with what the noise stages of the graph that ran spend together.

        Raises:
          PrivacyFlowError: if the graph composes to something else than the plan.
        """
        if found.epsilon is None or found.delta is None or not math.isclose(found.epsilon, self.epsilon, rel_tol=1e-9):
            raise PrivacyFlowError(
                f"the noise stages of the graph must compose to the planned epsilon {self.epsilon:g}, got "
                f"{found.epsilon}; calibrate the plan again."
            )
        return dataclasses.replace(self, epsilon=found.epsilon, delta=found.delta, extended=found.extended)

    def with_roles(self, roles: str) -> "PrivacyStatement":
        """The same guarantee of masked aggregation whose roles were jobs of several parties, each with its own rows."""
        others = {"roles": roles, "one_unit": UNITS[self.unit].at_party}
        return dataclasses.replace(self, masked=(self.masked or {}) | others)

    @property
    def covers(self) -> str | None:
        """What epsilon and delta are of, in words, where that is more than one run; None where it is the run."""
        if self.epoch is None:
            return None
        return f"all {self.epoch['windows']:,} windows of epoch {self.epoch['name']} together"

    @property
    def actors(self) -> str:
        """Who has to be trusted with what."""
        masked = self.masked or {}
        roles = f"; roles {masked['roles']}" if masked else ""
        one_unit = f"; one unit is {masked['one_unit']}" if "one_unit" in masked else ""
        return _ACTORS[self.trust] + roles + one_unit

    def to_json(self) -> dict[str, Any]:
        """Content of `privacy.json`."""
        lists = {"events": list(self.events), "extended": list(self.extended)}
        content = dataclasses.asdict(self) | lists | {"covers": self.covers}
        for name in ("masked", "extended", "epoch", "chosen", "covers"):
            if not content[name]:
                del content[name]
        return content


def statement_from_json(content: Mapping[str, Any]) -> PrivacyStatement:
    """Inverse of `PrivacyStatement.to_json`; raises MalformedError for another content."""
    names = {field.name for field in dataclasses.fields(PrivacyStatement)}
    return check_content({name: content[name] for name in names & content.keys()}, PrivacyStatement)
