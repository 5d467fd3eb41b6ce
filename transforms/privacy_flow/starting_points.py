"""What a graph starts from: files, public values, and the states of its first rounds."""

import dataclasses
from typing import Any

import apache_beam as beam

from schemas.privacy.flow import PromisedPlan
from schemas.tables.contract import TableContract
from schemas.tables.shard import ShardRef
from transforms.privacy_flow import audited_code
from transforms.privacy_flow.known_objects import KnownObjects, is_state
from transforms.privacy_flow.step import Step
from transforms.tables.source import Source


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A round whose statistic the graph forms: its key in the step, and the plan that holds it."""

    key: Any
    step: Step
    plan: PromisedPlan


class StartingPoints:
    """Remembers them step by step; `check_states` at the end compares the states with the plans of all rounds."""

    def __init__(self) -> None:
        self._client_columns: set[str | None] = set()
        self._states: list[tuple[Any, Any]] = []
        self._measured: list[_Measured] = []

    def add(self, step: Step) -> None:
        """Looks at what a step reads or creates; raises PrivacyFlowError."""
        for each in audited_code.handed(step.transform):
            if isinstance(each, Source):
                _check_files(step, each)
            if isinstance(each, TableContract) and each.by_client:
                self._client_columns.add(each.client_id)
        if len(self._client_columns) > 1:
            raise step.refused("read the clients of one column, got several columns", "name one data.client_id")
        if type(step.transform) is beam.Create:
            self._add_created(step, step.transform.values)

    def measure(self, key: Any, step: Step, plan: PromisedPlan) -> None:
        """Remembers a round of the graph, to be compared with the states from which it starts."""
        self._measured.append(_Measured(key=key, step=step, plan=plan))

    def check_states(self) -> None:
        """Stops where rounds start from a state of another privacy unit than their plan's, or from none."""
        for each in self._measured:
            if each.plan.unit is None:
                continue
            own = [state for key, state in self._states if key == each.key]
            if not own or any(state.privacy_unit.kind is not each.plan.unit for state in own):
                got = "a state of the other unit" if own else "no state of its graph"
                raise each.step.refused(
                    f"start from a state whose privacy unit is {each.plan.unit}, got {got}",
                    "make plan and state from one config",
                )

    def _add_created(self, step: Step, values: Any) -> None:
        """Keeps the states among created values; stops at references to rows."""
        known = KnownObjects()
        known.stranger(values)
        if any(isinstance(each, (ShardRef, Source)) for each in known.objects()):
            raise step.refused("create public values, got references to rows", "list them by ListShards")
        numbered = [each for each in known.objects() if _is_numbered(each)]
        inside = {id(state) for _, state in numbered}
        alone = [(None, each) for each in known.objects() if is_state(each) and id(each) not in inside]
        self._states += [*numbered, *alone]


def _is_numbered(value: Any) -> bool:
    """Whether a value is a state with the number of its run."""
    return type(value) is tuple and len(value) == 2 and type(value[0]) is int and is_state(value[1])


def _check_files(step: Step, source: Source) -> None:
    """Stops at a file that is listed twice: its rows would count twice."""
    if source.files is not None and len(set(source.files)) < len(source.files):
        raise step.refused("list every file once, got some several times", "list the files again")
