"""The privacy-flow checker: walks a built graph before it runs, and stops what leads private data past the noise.

Everything that is computed from private input stays private until it has passed the noise stage, a mask, or a declared
mechanism. Code that is not in `transforms.privacy_flow.allow_list` is refused wherever it stands. What the noise stages
of the graph spend is composed, and must be what the job has planned. It does not see inside of audited code.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.pvalue import PBegin, PCollection

from schemas.errors import PrivacyFlowError
from schemas.privacy.flow import GraphPrivacy, Promise, Zone
from schemas.privacy.plan import PrivacyUnit, RoundPlan
from schemas.tables.contract import TableContract
from transforms.privacy_flow import audited_code, extensions
from transforms.privacy_flow.allow_list import AUDITED
from transforms.privacy_flow.declared_mechanism import DeclaredMechanism
from transforms.privacy_flow.graph_spending import check_spent, check_values, composed, paths
from transforms.privacy_flow.known_objects import KnownObjects
from transforms.privacy_flow.rules import Role, Rule
from transforms.privacy_flow.starting_points import StartingPoints
from transforms.privacy_flow.stated_sensitivity import moves_of, understatement
from transforms.privacy_flow.step import (
    OF_OTHERS,
    Step,
    Trace,
    check_functions,
    check_levels,
    check_objects,
    is_round,
    keyed,
    law_of,
    path_to,
    trace_of,
)


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
    walk.check_promise()
    pipeline.visit(walk)
    walk.starts.check_states()
    rounds, declared = tuple(walk.drawn), tuple(walk.declared)
    check_spent(rounds, declared, promise)
    epsilon, delta = composed(rounds, promise)
    extended = tuple(extensions.marks())
    return GraphPrivacy(rounds=rounds, declared=declared, epsilon=epsilon, delta=delta, extended=extended)


class _Walk(PipelineVisitor):
    """Visits steps in the order in which data pass them."""

    def __init__(self, promise: Promise):
        self.drawn: list[RoundPlan] = []
        self.declared: list[Any] = []
        self.starts = StartingPoints()
        self._promise = promise
        self._known = KnownObjects()
        self._paths: set[str] = set()
        self._trusted = promise.zone is Zone.TRUSTED
        self._plans = {each.path: plan for plan in promise.plans for each in plan.rounds}
        self._traces: dict[AppliedPTransform, Trace] = {}
        self._inside: AppliedPTransform | None = None

    def check_promise(self) -> None:
        """Stops at a promise that holds anything but plain plans, or that another job's `privacy.json` states."""
        if self._promise.stages is not None and extensions.marks():
            raise PrivacyFlowError(
                "a run in several jobs must do without registered types, got some, which only this job could state; "
                "run it in one job, or audit and list them."
            )
        stranger = self._known.stranger([self._promise])
        if stranger is not None:
            raise PrivacyFlowError(
                f"a job must promise objects of audited types, got {stranger}; promise a plain plan."
            )
        check_values((*self._promise.noised, *(each for plan in self._promise.plans for each in plan.rounds)))

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
        check_levels(step, trusted=self._trusted)
        check_functions(step)
        check_objects(step, leaves, self._known)
        self.starts.add(step)
        if rule.role is Role.STATISTIC:
            self._check_statistic(step)
        trace = trace_of(step)
        if rule.role in (Role.SHARE, Role.MASK):
            self._check_share(step)
        if rule.role in (Role.NOISE, Role.JOIN):
            self._draw(step)
        if rule.role is Role.DECLARED:
            self._declare(step)
        hidden = dataclasses.replace(trace, level=max(trace.level, trace.inside))
        shown = {value.producer for value in node.outputs.values()}
        for leaf in leaves:
            self._traces[leaf] = trace if leaf in shown else hidden

    def _step(self, node: AppliedPTransform, rule: Rule, leaves: list[AppliedPTransform]) -> Step:
        """A step and its inputs from elsewhere; a composite may use one several times inside."""
        own = set(leaves)
        given = [value for leaf in leaves for value in leaf.inputs if not isinstance(value, PBegin)]
        mains = given if leaves == [node] else list(dict.fromkeys(given))
        sides = [side.pvalue for leaf in leaves for side in leaf.side_inputs]
        return Step(
            node=node,
            rule=rule,
            mains=tuple(self._trace(each) for each in mains if each.producer not in own),
            sides=tuple(self._trace(each) for each in sides if each.producer not in own),
        )

    def _trace(self, value: PCollection) -> Trace:
        """The trace of a collection."""
        trace = self._traces.get(value.producer)
        if trace is None:
            raise PrivacyFlowError(f"every input must come from a step of the graph, got {value}; build it again.")
        return trace if value.tag is None else dataclasses.replace(trace, level=trace.tagged)

    def _unknown(self, node: AppliedPTransform) -> PrivacyFlowError:
        """A step that is not listed is refused, whatever it is given."""
        given = [each.producer for each in (*node.inputs, *(side.pvalue for side in node.side_inputs))]
        traces = [self._traces[each] for each in given if each in self._traces]
        worst = max(traces, key=lambda trace: trace.level, default=None)
        code = audited_code.code_of(node.transform)
        name = f"{getattr(code, '__module__', '')}:{getattr(code, '__qualname__', type(code).__name__)}"
        return PrivacyFlowError(
            f"{node.full_label} must run audited code, got {name}; leave it out, or audit it and list it in "
            f"transforms/privacy_flow/allow_list.py. Path: {path_to(worst, node.full_label)}."
        )

    def _check_statistic(self, step: Step) -> None:
        """Stops at a round that is not planned, or that states less than its statistic does."""
        handed = list(audited_code.handed(step.transform))
        contracts = [each for each in handed if isinstance(each, TableContract)]
        by_client = [each.by_client for each in contracts]
        for key, each in keyed(handed, is_round):
            plan = self._plans.get(each.plan.path)
            if plan is None or each.plan not in plan.rounds:
                raise step.refused(f"belong to a round of the plan, got {each.plan.path}", "account for it")
            name = audited_code.name_of(audited_code.innermost(each.statistic))
            moves = moves_of(each.statistic, contracts, plan.unit)
            if moves is None:
                raise step.refused(
                    "read windows by the roll of their epoch at unit client, and only there, got others",
                    "ask the roll for the contract",
                )
            found = understatement(name, each.plan, replaces=plan.replaces, moves=moves)
            if found is not None:
                raise step.refused(
                    f"state the sensitivity of its statistic, got {found}", "ask it of the code that bounds the rows"
                )
            if plan.unit is PrivacyUnit.CLIENT and not (by_client and all(by_client)):
                raise step.refused("read rows by client, got single rows", "group them, or use unit record")
            self.starts.measure(key, step, plan)

    def _draw(self, step: Step) -> None:
        """Counts the rounds of a noise stage; stops at one that does not fit what it noises."""
        plans = keyed(audited_code.handed(step.transform), lambda each: isinstance(each, RoundPlan))
        given = step.mains[0] if len(step.mains) == 1 else None
        if given is None or given.origin is None or not given.summed:
            raise step.refused("be given the sum of one statistic, got something else", "noise the sum itself")
        if given.copies != 1:
            raise step.refused("be given every statistic once, got some several times", "add up each one once")
        if given.origin not in (plans, OF_OTHERS):
            raise step.refused(
                f"have the plan of the statistic that it is given, got {paths(plan for _, plan in plans)}",
                "give both the same plan",
            )
        self._check_shares_of_sum(step, given, [plan for _, plan in plans])
        for _, plan in plans:
            if plan.path in self._paths or plan.path not in self._plans:
                raise step.refused(
                    f"draw a planned release that was not drawn before, got {plan.path}", "account for every release"
                )
            check_values((plan,))
            self._paths.add(plan.path)
            self.drawn.append(plan)

    def _check_share(self, step: Step) -> None:
        """Stops at a share that does not fit its statistic, and at a message without the share that was promised."""
        given = step.mains[0] if len(step.mains) == 1 else None
        if given is None or not isinstance(given.origin, tuple) or given.summed or given.copies != 1:
            raise step.refused("be given every statistic once, got something else", "add shares before the sum")
        plans = keyed(audited_code.handed(step.transform), lambda each: isinstance(each, RoundPlan))
        promised = {self._plans[plan.path].shares for _, plan in given.origin if plan.path in self._plans}
        if step.rule.role is Role.MASK:
            if promised != {given.shares}:
                raise step.refused("be given the noise shares that the plan says, got others", "add them before masks")
        elif plans != given.origin or given.shares is not None or promised != {law_of(step)}:
            raise step.refused(
                "add one share of the plan's noise, split as the plan says, got something else", "give both one plan"
            )

    def _check_shares_of_sum(self, step: Step, given: Trace, plans: list[RoundPlan]) -> None:
        """Stops where a sum is noised otherwise than the plan says: by shares in it, or by a noise stage."""
        joined = law_of(step) if step.rule.role is Role.JOIN else None
        wanted = {self._plans[plan.path].shares for plan in plans if plan.path in self._plans}
        vouched = joined if given.origin is OF_OTHERS else given.shares
        if (step.rule.role is Role.JOIN and joined is None) or wanted - {joined} or vouched != joined:
            raise step.refused(
                "be given sums whose noise is split as the plan says, got others", "add the shares, or draw the noise"
            )

    def _declare(self, step: Step) -> None:
        """Counts a mechanism; stops where its inputs were not measured by its plan."""
        mechanism = step.transform
        if not isinstance(mechanism, DeclaredMechanism):
            raise step.refused("be a DeclaredMechanism, got another class", "derive it from that")
        measured = mechanism.measured()
        if measured is not None and any(
            trace.origin != ((None, measured),) or trace.copies != 1 for trace in step.mains
        ):
            raise step.refused("be given what was measured by its own plan, got something else", "measure it by that")
        found = mechanism.understatement()
        if found is not None:
            raise step.refused(
                f"declare the sensitivity of what it noises, got {found}", "ask it of what bounds the rows"
            )
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
