"""The privacy-flow checker: walks a built graph before it runs, and stops what leads private data past the noise.

Everything that is computed from private input stays private until it has passed the noise stage, a mask, or a declared
mechanism. Code that is not in `transforms.flow_allow_list` is refused wherever it stands. What the noise stages of the
graph spend is composed, and must be what the job has planned. It does not see inside of audited code.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.pvalue import PBegin, PCollection

from schemas.errors import PrivacyFlowError
from schemas.flow import GraphPrivacy, Promise, Zone
from schemas.plan import PrivacyUnit, RoundPlan
from schemas.table import TableContract
from transforms import accounting, audited_code
from transforms.declared_mechanism import DeclaredMechanism
from transforms.flow_allow_list import AUDITED
from transforms.flow_rules import Level, Role, Rule
from transforms.stated_sensitivity import STATED, understatement

_OF_OTHERS = "messages"
"""Origin of sums whose statistic other jobs vouch for."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is known of what a step gives.

    Attributes:
      level: how private it is.
      label: of the step.
      parent: trace of the most private input; None at a source.
      origin: plan of the statistic that it is a sum of; None if it is something else.
      copies: how many times one element of the input may be in it.
      summed: whether statistics have been added up, so that there is one element per plan.
      tagged: level of its outputs besides the main one.
      inside: level of what it works on; of whatever somebody takes out of its inside.
    """

    level: Level
    tagged: Level
    inside: Level
    label: str
    parent: "Trace | None" = None
    origin: Any = None
    copies: int = 1
    summed: bool = False

    @property
    def path(self) -> str:
        """Labels from the source to here."""
        labels, trace = [self.label], self.parent
        while trace is not None:
            labels.append(trace.label)
            trace = trace.parent
        return " -> ".join(reversed(labels))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One step of the graph with the traces of what it is given."""

    node: AppliedPTransform
    rule: Rule
    mains: tuple[Trace, ...]
    sides: tuple[Trace, ...]

    @property
    def label(self) -> str:
        return str(self.node.full_label)

    @property
    def transform(self) -> Any:
        return self.node.transform

    @property
    def worst(self) -> Trace | None:
        """The most private input."""
        return max((*self.mains, *self.sides), key=lambda trace: trace.level, default=None)

    def refused(self, rule_and_got: str, remedy: str, trace: Trace | None = None) -> PrivacyFlowError:
        """The error that stops the job at this step."""
        path = _path(trace or self.worst, self.label)
        return PrivacyFlowError(f"{self.label} must {rule_and_got}; {remedy}. Path: {path}.")


def check_graph(pipeline: beam.Pipeline, promise: Promise) -> GraphPrivacy:
    """Checks a built graph; its cost grows with the number of its steps.

    Args:
      pipeline: with all its steps, not run yet.
      promise: what the job has planned and where its outputs may go.

    Returns:
      What the graph's own noise stages spend.

    Raises:
      PrivacyFlowError: if private data may reach what they must not reach, naming the steps from source to sink; or if
        what the graph spends is not what the job has planned.
    """
    walk = _Walk(promise)
    pipeline.visit(walk)
    rounds, declared = tuple(walk.drawn), tuple(walk.declared)
    _check_spent(rounds, declared, promise)
    epsilon, delta = composed(rounds, promise)
    return GraphPrivacy(rounds=rounds, declared=declared, epsilon=epsilon, delta=delta)


def check_chunk(found: Iterable[RoundPlan], persisted: tuple[RoundPlan, ...], first: int) -> int:
    """Checks the noise stages of one chunk of a run against the plan that was written before its first chunk.

    Args:
      found: rounds of the chunk's graph, as `check_graph` returns them.
      persisted: all rounds of the run, in order.
      first: number of rounds that earlier chunks have released.

    Returns:
      Number of rounds released after this chunk: `first` of the next one.

    Raises:
      PrivacyFlowError: if the chunk's rounds are not the next ones of the plan.
    """
    rounds = tuple(found)
    if rounds != persisted[first : first + len(rounds)]:
        raise PrivacyFlowError(
            f"the rounds of a chunk must be those of the run's plan from number {first} on, got "
            f"{_paths(rounds) or 'none'}; run the next chunk of the same job."
        )
    return first + len(rounds)


def composed(rounds: tuple[RoundPlan, ...], promise: Promise) -> tuple[float | None, float | None]:
    """Epsilon and delta of the rounds of a graph; None for both where its job does not compose them.

    Raises:
      PrivacyFlowError: if epsilon is more than the job may spend.
    """
    plan = promise.plans[0] if len(promise.plans) == 1 else None
    if plan is None or plan.epsilon is None or plan.delta is None or not rounds:
        return None, None
    epsilon = accounting.spent_epsilon(rounds, plan.epsilon, plan.delta)
    if not epsilon <= plan.epsilon:
        raise PrivacyFlowError(
            f"the noise stages of the graph must spend at most epsilon {plan.epsilon:g}, got {epsilon:g} at delta "
            f"{plan.delta:g}; calibrate the plan again."
        )
    return epsilon, plan.delta


def _check_spent(rounds: tuple[RoundPlan, ...], declared: tuple[Any, ...], promise: Promise) -> None:
    """Stops where the graph spends anything else than what was planned."""
    wanted, found = collections.Counter(promise.noised), collections.Counter(rounds)
    if found != wanted:
        extra, missing = _paths((found - wanted).elements()), _paths((wanted - found).elements())
        raise PrivacyFlowError(
            f"the noise stages of the graph must be those of the plan, got {extra or 'none'} besides and "
            f"{missing or 'none'} left out; draw every release that was accounted for once."
        )
    if declared != promise.declared:
        raise PrivacyFlowError(
            f"the declared mechanisms of the graph must be those that the job accounts for, in order, got "
            f"{len(declared)} where it has {len(promise.declared)}, or others; account for each."
        )


def _paths(rounds: Iterable[RoundPlan]) -> str:
    return ", ".join(each.path for each in rounds)


class _Walk(PipelineVisitor):
    """Visits steps in the order in which data pass them."""

    def __init__(self, promise: Promise):
        self.drawn: list[RoundPlan] = []
        self.declared: list[Any] = []
        self._paths: set[str] = set()
        self._trusted = promise.zone is Zone.TRUSTED
        self._plans = {each.path: plan for plan in promise.plans for each in plan.rounds}
        self._traces: dict[AppliedPTransform, Trace] = {}
        self._inside: AppliedPTransform | None = None

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        """Takes a composite as a whole if it is audited as one; otherwise its steps are looked at one by one."""
        if self._inside is not None or transform_node.transform is None:
            return
        if _rule(transform_node) is not None:
            self._inside = transform_node
            self._pass(transform_node, list(_leaves(transform_node)))
        elif not _can_be_looked_into(transform_node):
            raise self._unknown(transform_node)

    def leave_composite_transform(self, transform_node: AppliedPTransform) -> None:
        """Goes on step by step."""
        if self._inside is transform_node:
            self._inside = None

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        """Follows one step."""
        if self._inside is None:
            self._pass(transform_node, [transform_node])

    def _pass(self, node: AppliedPTransform, leaves: list[AppliedPTransform]) -> None:
        """Checks what a step is given, and remembers what it gives."""
        rule = _rule(node)
        if rule is None or audited_code.is_altered(node.transform):
            raise self._unknown(node)
        step = self._step(node, rule, leaves)
        _check_levels(step, trusted=self._trusted)
        _check_functions(step)
        if rule.role is Role.STATISTIC:
            self._check_statistic(step)
        trace = _given(step)
        if rule.role is Role.NOISE:
            self._draw(step)
        if rule.role is Role.DECLARED:
            self._declare(step)
        hidden = dataclasses.replace(trace, level=max(trace.level, trace.inside))
        shown = {value.producer for value in node.outputs.values()}
        for leaf in leaves:
            self._traces[leaf] = trace if leaf in shown else hidden

    def _step(self, node: AppliedPTransform, rule: Rule, leaves: list[AppliedPTransform]) -> _Step:
        """A step and its inputs from elsewhere; a composite may use one several times inside."""
        own = set(leaves)
        given = [value for leaf in leaves for value in leaf.inputs if not isinstance(value, PBegin)]
        mains = given if leaves == [node] else list(dict.fromkeys(given))
        sides = [side.pvalue for leaf in leaves for side in leaf.side_inputs]
        return _Step(
            node=node,
            rule=rule,
            mains=tuple(self._trace(each) for each in mains if each.producer not in own),
            sides=tuple(self._trace(each) for each in sides if each.producer not in own),
        )

    def _trace(self, value: PCollection) -> Trace:
        """What is known of a collection."""
        trace = self._traces.get(value.producer)
        if trace is None:
            raise PrivacyFlowError(f"every input must come from a step of the graph, got {value}; build it anew.")
        return trace if value.tag is None else dataclasses.replace(trace, level=trace.tagged)

    def _unknown(self, node: AppliedPTransform) -> PrivacyFlowError:
        """Whoever is not listed is refused, whatever it is given."""
        given = [each.producer for each in (*node.inputs, *(side.pvalue for side in node.side_inputs))]
        traces = [self._traces[each] for each in given if each in self._traces]
        worst = max(traces, key=lambda trace: trace.level, default=None)
        code = audited_code.code_of(node.transform)
        name = f"{getattr(code, '__module__', '')}:{getattr(code, '__qualname__', type(code).__name__)}"
        return PrivacyFlowError(
            f"{node.full_label} must run audited code, got {name}; leave it out, or audit it and list it in "
            f"transforms/flow_allow_list.py. Path: {_path(worst, node.full_label)}."
        )

    def _check_statistic(self, step: _Step) -> None:
        """Stops at a round that is not planned, or that states less than its statistic does."""
        handed = list(audited_code.handed(step.transform))
        by_client = [each.by_client for each in handed if isinstance(each, TableContract)]
        for _, each in _keyed(handed, _is_round):
            plan = self._plans.get(each.plan.path)
            if plan is None or each.plan not in plan.rounds:
                raise step.refused(f"belong to a round of the plan, got {each.plan.path}", "account for it")
            name = audited_code.name_of(_innermost(each.statistic))
            found = understatement(name, each.plan, replaces=plan.replaces)
            if found is not None:
                raise step.refused(
                    f"state the sensitivity of its statistic, got {found}", "ask it of the code that bounds the rows"
                )
            if plan.unit is PrivacyUnit.CLIENT and not (by_client and all(by_client)):
                raise step.refused("read rows by client, got single rows", "group them, or use unit record")

    def _draw(self, step: _Step) -> None:
        """Counts the rounds of a noise stage; stops at one that does not fit what it noises."""
        plans = _keyed(audited_code.handed(step.transform), lambda each: isinstance(each, RoundPlan))
        given = step.mains[0] if len(step.mains) == 1 else None
        if given is None or given.origin is None or not given.summed:
            raise step.refused("be given the sum of one statistic, got something else", "noise the sum itself")
        if given.copies != 1:
            raise step.refused("be given every statistic once, got some several times", "add up each one once")
        if given.origin not in (plans, _OF_OTHERS):
            raise step.refused(
                f"have the plan of the statistic that it is given, got {_paths(plan for _, plan in plans)}",
                "give both the same plan",
            )
        for _, plan in plans:
            if plan.path in self._paths or plan.path not in self._plans:
                raise step.refused(
                    f"draw a planned release that was not drawn before, got {plan.path}", "account for every release"
                )
            self._paths.add(plan.path)
            self.drawn.append(plan)

    def _declare(self, step: _Step) -> None:
        """Counts a mechanism; stops where its inputs were not measured by its plan."""
        mechanism = step.transform
        if not isinstance(mechanism, DeclaredMechanism):
            raise step.refused("be a DeclaredMechanism, got another class", "derive it from that")
        measured = mechanism.measured()
        if measured is not None and any(
            trace.origin != ((None, measured),) or trace.copies != 1 for trace in step.mains
        ):
            raise step.refused("be given what was measured by its own plan, got something else", "measure it by that")
        self.declared.append(mechanism.declared())


def _rule(node: AppliedPTransform) -> Rule | None:
    """The rule of a step's code; None if it is not audited."""
    return AUDITED.get(audited_code.name_of(audited_code.code_of(node.transform)) or "")


def _can_be_looked_into(node: AppliedPTransform) -> bool:
    """Whether a composite that is not listed is known by its steps; one that declares itself must be listed."""
    if isinstance(node.transform, DeclaredMechanism) or not (node.parts or node.outputs):
        return False
    return audited_code.runs_as_itself(node.transform)


def _leaves(node: AppliedPTransform) -> Iterator[AppliedPTransform]:
    """Steps inside of a composite, those of its parts included."""
    for part in node.parts:
        yield part
        yield from _leaves(part)


def _path(trace: Trace | None, label: str) -> str:
    """Labels from the source to a step."""
    return label if trace is None else f"{trace.path} -> {label}"


def _is_round(value: Any) -> bool:
    """Whether a value is a round of a protocol."""
    return isinstance(value, tuple) and {"plan", "statistic", "step"} <= set(getattr(value, "_fields", ()))


def _keyed(handed: Iterable[Any], wanted: Callable[[Any], bool]) -> tuple[tuple[Any, Any], ...]:
    """The values that are wanted, with their keys: of a mapping its own, None elsewhere."""
    values = list(handed)
    mappings = [each for each in values if isinstance(each, Mapping) and each and all(map(wanted, each.values()))]
    if mappings:
        return tuple((key, each[key]) for each in mappings for key in sorted(each))
    return tuple((None, each) for each in values if wanted(each))


def _innermost(function: Any) -> Any:
    """A function without arguments that were given to it before."""
    return _innermost(function.func) if isinstance(function, functools.partial) else function


def _check_levels(step: _Step, *, trusted: bool) -> None:
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


def _check_functions(step: _Step) -> None:
    """Stops where an audited step was handed a function that is not."""
    for function in audited_code.functions(audited_code.handed(step.transform)):
        name = audited_code.name_of(function) or ""
        if name not in AUDITED and name not in STATED:
            raise step.refused(
                f"be handed audited functions, got {getattr(function, '__qualname__', type(function).__name__)}",
                "list it in transforms/flow_allow_list.py once it is audited",
            )


def _given(step: _Step) -> Trace:
    """What a step gives."""
    rule, worst = step.rule, step.worst
    reached = Level.PUBLIC if worst is None else worst.level
    level = reached if rule.gives is None else rule.gives
    private = [trace for trace in step.mains if trace.level > Level.PUBLIC]
    copies = max(sum(trace.copies for trace in private), 1) + (rule.role is Role.COPY)
    return Trace(
        level=level,
        tagged=max(level, reached) if rule.role is Role.NOISE else level,
        inside=max(level, reached),
        label=step.label,
        parent=None if worst is None or worst.level is Level.PUBLIC else worst,
        origin=_origin(step, private),
        copies=1 if level is Level.PUBLIC else copies,
        summed=_is_summed(step, private),
    )


def _is_summed(step: _Step, private: list[Trace]) -> bool:
    """Whether a step gives sums: adds up itself, or passes on what has been added up."""
    role = step.rule.role
    return role is Role.SUM or (role is Role.CARRY and bool(private) and all(trace.summed for trace in private))


def _origin(step: _Step, private: list[Trace]) -> Any:
    """Plans of the statistics that a step gives, or gives sums of."""
    role = step.rule.role
    if role is Role.MESSAGES:
        return _OF_OTHERS
    if role in (Role.CARRY, Role.SUM) and private:
        return private[0].origin
    if role is not Role.STATISTIC:
        return None
    plans = tuple((key, each.plan) for key, each in _keyed(audited_code.handed(step.transform), _is_round))
    return plans or ((None, step.transform.measured()),)
