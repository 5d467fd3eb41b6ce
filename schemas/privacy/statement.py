"""The privacy guarantee of a run, with the sentences that all outputs repeat."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from dapple_dp.schemas.choices import MaskScheme, NoiseBy, ReportMode, Runner, Trust
from dapple_dp.schemas.core.plan import GraphPrivacy, PrivacyPlan, PrivacyUnit
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.privacy.meaning import meaning_of
from dapple_dp.schemas.privacy.noise_shares import ZEROED_OUT
from dapple_dp.schemas.settings.json_schema import FILE_CONTENT, check_content

NEIGHBORING_RELATION = "add_or_remove_one"
_MOVED = "add or remove one unit"
_MOVED_IN_WINDOW = f"{_MOVED} in one window; all other units keep their windows, and the same of their rows are late"
_Spent = Annotated[float, Field(ge=0.0)]
_ACTORS: dict[Trust | ReportMode, str] = {
    Trust.CENTRAL: "the pipeline is the trusted aggregator",
    ReportMode.LOCAL: "nobody but a client's own device is trusted",
    ReportMode.SHUFFLE: "the shuffler is trusted to forget who sent what",
}
_MASKED_NOISE = {
    NoiseBy.AGGREGATOR: "the aggregator adds up masked messages and adds the noise",
    NoiseBy.BOTH: "the aggregator adds up masked messages and adds the noise, and so does the party that unmasks",
    NoiseBy.CLIENTS: "each sender adds its share of the noise, and the aggregator adds up masked messages",
}
_MASKS = {
    MaskScheme.SHARED_SECRET: "senders hold the masks",
    MaskScheme.PAIRWISE: "senders share masks in pairs",
}
SIMULATED = "simulated in one job"
"""Value of `masked["roles"]` if one job plays all roles of masked aggregation."""
KEY_STREAM = "ChaCha20 under a secret key"
DEVICES = "the random generator of each client's operating system"
PIPELINE_DP = "the random generator of PipelineDP"
"""Sources of the noise's random bits."""


def computational(source: str, masks: bool = False) -> str:
    """Returns the sentence on the assumption behind every guarantee: no computer draws noise from truly random bits.

    Args:
      source: source of the random bits, such as `KEY_STREAM`.
      masks: whether messages are hidden by masks, whose bits come from the same source.

    Source: Mironov, Pandey, Reingold, Vadhan (2009), "Computational differential privacy": IND-CDP.
    """
    bits = "the noise and of the masks" if masks else "the noise"
    return f"This holds against anyone who cannot tell the bits of {bits} ({source}) from truly random ones."


def odds(epsilon: float, delta: float) -> float:
    """Returns the largest probability that a guess at even odds is right: (e^epsilon + delta) / (1 + e^epsilon).

    Source: Kairouz, Oh, Viswanath (2015), "The composition theorem for differential privacy": the best point for
      equal priors in the region of errors of any test.
    """
    return (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))


def describe(plan: PrivacyPlan) -> list[dict[str, Any]]:
    """Returns one row of plain data per release, in order, in the form of `privacy.json`."""
    return [
        {
            "path": f"{round_.path}/{release.spec.name}",
            **({"tells": meaning_of(release.spec).tells} if meaning_of(release.spec).tells else {}),
            "mechanism": str(release.spec.mechanism),
            "geometry": str(release.spec.geometry),
            "shape": list(release.spec.shape),
            "sensitivity_lattice": release.spec.sensitivity,
            "noise_multiplier": release.noise_multiplier,
            "noise_stddev_lattice": release.noise_stddev,
        }
        for round_ in plan.rounds
        for release in round_.releases
    ]


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatement:
    """The guarantee of a run.

    Attributes:
      unit: the privacy unit, which a neighbor adds or removes.
      neighboring_relation: "add_or_remove_one"; "zeroed_out" if senders split the noise, since who sends is public.
      epsilon: spent, composed over all events.
      delta: spent.
      events: one row per release: path, mechanism, sensitivity, noise multiplier.
      trust: "central": the pipeline is the trusted aggregator; "masked": it adds up masked messages;
        "local" and "shuffle": each report is private on its own, or once shuffled.
      extended: types besides Dapple's own that the guarantee relies on, in the form of `privacy.json`.
      masked: for trust "masked": scheme, who adds noise, bytes of a message by round, who plays the roles; with several
        parties, the unit among them; for a window of an epoch, what each role keeps of earlier windows.
      epoch: for a window of an epoch; epsilon and delta then cover all of its windows together.
      window: for a window of a Beam pipeline: start and end of its event times; None otherwise.
      chosen: space, shares and Lloyd rounds that `privacy.shares: auto` chose from public data; None otherwise.
      engine: "InProcess" if the rounds ran in one process, without a graph to check; None if they ran on Beam.
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
    window: str | None = None
    chosen: dict[str, Any] | None = None
    engine: Literal[Runner.IN_PROCESS] | None = None

    @classmethod
    def from_plan(cls, plan: PrivacyPlan, events: list[dict[str, Any]], **more: Any) -> "PrivacyStatement":
        """Creates the statement of a plan; `events` are its rows from `describe`, `more` are other fields."""
        usual = {"neighboring_relation": NEIGHBORING_RELATION, "trust": Trust.CENTRAL}
        return cls(unit=plan.unit, epsilon=plan.epsilon, delta=plan.delta, events=tuple(events), **usual | more)

    def of_graph(self, found: GraphPrivacy, engine: Literal[Runner.IN_PROCESS] | None = None) -> "PrivacyStatement":
        """Returns the statement with the spending of the graph that ran, or of the rounds in memory.

        Raises:
          PrivacyFlowError: if the graph doesn't compose to the epsilon of the plan.
        """
        if found.epsilon is None or found.delta is None or not math.isclose(found.epsilon, self.epsilon, rel_tol=1e-9):
            raise PrivacyFlowError(
                f"the noise stages of the graph must compose to the planned epsilon {self.epsilon:g}, got "
                f"{found.epsilon}; calibrate the plan again."
            )
        return dataclasses.replace(
            self, epsilon=found.epsilon, delta=found.delta, extended=found.extended, engine=engine
        )

    def with_roles(self, roles: str) -> "PrivacyStatement":
        """Returns the statement for masked aggregation among several parties, each with its own job and rows."""
        others = {"roles": roles, "one_unit": UNITS[self.unit].at_party}
        return dataclasses.replace(self, masked=(self.masked or {}) | others)

    def __str__(self) -> str:
        """Returns a label: the protected unit, the budget, and who must be trusted."""
        lines = (
            f"protects {UNITS[self.unit].protects}",
            f"epsilon {self.epsilon:.6g}, delta {self.delta:.3g}" + (f", {self.covers}" if self.covers else ""),
            f"neighboring relation: {self.neighboring_relation}",
            f"trust: {self.actors}",
        )
        return "\n".join(lines)

    @property
    def covers(self) -> str | None:
        """Description of the windows that epsilon and delta cover; None if they cover just this run."""
        if self.window is not None:
            return f"the window {self.window}, and all windows of the stream together"
        if self.epoch is None:
            return None
        return f"all {self.epoch['windows']:,} windows of epoch {self.epoch['name']} together"

    @property
    def actors(self) -> str:
        """Description of who must be trusted with what."""
        if self.engine is not None:
            return "the process that ran the fit reads the rows, and is trusted with them"
        if self.masked is None:
            return _ACTORS[Trust(self.trust)] if self.trust in set(Trust) else _ACTORS[ReportMode(self.trust)]
        one_unit = f"; one unit is {self.masked['one_unit']}" if "one_unit" in self.masked else ""
        return f"{self._masked_noise}; roles {self.masked['roles']}{one_unit}"

    @property
    def _masked_noise(self) -> str:
        """Description of who aggregates, who adds the noise, and who holds the masks."""
        masked = self.masked or {}
        return f"{_MASKED_NOISE[NoiseBy(masked['noise_by'])]}; {_MASKS[MaskScheme(masked['scheme'])]}"

    @property
    def has_parties(self) -> bool:
        """True if the roles of masked aggregation were jobs of several parties, each with its own rows and keys."""
        return (self.masked or {}).get("roles", SIMULATED) != SIMULATED

    @property
    def ran(self) -> str | None:
        """Description of where rounds without a graph ran, and how they were audited; None for a run on Beam."""
        if self.engine is None:
            return None
        return (
            f"{self.engine}: in one process, without a Beam graph; the code, plan and noise of all rounds were audited "
            "before any noise was drawn"
        )

    @property
    def aggregation(self) -> str:
        """Description of how sums become releases, in sentences."""
        if self.masked is not None:
            who = self._masked_noise
            return f"{who[0].upper()}{who[1:]}. Messages are uniform to whoever holds none of their masks."
        if self.engine is not None:
            return (
                "One process is the trusted aggregator: it reads rows, and only noised sums leave the function that "
                "adds noise."
            )
        return (
            "The pipeline is the trusted aggregator: its workers read rows, and only noised sums leave the stage that "
            "adds noise."
        )

    @property
    def assumptions(self) -> str:
        """Description of who is trusted with what, in sentences; for masked aggregation, it comes from `coalitions`."""
        if self.engine is not None:
            return "Whoever runs the process is trusted, and so is its storage; readers of the outputs are not."
        if self.masked is None:
            return (
                "The operator of the pipeline, its workers and its storage are trusted; readers of the outputs are not."
            )
        rows = self.masked.get("coalitions", [])
        lists = {holds: "; ".join(row["parties"] for row in rows if row["holds"] is holds) for holds in (True, False)}
        operator = " One job has all roles, so its operator, workers and storage are trusted."
        return (
            f"Parties follow the protocol. Epsilon and delta hold against: {lists[True]}. They do not hold against: "
            f"{lists[False]}.{'' if self.has_parties else operator}"
        )

    @property
    def readers(self) -> str:
        """Sentence on who may receive the releases."""
        safe = "The centers are safe to share under the guarantee above"
        if (self.masked or {}).get("noise_by") == NoiseBy.AGGREGATOR:
            return f"{safe}, but not with the aggregator, who knows the noise."
        return f"{safe}."

    @property
    def neighbors(self) -> str:
        """Description of how neighboring data sets differ in one unit."""
        zeroed = self.neighboring_relation == ZEROED_OUT
        moved = _MOVED if self.window is None else _MOVED_IN_WINDOW
        return "one unit is left out of its sender's statistic; who sends is public" if zeroed else moved

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `privacy.json`."""
        lists = {"events": list(self.events), "extended": list(self.extended)}
        content = dataclasses.asdict(self) | lists | {"covers": self.covers}
        for name in ("masked", "extended", "epoch", "window", "chosen", "covers", "engine"):
            if not content[name]:
                del content[name]
        return content


def statement_from_json(content: Mapping[str, Any]) -> PrivacyStatement:
    """Inverse of `PrivacyStatement.to_json`; raises MalformedError for other content."""
    names = {field.name for field in dataclasses.fields(PrivacyStatement)}
    return check_content({name: content[name] for name in names & content.keys()}, PrivacyStatement)
