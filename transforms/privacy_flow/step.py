"""One step of a graph as the privacy-flow checker sees it: what it is given, and what it gives."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apache_beam.coders import registry
from apache_beam.pipeline import AppliedPTransform

from schemas.errors import PrivacyFlowError
from schemas.privacy.noise_shares import ShareLaw
from transforms.privacy_flow import audited_code
from transforms.privacy_flow.allow_list import AUDITED
from transforms.privacy_flow.known_objects import KnownObjects
from transforms.privacy_flow.rules import Level, Role, Rule
from transforms.privacy_flow.stated_sensitivity import STATED

CARRYING = (Role.CARRY, Role.SHARE, Role.MASK, Role.SUM)
"""Roles of steps that give the statistics that they are given, or sums of them."""
OF_OTHERS = "messages"
"""Origin of sums whose statistic other jobs vouch for."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Facts about the output of a step.

    Attributes:
      level: how private it is.
      label: of the step.
      parent: trace of the most private input; None at a source.
      origin: plan of the statistic that it is a sum of; None if it is something else.
      copies: how many times one element of the input may be in it.
      summed: whether statistics have been added up, so that there is one element per plan.
      shares: how the noise is split whose shares every one of the statistics has; None if any has none.
      tagged: level of its outputs besides the main one.
      inside: level of what it works on; of whatever someone takes out of its inside.
    """

    level: Level
    tagged: Level
    inside: Level
    label: str
    parent: "Trace | None" = None
    origin: Any = None
    copies: int = 1
    summed: bool = False
    shares: ShareLaw | None = None

    @property
    def path(self) -> str:
        """Labels from the source to here."""
        labels, trace = [self.label], self.parent
        while trace is not None:
            labels.append(trace.label)
            trace = trace.parent
        return " -> ".join(reversed(labels))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the graph with the traces of what it is given."""

    node: AppliedPTransform
    rule: Rule
    mains: tuple[Trace, ...]
    sides: tuple[Trace, ...]

    @property
    def label(self) -> str:
        """Its label, with those of the composites around it."""
        return str(self.node.full_label)

    @property
    def transform(self) -> Any:
        """The transform applied."""
        return self.node.transform

    @property
    def worst(self) -> Trace | None:
        """The most private input."""
        return max((*self.mains, *self.sides), key=lambda trace: trace.level, default=None)

    def refused(self, rule_and_got: str, remedy: str, trace: Trace | None = None) -> PrivacyFlowError:
        """The error that stops the job at this step."""
        path = path_to(trace or self.worst, self.label)
        return PrivacyFlowError(f"{self.label} must {rule_and_got}; {remedy}. Path: {path}.")


def path_to(trace: Trace | None, label: str) -> str:
    """Labels from the source to a step."""
    return label if trace is None else f"{trace.path} -> {label}"


def is_round(value: Any) -> bool:
    """Whether a value is a round of a protocol."""
    return isinstance(value, tuple) and {"plan", "statistic", "step"} <= set(getattr(value, "_fields", ()))


def keyed(handed: Iterable[Any], wanted: Callable[[Any], bool]) -> tuple[tuple[Any, Any], ...]:
    """The values that are wanted, with their keys: of a mapping its own, None elsewhere."""
    values = list(handed)
    mappings = [each for each in values if isinstance(each, Mapping) and each and all(map(wanted, each.values()))]
    if mappings:
        return tuple((key, each[key]) for each in mappings for key in sorted(each))
    return tuple((None, each) for each in values if wanted(each))


def check_levels(step: Step, *, trusted: bool) -> None:
    """Stops at an input that is more private than the step may be given."""
    rule = step.rule
    if rule.role is Role.TRUSTED and not trusted:
        raise step.refused(
            "stay out of a job whose outputs are public, got a step of the trusted zone", "publish releases only"
        )
    remedy = "let the sum pass the noise stage first"
    for trace in step.mains:
        if trace.level > rule.takes:
            raise step.refused(f"be given {rule.takes.words}, got {trace.level.words}", remedy, trace)
    defaults = bool(getattr(step.transform, "has_defaults", False))
    exempt = trusted and rule.takes is Level.PRIVATE and rule.role in (Role.STEP, Role.TRUSTED)
    for trace in () if exempt else (*step.sides, *(step.mains if defaults else ())):
        if trace.level > rule.sides:
            raise step.refused(f"be given {rule.sides.words} as a side input, got {trace.level.words}", remedy, trace)


def check_functions(step: Step) -> None:
    """Stops where an audited step was handed a function that is not."""
    handed = list(audited_code.handed(step.transform))
    for function in audited_code.functions(iter(handed)):
        name = audited_code.name_of(function) or ""
        if name not in AUDITED and name not in STATED:
            forms = any(audited_code.innermost(each.statistic) is function for _, each in keyed(handed, is_round))
            where = "state its sensitivity in {}/stated_sensitivity.py" if forms else "list it in {}/allow_list.py"
            raise step.refused(
                f"be handed audited functions, got {getattr(function, '__qualname__', type(function).__name__)}",
                f"{where.format('transforms/privacy_flow')} once it is audited",
            )


def check_objects(step: Step, leaves: Iterable[AppliedPTransform], known: KnownObjects) -> None:
    """Stops where a step was handed an object that is not known, or where its data pass a coder that is not."""
    nodes = list(leaves)
    coders = (registry.get_coder(each.element_type) for leaf in nodes for each in leaf.outputs.values())
    sides = (side for leaf in nodes for side in leaf.side_inputs)
    stranger = known.stranger([*audited_code.given(step.transform), *sides, *coders])
    if stranger is not None:
        raise step.refused(
            f"be handed objects of audited types, got {stranger}",
            "list its type in transforms/privacy_flow/audited_types.py once it is audited",
        )


def trace_of(step: Step) -> Trace:
    """What a step gives."""
    rule, worst = step.rule, step.worst
    reached = Level.PUBLIC if worst is None else worst.level
    level = reached if rule.gives is None else rule.gives
    private = [trace for trace in step.mains if trace.level > Level.PUBLIC]
    copies = max(sum(trace.copies for trace in private), 1) + (rule.role is Role.COPY)
    return Trace(
        level=level,
        tagged=max(level, reached) if rule.role in (Role.NOISE, Role.JOIN) else level,
        inside=max(level, reached),
        label=step.label,
        parent=None if worst is None or worst.level is Level.PUBLIC else worst,
        origin=_origin(step, private),
        copies=1 if level is Level.PUBLIC else copies,
        summed=_is_summed(step, private),
        shares=_shares(step, private),
    )


def law_of(step: Step) -> ShareLaw | None:
    """How a step that adds shares, or sums that have them, was made to split the noise."""
    return next((each for each in audited_code.handed(step.transform) if isinstance(each, ShareLaw)), None)


def _shares(step: Step, private: list[Trace]) -> ShareLaw | None:
    """The split of the noise whose shares are in all that a step gives: it adds them, or carries what has them."""
    role = step.rule.role
    if role is Role.SHARE:
        return law_of(step)
    laws = {trace.shares for trace in private}
    return laws.pop() if role in CARRYING and len(laws) == 1 else None


def _is_summed(step: Step, private: list[Trace]) -> bool:
    """Whether a step gives sums: adds up itself, or passes on what has been added up."""
    role = step.rule.role
    return role is Role.SUM or (role in CARRYING and bool(private) and all(trace.summed for trace in private))


def _origin(step: Step, private: list[Trace]) -> Any:
    """Plans of the statistics that a step gives, or gives sums of."""
    role = step.rule.role
    if role is Role.MESSAGES:
        return OF_OTHERS
    if role in CARRYING and private:
        return private[0].origin
    if role is not Role.STATISTIC:
        return None
    plans = tuple((key, each.plan) for key, each in keyed(audited_code.handed(step.transform), is_round))
    return plans or ((None, step.transform.measured()),)
