"""The statistic of shards: their rows are read, or taken from what the worker has kept, by all processes it may use."""

import dataclasses
import functools
import hashlib
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.tables.client_block import ClientBlock
from schemas.tables.contract import TableContract
from schemas.tables.shard import EMPTY_SHARD, ShardRef
from transforms.files.progress import PROGRESS
from transforms.numerics.statistics.frame import Frame, QuantizedFrame
from transforms.rounds.protocol import Round, measure
from transforms.rounds.row_cache import CACHES, Piece, RowCache, WorkerLimits
from transforms.rounds.sum_processes import CREWS, alive, limits_of_others
from transforms.tables.shard_rows import prefetched_blocks, read_blocks

Work = Callable[[], NDArray[np.int64]]
_QUANTIZED_ROWS = 2048


def contract_digest(contract: TableContract) -> bytes:
    """What tells contracts apart that make other rows of a shard; 16 bytes."""
    return hashlib.blake2b(pickle.dumps(contract), digest_size=16).digest()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardReader:
    """How shards become parts of the statistic of a round.

    Attributes:
      contract: how shards are read.
      identity: digest of the contract.
      round: the round.
      state: that was broadcast.
      limits: of the worker.
    """

    contract: TableContract
    identity: bytes
    round: Round
    state: Any
    limits: WorkerLimits

    def works(self, shard: ShardRef) -> Iterator[Work]:
        """Parts of the statistic of a shard, to be computed in any order; their sum is the statistic.

        Raises:
          InputError: if the shard cannot be read, or is not the one that was listed.
        """
        cache, bits = CACHES.of_run(self.limits), self.round.bits
        if cache is None or bits is None or self.round.at is not None or shard == EMPTY_SHARD:
            state = self.state if self.round.at is None else self.round.at(self.state, shard.path)
            yield from (functools.partial(measure, self.round, block, state) for block in self._blocks(shard))
            return
        known = dataclasses.replace(self.state, frame=QuantizedFrame.of(self.state.frame, bits))
        kept = cache.pieces(self._key(shard, bits))
        if kept is not None:
            with PROGRESS.reading(shard.n_rows):
                yield from (functools.partial(self._of_kept, cache, piece, known) for piece in kept)
        elif self.round.later_bits in (None, bits):
            rows = self._filled(cache, shard, bits, self._blocks(shard))
            yield from (functools.partial(measure, self.round, block, known) for block in rows)
        else:
            # What is kept comes first, since it ends where it has seen that there is no further block.
            blocks, same = itertools.tee(self._blocks(shard))
            both = zip(self._filled(cache, shard, self.round.later_bits, same), blocks, strict=False)
            yield from (functools.partial(measure, self.round, block, self.state) for _, block in both)

    def _key(self, shard: ShardRef, bits: int) -> tuple[ShardRef, bytes, bytes, int]:
        """What kept rows are known by."""
        return shard, self.identity, self.state.frame.digest(), bits

    def _filled(
        self, cache: RowCache, shard: ShardRef, bits: int, blocks: Iterable[ClientBlock]
    ) -> Iterator[ClientBlock]:
        """Rows as lattice integers at `bits`, which are kept."""
        frame: Frame = self.state.frame
        rows = (each._replace(points=_quantized(each.points, frame, bits)) for each in blocks)
        return cache.filled(self._key(shard, bits), rows)

    def _blocks(self, shard: ShardRef) -> Iterator[ClientBlock]:
        """Rows as the file has them. Where no cores are counted, a second thread reads ahead."""
        return read_blocks(shard, self.contract) if self.limits.cores else prefetched_blocks(shard, self.contract)

    def _of_kept(self, cache: RowCache, piece: Piece, known: Any) -> NDArray[np.int64]:
        """The statistic of rows that were kept."""
        return measure(self.round, cache.load(piece), known)


def _quantized(points: NDArray[np.floating], frame: Frame, bits: int) -> NDArray[np.int32]:
    """Rows as lattice integers, a few at a time, so that their temporary copies stay in the processor's cache."""
    integers = np.empty(points.shape, dtype=np.int32)
    for start in range(0, len(points), _QUANTIZED_ROWS):
        part = slice(start, start + _QUANTIZED_ROWS)
        integers[part] = frame.quantize(points[part], bits)
    integers.flags.writeable = False
    return integers


def sum_shards(reader: ShardReader, shards: Sequence[ShardRef]) -> NDArray[np.int64]:
    """The statistic of some shards together: a sum of integers, the same for any number of processes.

    Returns:
      int64, shape (size of the round's plan,).

    Raises:
      InputError: if a shard cannot be read.
      RunnerError: if a process that adds up is lost.
    """
    crew = CREWS.of_run(reader.limits, sum(shard.n_bytes for shard in shards))
    if crew is None:
        return drain_shards((reader, shards))
    # A server step is not needed for a sum, and may be large.
    part = dataclasses.replace(
        reader, limits=limits_of_others(reader.limits), round=reader.round._replace(step=_no_step)
    )
    return crew.sum(shards, lambda mine: drain_shards((part, mine)), lambda others: (part, others))


def _no_step(state: Any, _: Any) -> Any:
    """Stands for a server step where none is made."""
    return state


def drain_shards(work: tuple[ShardReader, Sequence[ShardRef]]) -> NDArray[np.int64]:
    """The statistic of some shards, by this process alone."""
    reader, shards = work
    total = np.zeros(reader.round.plan.size, dtype=np.int64)
    for shard in shards:
        for part in reader.works(shard):
            total += part()
            alive()
    return total
