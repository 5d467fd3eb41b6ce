"""The audit of a run: compares its code, objects and spending with the job's plan.

It knows no engine: `on_beam/checker.py` passes it the steps of a Beam graph, `pipelines/run/in_process.py` the rounds
of a loop. A `Refused` makes the engine's error from a rule, with what was found instead, and a remedy.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dapple_dp.schemas.core.plan import (
    GraphPrivacy,
    PrivacyUnit,
    Promise,
    PromisedPlan,
    ReleasePlan,
    RoundPlan,
)
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.allow_list import AUDITED
from dapple_dp.transforms.core.audited_types import CONTRACTS, ROW_REFERENCES, SOURCES
from dapple_dp.transforms.core.known_objects import KnownObjects, innermost, is_a, is_state, marks, name_of
from dapple_dp.transforms.core.stated_sensitivity import STATED, asks_l1, misshapen, moves_of, understatement

Refused = Callable[[str, str], PrivacyFlowError]


class Audit:
    """Follows one run, and compares it with its plan at the end.

    Args:
      promise: the job's plan and the zone of its outputs.
      also: objects of the engine that are known by identity.

    Attributes:
      plans: by the paths of their rounds.
      declared: spending of declared mechanisms, in order.
    """

    def __init__(self, promise: Promise, also: Iterable[Any] = ()) -> None:
        self.plans = {round_.path: plan for plan in promise.plans for round_ in plan.rounds}
        self.declared: list[Any] = []
        self._promise = promise
        self._also = tuple(also)
        self._known = KnownObjects(self._also)
        self._client_columns: set[str | None] = set()
        self._sampled = False
        self._states: list[tuple[Any, Any]] = []
        self._measured: list[tuple[Any, Any, PromisedPlan, Refused]] = []
        self._drawn: dict[str, RoundPlan] = {}

    def check_promise(self) -> None:
        """Refuses promises that aren't plain plans, and, in a run of several jobs, registered types."""
        if self._promise.stages is not None and marks():
            raise PrivacyFlowError(
                "a run in several jobs must do without registered types, got some, which only this job could state; "
                "run it in one job, or audit and list them."
            )
        stranger = self._known.stranger([self._promise])
        if stranger is not None:
            raise PrivacyFlowError(
                f"a job must promise objects of audited types, got {stranger}; promise a plain plan."
            )
        check_values((*self._promise.noised, *(round_ for plan in self._promise.plans for round_ in plan.rounds)))

    def check_objects(self, values: Iterable[Any], refused: Refused) -> None:
        """Refuses objects that are not known."""
        stranger = self._known.stranger(values)
        if stranger is not None:
            raise refused(
                f"be handed objects of audited types, got {stranger}",
                "list its type in transforms/core/audited_types.py once it is audited",
            )

    def read(self, handed: Iterable[Any], refused: Refused) -> None:
        """Checks sources and contracts among the values that `parts` yields."""
        for value in handed:
            if is_a(value, SOURCES):
                self._sampled |= value.sampled
                if value.files is not None and len(set(value.files)) < len(value.files):
                    raise refused("list every file once, got some several times", "list the files again")
            if is_a(value, CONTRACTS) and value.by_client:
                self._client_columns.add(value.client_id)
        if len(self._client_columns) > 1:
            raise refused("read the clients of one column, got several columns", "name one data.client_id")

    def start(self, values: Sequence[Any], refused: Refused) -> None:
        """Records the states among the public values that a run starts from; refuses references to rows."""
        self.check_objects(values, refused)
        known = KnownObjects(self._also)
        known.stranger(values)
        objects = known.objects()
        if any(is_a(value, ROW_REFERENCES) for value in objects):
            raise refused("create public values, got references to rows", "list them by ListShards")
        numbered = [value for value in objects if _is_numbered(value)]
        inside = {id(state) for _, state in numbered}
        alone = [(None, value) for value in objects if is_state(value) and id(value) not in inside]
        self._states += [*numbered, *alone]

    def measure(self, key: Any, round_: Any, contracts: Sequence[Any], refused: Refused) -> None:
        """Checks a round whose statistic is computed.

        Args:
          key: number of its run among several; None for the only one.
          round_: the round.
          contracts: by which its rows are read.
          refused: makes the error.
        """
        self.check_objects((round_, *contracts), refused)
        check_functions(parts(round_), refused)
        plan = self.plans.get(round_.plan.path)
        self._measured.append((key, round_, check_round(round_, plan, contracts, refused), refused))

    def draw(self, plan: RoundPlan, refused: Refused) -> None:
        """Records a round whose noise is drawn; refuses one that is not planned or was drawn before."""
        if plan.path in self._drawn or plan.path not in self.plans:
            raise refused(
                f"draw a planned release that was not drawn before, got {plan.path}", "account for every release"
            )
        check_values((plan,))
        self._drawn[plan.path] = plan

    def finish(self) -> GraphPrivacy:
        """Returns what was spent; it must be the plan, and rounds must start from states of their plan's unit."""
        keys = {key for key, _ in self._states}
        for key, round_, plan, refused in self._measured:
            # States come by steps that the audit doesn't follow, so one without a number may be that of any round.
            states = [state for other, state in self._states if key in keys and (other == key or None in (other, key))]
            if plan.unit is not None and (not states or any(s.privacy_unit.kind is not plan.unit for s in states)):
                got = "a state of the other unit" if states else "no state of its graph"
                raise refused(
                    f"start from a state whose privacy unit is {plan.unit}, got {got}",
                    "make plan and state from one config",
                )
            if self._sampled and plan.unit is not PrivacyUnit.CLIENT and not plan.replaces:
                raise refused(
                    "plan for rows of which one may take the place of another, got a copy of sampled rows",
                    "plan with the copy's max_rows_per_client",
                )
            _check_shapes(states, round_, refused)
        rounds, declared = tuple(self._drawn.values()), tuple(self.declared)
        check_spent(rounds, declared, self._promise)
        epsilon, delta = composed(rounds, self._promise)
        return GraphPrivacy(rounds=rounds, declared=declared, epsilon=epsilon, delta=delta, extended=tuple(marks()))


def parts(value: Any) -> Iterator[Any]:
    """Yields a value and the contents of containers and partial applications in it, at any depth."""
    yield value
    inside: Any = ()
    if isinstance(value, functools.partial):
        inside = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, Mapping):
        inside = (*value.keys(), *value.values())
    elif isinstance(value, (tuple, list, set, frozenset)):
        inside = value
    for part in inside:
        yield from parts(part)


def is_round(value: Any) -> bool:
    """Returns whether a value is a `Round`, or looks like one."""
    return isinstance(value, tuple) and {"plan", "statistic", "step"} <= set(getattr(value, "_fields", ()))


def _is_numbered(value: Any) -> bool:
    """Returns whether a value is a state with the number of its run."""
    return type(value) is tuple and len(value) == 2 and type(value[0]) is int and is_state(value[1])


def check_functions(handed: Iterable[Any], refused: Refused) -> None:
    """Refuses functions that are not audited among the values that `parts` yields."""
    values = list(handed)
    statistics = [innermost(value.statistic) for value in values if is_round(value)]
    for value in values:
        if not callable(value) or isinstance(value, functools.partial):
            continue
        name = name_of(value) or ""
        if name not in AUDITED and name not in STATED:
            forms = any(statistic is value for statistic in statistics)
            where = "state its sensitivity in {}/stated_sensitivity.py" if forms else "list it in {}/allow_list.py"
            raise refused(
                f"be handed audited functions, got {getattr(value, '__qualname__', type(value).__name__)}",
                f"{where.format('transforms/core')} once it is audited",
            )


def check_round(round_: Any, plan: PromisedPlan | None, contracts: Sequence[Any], refused: Refused) -> PromisedPlan:
    """Returns the plan of a round; refuses one that is not planned, or that states less than its statistic does."""
    if plan is None or round_.plan not in plan.rounds:
        raise refused(f"belong to a round of the plan, got {round_.plan.path}", "account for it")
    check_values((round_.plan,))
    moves = moves_of(round_.statistic, contracts, plan.unit)
    if moves is None:
        raise refused(
            "read windows by the client list of their epoch at unit client, and only there, got others",
            "ask the client list for the contract",
        )
    name = name_of(innermost(round_.statistic))
    fault = understatement(name, round_.plan, replaces=plan.replaces, moves=moves, l1=asks_l1(round_.statistic))
    if fault is not None:
        raise refused(f"state the sensitivity of its statistic, got {fault}", "ask it of the code that bounds the rows")
    if plan.unit is PrivacyUnit.CLIENT and not (contracts and all(contract.by_client for contract in contracts)):
        raise refused("read rows by client, got single rows", "group them, or use unit record")
    return plan


def _check_shapes(states: Sequence[Any], round_: Any, refused: Refused) -> None:
    """Refuses a round that is planned for other columns or clusters than those of the states it starts from."""
    name = name_of(innermost(round_.statistic))
    for state in states:
        n_clusters = getattr(state.settings, "n_clusters", None)
        fault = misshapen(name, round_.plan, len(state.frame.lattice.center), n_clusters)
        if fault is not None:
            raise refused(
                f"release sums of rows with as many columns as its state, got {fault}",
                "make plan and state from one config",
            )


def composed(rounds: tuple[RoundPlan, ...], promise: Promise) -> tuple[float | None, float | None]:
    """Returns epsilon and delta of the rounds of a graph, or None for both if its job does not compose them.

    Raises:
      PrivacyFlowError: if a plan would spend more than the job may.
    """
    for plan in promise.plans:
        _spent(plan, plan.rounds)
    if len(promise.plans) != 1 or promise.chunk is not None or not rounds:
        return None, None
    return _spent(promise.plans[0], rounds)


def _spent(plan: PromisedPlan, rounds: tuple[RoundPlan, ...]) -> tuple[float | None, float | None]:
    """Composes some rounds of a plan, ignoring what the plan states, and returns epsilon and delta."""
    if plan.epsilon is None or plan.delta is None:
        return None, None
    if not 0.0 < plan.delta < 1.0:
        raise PrivacyFlowError(f"the plan must have a delta between 0 and 1, got {plan.delta}; calibrate it again.")
    # Runs of a sweep differ only in their paths; without these, one composition is cached for all of them.
    alike = tuple(dataclasses.replace(round_, path="") for round_ in rounds)
    epsilon = accounting.spent_epsilon(alike, plan.epsilon, plan.delta)
    if plan.shares is not None:
        epsilon = math.nextafter(epsilon + max(plan.shares_cost, 0.0), math.inf)
    if not epsilon <= plan.epsilon:
        raise PrivacyFlowError(
            f"the noise stages of the graph must spend at most epsilon {plan.epsilon:g}, got {epsilon:g} at delta "
            f"{plan.delta:g}; calibrate the plan again."
        )
    return epsilon, plan.delta


def check_values(rounds: Iterable[RoundPlan]) -> None:
    """Refuses plans whose values are not of their declared types and in range; raises PrivacyFlowError.

    A str in place of a mechanism equals it, but would be composed and drawn as another mechanism.
    """
    for plan in rounds:
        for release in plan.releases:
            if not _is_plain(release):
                raise PrivacyFlowError(
                    f"the plan of {plan.path} must have a mechanism, a geometry, a whole sensitivity and number of "
                    "windows of at least 1, a finite noise multiplier above 0 and a name without a slash for each "
                    "release, got something else; calibrate it again."
                )


def _is_plain(release: ReleasePlan) -> bool:
    spec = release.spec
    kinds = spec.is_enumerated and type(spec.sensitivity) is type(spec.windows) is int
    # Noise is labeled by path and name with a slash between them, which must have one reading.
    name = type(spec.name) is str and "/" not in spec.name
    shape = type(spec.shape) is tuple and all(type(size) is int and size >= 0 for size in spec.shape)
    noise = isinstance(release.noise_multiplier, float) and 0.0 < release.noise_multiplier < math.inf
    return kinds and name and shape and noise and spec.sensitivity >= 1 and spec.windows >= 1


def check_spent(rounds: tuple[RoundPlan, ...], declared: tuple[Any, ...], promise: Promise) -> None:
    """Refuses spending that differs from the plan; raises PrivacyFlowError."""
    planned, drawn = collections.Counter(promise.noised), collections.Counter(rounds)
    if drawn != planned:
        extra, missing = paths((drawn - planned).elements()), paths((planned - drawn).elements())
        raise PrivacyFlowError(
            f"the noise stages of the graph must be those of the plan, got {extra or 'none'} besides and "
            f"{missing or 'none'} left out; draw every release that was accounted for once."
        )
    if declared != promise.declared:
        raise PrivacyFlowError(
            f"the declared mechanisms of the graph must be those that the job accounts for, in order, got "
            f"{len(declared)} where it has {len(promise.declared)}, or others; account for each."
        )


def paths(rounds: Iterable[RoundPlan]) -> str:
    """Lists rounds in a message."""
    return ", ".join(plan.path for plan in rounds)
