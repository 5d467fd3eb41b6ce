"""The round: shards and the state so far in, the next state out.

    shards + broadcast -> statistic per shard -> exact sum -> noise -> releases -> server step -> next broadcast

Input element: `ShardRef`. Output element: the next state, exactly one. Guarantee: the state contains nothing
private but releases of the round's plan.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton

from transforms.files.lean_fn import LeanFn
from transforms.rounds import bound_broadcast
from transforms.rounds.aggregation import Aggregation
from transforms.rounds.protocol import Round
from transforms.rounds.staged_state import StagedArrays, begin, drop_arrays, restore


class ServerFn(LeanFn):
    """The next state, which is the same to the last bit for every process that computes it.

    Large public arrays of the state are read where this runs, and are not sent on.

    Args:
      round_: whose step it is.
      staged: where large arrays of the state are; None if it holds them itself.
      path: where the digest of the state is left; None where no runner computes it twice.
    """

    def __init__(self, round_: Round, staged: StagedArrays | None = None, path: str | None = None):
        self._round = round_
        self._staged = staged
        self._path = path

    def process(self, releases: tuple, state: Any) -> Iterator[Any]:
        """The server step of the round."""
        if self._staged is None:
            following = self._round.step(state, releases)
        else:
            following = drop_arrays(self._round.step(restore(state, self._staged), releases), self._staged)
        yield following if self._path is None else bound_broadcast.bind(following, self._path)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateRound(beam.PTransform):
    """`ShardRef`s and one state → the next state.

    Attributes:
      round: statistic, plan and server step.
      state: PCollection of one element: what is broadcast. Public data and releases only.
      aggregation: who adds up the statistics, and who draws the noise.
      staged: where large arrays of the state are; None if it holds them itself.
      path: where the next state leaves its digest; None where no runner computes it twice.

    Windowing: global. Privacy: the state gains the releases of `round.plan` and nothing else from the shards.
    Cost: that of the aggregation.
    """

    round: Round
    state: beam.PCollection
    aggregation: Aggregation
    staged: StagedArrays | None = None
    path: str | None = None

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Releases, server step."""
        releases = self.aggregation.releases(shards, self.state, self.round)
        step = ServerFn(self.round, self.staged, self.path)
        return releases | "Server" >> beam.ParDo(step, AsSingleton(self.state))


@dataclasses.dataclass(eq=False, kw_only=True)
class RunRounds(beam.PTransform):
    """`ShardRef`s → the state after the last round, exactly one element.

    Attributes:
      rounds: calibrated rounds, unrolled in this order.
      initial: state before the first round; public data only.
      aggregation: who adds up statistics, and who draws the noise.
      folder: private, where broadcasts leave their digests; None where no runner computes one twice.
      staged: where large arrays of `initial` are; None if it holds them itself.
      goes_on: whether `initial` is the state after earlier rounds of the run.

    Windowing: global. Privacy: the releases of the rounds' plans, composed. Cost: one pass over the needed
    columns, one small shuffle and one small file per round.
    """

    rounds: tuple[Round, ...]
    initial: Any
    aggregation: Aggregation
    folder: str | None = None
    staged: StagedArrays | None = None
    goes_on: bool = False

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Chains the rounds: each one's state is the next one's broadcast."""
        state = shards.pipeline | "Public" >> beam.Create([self.initial], reshuffle=False)
        if self.staged is not None and not self.goes_on:
            state = state | "Begin" >> beam.Map(begin, self.staged)
        binds = self.folder is not None and bound_broadcast.can_bind(self.folder)
        for round_ in self.rounds:
            label = round_.plan.label
            path = FileSystems.join(self.folder, label + bound_broadcast.SUFFIX) if binds else None
            one = PrivateRound(round=round_, state=state, aggregation=self.aggregation, staged=self.staged, path=path)
            state = shards | label >> one
        return state
