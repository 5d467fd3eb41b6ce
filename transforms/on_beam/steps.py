"""Steps of a Beam graph for the checker: the code that a step runs, its inputs, and the trace of its output."""

import dataclasses
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform
from apache_beam.transforms import core

from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.transforms.core.allow_list import Level, Role, Rule
from dapple_dp.transforms.core.audit import is_round, parts
from dapple_dp.transforms.core.audited_types import SHARE_LAWS
from dapple_dp.transforms.core.known_objects import is_a


class DeclaredMechanism(beam.PTransform):
    """Base of mechanisms with their own noise: private data in, differentially private elements out.

    A subclass is audited as a whole: the checker doesn't look inside, treats its outputs as public, and counts the
    spending that it declares. It must be listed in `transforms/core/allow_list.py` with rule `DECLARED`, and the
    job must promise the same: `Promise(declared=...)`.
    """

    def declared(self) -> Any:
        """Returns the calibrated spending, equal to the value that the job's accountant used."""
        raise NotImplementedError(f"{type(self).__name__} must declare what it spends; define declared().")

    def measured(self) -> Any:
        """Returns the plan that must have measured all inputs; None if they needn't have been measured."""
        return None

    def understatement(self) -> str | None:
        """Describes a fault in the declared sensitivities; None if there is none."""
        return None


_WRAPPERS = tuple(
    code
    for maker in (beam.Map, beam.MapTuple, beam.FlatMapTuple)
    for code in maker.__code__.co_consts
    if isinstance(code, types.CodeType) and code.co_name == "<lambda>"
)
"""Code of the functions that Beam wraps around functions."""
_CONVERTERS = ("input_batch_converter", "output_batch_converter")
COMBINES = (beam.CombineGlobally, beam.CombinePerKey)
_BEAMS_OWN = frozenset(vars(beam.PTransform())) | {"label", "_label", "side_inputs", "pipeline"}


def code_of(transform: Any) -> Any:
    """Returns the code of a step: the function, DoFn or CombineFn that it runs, else the class of the transform."""
    if type(transform) is beam.ParDo:
        return _function(transform.fn) if type(transform.fn) is core.CallableWrapperDoFn else type(transform.fn)
    if type(transform) in COMBINES:
        return type(transform.fn) if isinstance(transform.fn, beam.CombineFn) else transform.fn
    return type(transform)


def _function(wrapper: core.CallableWrapperDoFn) -> Any:
    """Returns the function given to Map, FlatMap or the like."""
    function = wrapper._fn
    if isinstance(function, types.FunctionType) and function.__code__ in _WRAPPERS:
        return inside if (inside := _enclosed(function)) is not None else function
    return function


def _enclosed(wrapper: types.FunctionType) -> Any:
    """Returns the function that Beam has wrapped in `wrapper`."""
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True))
    return cells["fn"].cell_contents if "fn" in cells else None


def is_altered(transform: Any) -> bool:
    """Returns whether the transform, or what it runs, has an attribute that hides a part of its class."""
    parts = [transform]
    if type(transform) in (beam.ParDo, *COMBINES):
        parts.append(transform.fn)
    if type(transform) is beam.ParDo and transform.dofn is not transform.fn:
        return True
    return any(_is_rewired(part) if type(part) is core.CallableWrapperDoFn else _hides(part) for part in parts)


def _is_rewired(wrapper: core.CallableWrapperDoFn) -> bool:
    """Returns whether Beam's wrapper runs another function than the one by which it is known."""
    own = vars(wrapper)
    strange = set(own) - {"_fn", "process", "_fullargspec", "_type_hints", *_CONVERTERS}
    return bool(strange) or own["process"] is not own["_fn"] or any(own.get(name) is not None for name in _CONVERTERS)


def _hides(instance: Any) -> bool:
    """Returns whether an attribute of an instance hides a method, a property or a hook of its class."""
    fields = getattr(type(instance), "__dataclass_fields__", {})
    own = [name for name in getattr(instance, "__dict__", {}) if name not in fields]
    return any(name.startswith("__") or hasattr(_of_class(instance, name), "__get__") for name in own)


def _of_class(instance: Any, name: str) -> Any:
    """Returns the raw class attribute of a name, or None."""
    return next((vars(base)[name] for base in type(instance).__mro__ if name in vars(base)), None)


def runs_as_itself(transform: Any) -> bool:
    """Returns whether a composite is no more than its steps: no primitive for runners, and no function of its own."""
    overridden = type(transform).to_runner_api_parameter is not beam.PTransform.to_runner_api_parameter
    return type(transform) not in COMBINES and not overridden and "to_runner_api_parameter" not in vars(transform)


def handed(transform: Any) -> Iterator[Any]:
    """Yields all arguments of a step, and the contents of containers and partial applications in them."""
    for value in given(transform):
        yield from parts(value)


def given(transform: Any) -> list[Any]:
    """Returns the attributes and arguments of a step."""
    if type(transform) in COMBINES:
        return [*getattr(transform.fn, "__dict__", {}).values(), *transform.args, *transform.kwargs.values()]
    if type(transform) is not beam.ParDo:
        return [value for name, value in vars(transform).items() if name not in _BEAMS_OWN]
    own = () if type(transform.fn) is core.CallableWrapperDoFn else vars(transform.fn).values()
    return [*own, *transform.args, *transform.kwargs.values()]


CARRYING = (Role.CARRY, Role.SHARE, Role.MASK, Role.SUM)
"""Roles of steps that pass on statistics, or sums of them."""
OF_OTHERS = "messages"
"""Origin of sums of statistics for which other jobs vouch."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Facts about the output of a step.

    Attributes:
      level: its privacy.
      tagged: level of outputs besides the main one.
      inside: level of its inputs and output; that of collections taken out of its inside.
      label: of the step.
      parent: trace of the most private input; None at a source.
      origin: plan of the statistic that it is a sum of; None for other data.
      copies: number of times that one element of the input may be in it, at most.
      gathered: True if it is keyed so that all statistics of a plan have one key.
      summed: True if statistics have been added up, so that there is one element per plan.
      shares: the rule that split the noise, if every statistic in it has its share; else None.
    """

    level: Level
    tagged: Level
    inside: Level
    label: str
    parent: "Trace | None" = None
    origin: Any = None
    copies: int = 1
    gathered: bool = False
    summed: bool = False
    shares: Hashable | None = None

    @property
    def path(self) -> str:
        """Labels from the source to this step."""
        labels, trace = [self.label], self.parent
        while trace is not None:
            labels.append(trace.label)
            trace = trace.parent
        return " -> ".join(reversed(labels))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the graph with the traces of its inputs."""

    node: AppliedPTransform
    rule: Rule
    mains: tuple[Trace, ...]
    sides: tuple[Trace, ...]

    @property
    def label(self) -> str:
        """Full label, with those of the composites around it."""
        return str(self.node.full_label)

    @property
    def transform(self) -> Any:
        """The applied transform."""
        return self.node.transform

    @property
    def worst(self) -> Trace | None:
        """The most private input."""
        return max((*self.mains, *self.sides), key=lambda trace: trace.level, default=None)

    def refused(self, rule_and_got: str, remedy: str, trace: Trace | None = None) -> PrivacyFlowError:
        """Returns the error that refuses the job because of this step."""
        path = path_to(trace or self.worst, self.label)
        return PrivacyFlowError(f"{self.label} must {rule_and_got}; {remedy}. Path: {path}.")


def path_to(trace: Trace | None, label: str) -> str:
    """Returns the labels from the source to a step."""
    return label if trace is None else f"{trace.path} -> {label}"


def keyed(handed: Iterable[Any], wanted: Callable[[Any], bool]) -> tuple[tuple[Any, Any], ...]:
    """Returns the wanted values with their keys in a mapping, then those that are in none with None."""
    values = list(handed)
    mappings = [value for value in values if isinstance(value, Mapping) and value and all(map(wanted, value.values()))]
    inside = {id(value) for mapping in mappings for value in mapping.values()}
    alone = ((None, value) for value in values if wanted(value) and id(value) not in inside)
    return (*((key, mapping[key]) for mapping in mappings for key in sorted(mapping)), *alone)


def check_levels(step: Step, *, trusted: bool) -> None:
    """Refuses an input that is more private than the step's rule allows."""
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


def trace_of(step: Step) -> Trace:
    """Returns the trace of a step's output."""
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
        gathered=rule.gathers,
        summed=_is_summed(step, private),
        shares=_shares(step, private),
    )


def law_of(step: Step) -> Hashable | None:
    """Returns the rule for splitting the noise that a step was given."""
    return next((value for value in handed(step.transform) if is_a(value, SHARE_LAWS)), None)


def _shares(step: Step, private: list[Trace]) -> Hashable | None:
    """Returns the rule by which noise was split, if all statistics in a step's output have their shares."""
    role = step.rule.role
    if role is Role.SHARE:
        return law_of(step)
    laws = {trace.shares for trace in private}
    return laws.pop() if role in CARRYING and len(laws) == 1 else None


def _is_summed(step: Step, private: list[Trace]) -> bool:
    """Returns whether the output is sums: the step adds up all that has one key, or passes on sums."""
    if step.rule.role is Role.SUM and private and all(trace.gathered for trace in private):
        return True
    return step.rule.role in CARRYING and bool(private) and all(trace.summed for trace in private)


def _origin(step: Step, private: list[Trace]) -> Any:
    """Returns the plans of the statistics in a step's output, or in its sums."""
    role = step.rule.role
    if role is Role.MESSAGES:
        return OF_OTHERS
    if role in CARRYING and private:
        return private[0].origin
    if role is not Role.STATISTIC:
        return None
    plans = tuple((key, round_.plan) for key, round_ in keyed(handed(step.transform), is_round))
    return plans or ((None, step.transform.measured()),)
