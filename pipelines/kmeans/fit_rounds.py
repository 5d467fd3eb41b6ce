"""The rounds of a fit, split into as many graphs as the driver chooses."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np

from dapple_dp.pipelines.kmeans.plan.fingerprint import settings_digest
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.pipelines.run.failures import reported
from dapple_dp.pipelines.run.round_driver import plan_digest
from dapple_dp.schemas.core.plan import GraphPrivacy, Promise, ReleasePlan
from dapple_dp.schemas.settings.refusal import MalformedError
from dapple_dp.transforms.core.audit import composed
from dapple_dp.transforms.core.audited_types import AUDITED_TYPES
from dapple_dp.transforms.core.known_objects import REGISTERED, name_of
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.files.checkpoint import Arrays, Checkpoint, RunBinding
from dapple_dp.transforms.files.publish import PublishModel, write_model
from dapple_dp.transforms.on_beam.round import Aggregation, RunRounds
from dapple_dp.transforms.privacy.key_files import key_digest
from dapple_dp.transforms.rounds.bound_broadcast import bound
from dapple_dp.transforms.rounds.staged_state import StagedArrays, begin, with_arrays
from dapple_dp.transforms.rounds.state_arrays import state_from_arrays, state_to_arrays
from dapple_dp.transforms.tables.read import CheckRows, ListShards

if TYPE_CHECKING:
    from dapple_dp.transforms.core.loop import RunKey

_ROUNDS, _STAGED = "rounds", "staged"


class FitRounds:
    """`ChunkedProtocol` of a fit, whose last graph writes the released files.

    Args:
      planned: the job, with rows in the form that workers read, and a first state without staged arrays.
      aggregation: adds up statistics and draws the noise.
      folder: existing folder for the released files, private until then.
      counted: whether rows were counted already, before invalid ones were dropped.
      bound: whether broadcasts leave their digests in the folder, which then belongs to this run alone.
      staged: place of large public arrays of the first state; None if the state holds them itself.
    """

    asks_last = False

    def __init__(
        self,
        planned: PlannedFit,
        aggregation: Aggregation,
        folder: str,
        *,
        counted: bool = False,
        bound: bool = False,
        staged: StagedArrays | None = None,
    ):
        self.n_rounds = len(planned.rounds)
        self._planned, self._aggregation, self._folder = planned, aggregation, folder
        self._counted, self._bound, self._staged = counted, bound, staged

    def initial(self) -> Arrays:
        """Returns the state before the first round."""
        return _to_arrays(self._planned.initial, 0, self._staged)

    def add_rounds(self, root: beam.Pipeline, arrays: Arrays, first: int, last: int) -> beam.PCollection:
        """Adds rounds `first` to `last` to a pipeline; the rows are counted before the first one."""
        planned = self._planned
        shards = root | "List" >> ListShards(source=planned.source, contract=planned.contract)
        if first == 1 and not self._counted:
            _ = shards | "CheckRows" >> CheckRows(may_be_empty=planned.source.may_be_empty)
        state = root | "Public" >> beam.Create([self._state(arrays)], reshuffle=False)
        if self._staged is not None and first == 1:
            state = state | "Begin" >> beam.Map(begin, self._staged)
        rounds = tuple(map(self._where_it_runs, planned.rounds[first - 1 : last]))
        state = shards | "Rounds" >> RunRounds(rounds=rounds, state=state, aggregation=self._aggregation)
        if last == self.n_rounds:
            return state | "Publish" >> PublishModel(folder=self._folder)
        return state | "Arrays" >> beam.Map(_to_arrays, last, self._staged)

    def run_in_process(self, arrays: Arrays, start: "Callable[[], RunKey]") -> GraphPrivacy:
        """Runs all rounds without Beam, and writes the released files.

        Args:
          arrays: the state before the first round.
          start: returns the key of the run.

        Returns:
          The privacy cost of the rounds.
        """
        from dapple_dp.pipelines.run.in_process import run_in_process
        from dapple_dp.transforms.rounds.local_rows import LocalRows

        state, planned = self._state(arrays), self._planned
        initial = state if self._staged is None else begin(state, self._staged)
        job = dataclasses.replace(planned, initial=initial, rounds=tuple(map(self._where_it_runs, planned.rounds)))
        with reported():
            states, spent = run_in_process(job, LocalRows(planned.source, self._counted), start)
            for _ in write_model(states[-1].model(), self._folder):
                pass
        return spent

    def _where_it_runs(self, round_: Round) -> Round:
        """Adapts a round so that its step reads the large public arrays and leaves the digest of its state."""
        round_ = with_arrays(round_, self._staged)
        return bound(round_, self._folder) if self._bound else round_

    def promise(self, first: int, last: int) -> Promise:
        """Promise that the graph of these rounds must keep: a part of the plan, or all of it."""
        return self._planned.promise_of(first, last)

    def events(self, n_rounds: int) -> Sequence[Mapping[str, Any]]:
        """The planned releases of the first `n_rounds` rounds."""
        rounds = self._planned.plan.rounds[:n_rounds]
        return [{"round": each.path, "releases": [_law(release) for release in each.releases]} for each in rounds]

    def rounds_done(self, arrays: Arrays) -> int:
        """Returns the number of rounds completed in a state; refuses a state with large arrays of another run."""
        if bytes(arrays[_STAGED]) != _digest(self._staged):
            raise MalformedError("a state beside other public points")
        self._state(arrays)
        return int(arrays[_ROUNDS])

    def _state(self, arrays: Arrays) -> Any:
        """Restores the recorded state bit by bit."""
        return state_from_arrays(arrays, (self._planned.config, self._planned.initial), _audited_type)

    def binding(self, fingerprint: str, key_uri: str) -> RunBinding:
        """The digests that a resumed run must share with this one."""
        return RunBinding(
            config_digest=settings_digest(self._planned.config),
            input_fingerprint=fingerprint,
            key_digest=key_digest(key_uri),
            plan_digest=plan_digest(self.events(self.n_rounds)),
        )

    def spent(self, done: Checkpoint) -> GraphPrivacy:
        """Total privacy cost of all graphs; each was checked to draw its own rounds of the plan."""
        rounds = self._planned.plan.rounds
        epsilon, delta = composed(rounds, self._planned.promise)
        return GraphPrivacy(rounds=rounds, extended=done.extended, epsilon=epsilon, delta=delta)


def _law(plan: ReleasePlan) -> dict[str, Any]:
    """The parameters that determine the noise of a release, as plain data."""
    return plan.spec.law | {"noise_multiplier": plan.noise_multiplier}


def _to_arrays(state: Any, rounds: int, staged: StagedArrays | None) -> dict[str, np.ndarray]:
    """Converts a state to the arrays that the driver records."""
    found = state_to_arrays(state)
    return found | {_ROUNDS: np.array(rounds), _STAGED: np.frombuffer(_digest(staged), dtype=np.uint8)}


def _digest(staged: StagedArrays | None) -> bytes:
    return b"" if staged is None else staged.digest.encode()


def _audited_type(name: str) -> type:
    """Looks up a type that graph steps may receive; raises MalformedError for any other."""
    kind: Any = next((each for each in REGISTERED if name_of(each) == name), None)
    module, _, path = name.partition(":")
    if name in AUDITED_TYPES and module.startswith(_HOUSE):
        kind = importlib.import_module(module)
        for part in path.split("."):
            kind = getattr(kind, part)
    if kind is None:
        raise MalformedError("a state of types that no round has")
    result: type = kind
    return result


_HOUSE = ("dapple_dp.schemas.", "dapple_dp.transforms.")
