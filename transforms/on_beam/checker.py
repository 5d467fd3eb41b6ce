"""The privacy-flow checker: walks a built graph before it runs, and refuses one in which private data bypass the noise.

Everything computed from private input stays private until it has passed the noise stage, a mask, or a declared
mechanism. Code that is not in `transforms/core/allow_list.py` is refused anywhere. The spending of the graph's noise
stages is composed, and must be the job's plan. The checker does not see inside audited code.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.coders import registry
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.pvalue import AsSingleton, PBegin, PCollection

from dapple_dp.schemas.core.plan import GraphPrivacy, Promise, RoundPlan, Zone
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.transforms.core.allow_list import AUDITED, Level, Role, Rule
from dapple_dp.transforms.core.audit import Audit, check_functions, is_round, paths
from dapple_dp.transforms.core.audited_types import CONTRACTS
from dapple_dp.transforms.core.known_objects import is_a, name_of
from dapple_dp.transforms.on_beam import steps
from dapple_dp.transforms.on_beam.steps import (
    OF_OTHERS,
    DeclaredMechanism,
    Step,
    Trace,
    check_levels,
    keyed,
    law_of,
    path_to,
    trace_of,
)


def check_graph(pipeline: beam.Pipeline, promise: Promise) -> GraphPrivacy:
    """Checks a built graph, in time linear in its steps.

    Args:
      pipeline: complete, not run yet.
      promise: the job's plan and the zone of its outputs.

    Returns:
      The spending of the graph's own noise stages.

    Raises:
      PrivacyFlowError: if private data may reach a place that must not have them, naming the steps from source to
        sink; or if the spending is not the plan.
    """
    audit = Audit(promise, also=[AsSingleton._NO_DEFAULT])
    audit.check_promise()
    pipeline.visit(_Walk(audit, trusted=promise.zone is Zone.TRUSTED))
    return audit.finish()


def check_part(part: AppliedPTransform, promise: Promise) -> GraphPrivacy:
    """Checks a composite of somebody else's graph: its inputs are private, and its outputs must be public.

    Arguments, result and errors are those of `check_graph`. The steps around the composite are not looked at.
    """
    audit = Audit(promise, also=[AsSingleton._NO_DEFAULT])
    audit.check_promise()
    walk = _Walk(audit, trusted=False, given=part.inputs)
    part.visit(walk, part.inputs[0].pipeline, set(part.inputs))
    walk.give(part)
    return audit.finish()


class _Walk(PipelineVisitor):
    """Visits steps in the order of the data."""

    def __init__(self, audit: Audit, *, trusted: bool, given: Iterable[PCollection] = ()):
        self._audit = audit
        self._trusted = trusted
        of_given = Trace(level=Level.PRIVATE, tagged=Level.PRIVATE, inside=Level.PRIVATE, label="the input")
        self._traces: dict[AppliedPTransform, Trace] = {value.producer: of_given for value in given}
        self._inside: AppliedPTransform | None = None

    def give(self, part: AppliedPTransform) -> None:
        """Refuses outputs that are not public."""
        for trace in map(self._trace, part.outputs.values()):
            if trace.level > Level.PUBLIC:
                raise PrivacyFlowError(
                    f"{part.full_label} must give public data and releases, got {trace.level.words}; let the sum pass "
                    f"the noise stage first. Path: {trace.path}."
                )

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        """Checks an audited composite as a whole; otherwise its steps will be checked one by one."""
        if self._inside is not None or transform_node.transform is None:
            return
        if _rule(transform_node) is not None:
            self._inside = transform_node
            self._pass(transform_node, list(_leaves(transform_node)))
        elif not _can_be_looked_into(transform_node):
            raise self._unknown(transform_node)

    def leave_composite_transform(self, transform_node: AppliedPTransform) -> None:
        """Returns to checking step by step."""
        if self._inside is transform_node:
            self._inside = None

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        """Checks one step."""
        if self._inside is None:
            self._pass(transform_node, [transform_node])

    def _pass(self, node: AppliedPTransform, leaves: list[AppliedPTransform]) -> None:
        """Checks the inputs of a step, and records its output."""
        rule = _rule(node)
        if rule is None or steps.is_altered(node.transform):
            raise self._unknown(node)
        step = self._step(node, rule, leaves)
        check_levels(step, trusted=self._trusted)
        self._check_handed(step, leaves)
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
        """Returns a step with its inputs from outside; a composite may use one several times inside."""
        own = set(leaves)
        given = [value for leaf in leaves for value in leaf.inputs if not isinstance(value, PBegin)]
        mains = given if leaves == [node] else list(dict.fromkeys(given))
        sides = [side.pvalue for leaf in leaves for side in leaf.side_inputs]
        return Step(
            node=node,
            rule=rule,
            mains=tuple(self._trace(value) for value in mains if value.producer not in own),
            sides=tuple(self._trace(value) for value in sides if value.producer not in own),
        )

    def _trace(self, value: PCollection) -> Trace:
        trace = self._traces.get(value.producer)
        if trace is None:
            raise PrivacyFlowError(f"every input must come from a step of the graph, got {value}; build it again.")
        return trace if value.tag is None else dataclasses.replace(trace, level=trace.tagged)

    def _unknown(self, node: AppliedPTransform) -> PrivacyFlowError:
        """Returns the error for a step that is not listed."""
        producers = [value.producer for value in (*node.inputs, *(side.pvalue for side in node.side_inputs))]
        traces = [self._traces[producer] for producer in producers if producer in self._traces]
        worst = max(traces, key=lambda trace: trace.level, default=None)
        code = steps.code_of(node.transform)
        name = f"{getattr(code, '__module__', '')}:{getattr(code, '__qualname__', type(code).__name__)}"
        return PrivacyFlowError(
            f"{node.full_label} must run audited code, got {name}; leave it out, or audit it and list it in "
            f"transforms/core/allow_list.py. Path: {path_to(worst, node.full_label)}."
        )

    def _check_handed(self, step: Step, leaves: list[AppliedPTransform]) -> None:
        """Checks the objects that a step was handed, and the coders of its outputs."""
        handed = list(steps.handed(step.transform))
        check_functions((value for value in handed if not isinstance(value, beam.PTransform)), step.refused)
        coders = (registry.get_coder(output.element_type) for leaf in leaves for output in leaf.outputs.values())
        sides = (side for leaf in leaves for side in leaf.side_inputs)
        self._audit.check_objects([*steps.given(step.transform), *sides, *coders], step.refused)
        self._audit.read(handed, step.refused)
        if type(step.transform) is beam.Create:
            self._audit.start(step.transform.values, step.refused)
        if step.rule.role is Role.STATISTIC:
            contracts = [value for value in handed if is_a(value, CONTRACTS)]
            for key, round_ in keyed(handed, is_round):
                self._audit.measure(key, round_, contracts, step.refused)

    def _draw(self, step: Step) -> None:
        """Records the rounds of a noise stage; refuses one that doesn't fit its input."""
        plans = keyed(steps.handed(step.transform), _is_plan)
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
            self._audit.draw(plan, step.refused)

    def _check_share(self, step: Step) -> None:
        """Refuses a share that doesn't fit its statistic, and a message without the promised share."""
        given = step.mains[0] if len(step.mains) == 1 else None
        if given is None or not isinstance(given.origin, tuple) or given.summed or given.copies != 1:
            raise step.refused("be given every statistic once, got something else", "add shares before the sum")
        plans = keyed(steps.handed(step.transform), _is_plan)
        promised = {self._audit.plans[plan.path].shares for _, plan in given.origin if plan.path in self._audit.plans}
        if step.rule.role is Role.MASK:
            if promised != {given.shares}:
                raise step.refused("be given the noise shares that the plan says, got others", "add them before masks")
        elif plans != given.origin or given.shares is not None or promised != {law_of(step)}:
            raise step.refused(
                "add one share of the plan's noise, split as the plan says, got something else", "give both one plan"
            )

    def _check_shares_of_sum(self, step: Step, given: Trace, plans: list[RoundPlan]) -> None:
        """Refuses a sum unless it gets its noise as planned: by shares in it, or by a noise stage."""
        joined = law_of(step) if step.rule.role is Role.JOIN else None
        wanted = {self._audit.plans[plan.path].shares for plan in plans if plan.path in self._audit.plans}
        vouched = joined if given.origin is OF_OTHERS else given.shares
        if (step.rule.role is Role.JOIN and joined is None) or wanted - {joined} or vouched != joined:
            raise step.refused(
                "be given sums whose noise is split as the plan says, got others", "add the shares, or draw the noise"
            )

    def _declare(self, step: Step) -> None:
        """Records a mechanism; refuses inputs that were not measured by its plan."""
        mechanism = step.transform
        if not isinstance(mechanism, DeclaredMechanism):
            raise step.refused("be a DeclaredMechanism, got another class", "derive it from that")
        measured = mechanism.measured()
        if measured is not None and any(
            trace.origin != ((None, measured),) or trace.copies != 1 for trace in step.mains
        ):
            raise step.refused("be given what was measured by its own plan, got something else", "measure it by that")
        fault = mechanism.understatement()
        if fault is not None:
            raise step.refused(
                f"declare the sensitivity of what it noises, got {fault}", "ask it of what bounds the rows"
            )
        self._audit.declared.append(mechanism.declared())


def _rule(node: AppliedPTransform) -> Rule | None:
    return AUDITED.get(name_of(steps.code_of(node.transform)) or "")


def _is_plan(value: object) -> bool:
    return isinstance(value, RoundPlan)


def _can_be_looked_into(node: AppliedPTransform) -> bool:
    """Returns whether an unlisted composite is no more than its steps. A declared mechanism must be listed."""
    if isinstance(node.transform, DeclaredMechanism) or not (node.parts or node.outputs):
        return False
    return steps.runs_as_itself(node.transform)


def _leaves(node: AppliedPTransform) -> Iterator[AppliedPTransform]:
    """Yields the steps inside a composite, at any depth."""
    for part in node.parts:
        yield part
        yield from _leaves(part)
