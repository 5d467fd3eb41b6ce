"""The statistic of shards: their rows are read, or taken from what the worker has kept, by all threads it may use."""

import concurrent.futures
import contextvars
import dataclasses
import functools
import hashlib
import itertools
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import RunnerError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.core.round import Round, measure
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.files.signals.progress import PROGRESS
from dapple_dp.transforms.files.stores import opening_ahead
from dapple_dp.transforms.numerics import one_thread
from dapple_dp.transforms.numerics.kernel import row_pass
from dapple_dp.transforms.rounds.kept_frame import QuantizedFrame, frame_digest
from dapple_dp.transforms.rounds.machine import NO_MEMORY
from dapple_dp.transforms.rounds.own_process import STOPPING
from dapple_dp.transforms.rounds.row_cache import CACHES, NO_LIMITS, Piece, RowCache, WorkerLimits
from dapple_dp.transforms.tables.shard_rows import prefetched_blocks, read_blocks

if TYPE_CHECKING:
    from dapple_dp.schemas.tables.participation import Participation

Work = Callable[[], NDArray[np.int64]]
_QUANTIZED_ROWS = 2048


def contract_digest(contract: TableContract) -> bytes:
    """What distinguishes contracts apart that make other rows of a shard; 16 bytes."""
    return hashlib.blake2b(pickle.dumps(contract), digest_size=16).digest()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ShardSums:
    """`RowReader` that keeps rows between rounds and uses all cores it may.

    Attributes:
      contract: how shards are read.
      limits: of the workers.
    """

    contract: TableContract
    limits: WorkerLimits = NO_LIMITS

    @property
    def by_client(self) -> bool:
        """As the contract has it."""
        return self.contract.by_client

    @property
    def client_id(self) -> str | None:
        """As the contract has it."""
        return self.contract.client_id

    @property
    def participation(self) -> "Participation | None":
        """As the contract has it."""
        return self.contract.participation

    @property
    def cores(self) -> int:
        """As the limits have it."""
        return self.limits.cores

    def start(self) -> None:
        """Gives statistics the compiled kernel, and BLAS one thread: for small blocks more of them only cost."""
        row_pass.start()
        one_thread.limit()

    def sums(self, shards: Sequence[ShardRef], round_: Round, state: Any) -> NDArray[np.int64]:
        """The statistic of some shards together; errors as in `sum_shards`."""
        identity = contract_digest(self.contract)
        reader = ShardReader(contract=self.contract, identity=identity, round=round_, state=state, limits=self.limits)
        return sum_shards(reader, shards)


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
        cache, bits = self._cache(), self.round.bits
        if cache is None or bits is None or shard == EMPTY_SHARD:
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

    def opens(self, shard: ShardRef) -> bool:
        """Whether the file of a shard will be opened: its rows are not among those that are kept."""
        cache, bits = self._cache(), self.round.bits
        kept = cache is not None and bits is not None and cache.pieces(self._key(shard, bits)) is not None
        return not kept and shard != EMPTY_SHARD

    def _cache(self) -> RowCache | None:
        """Where rows of this round are kept; None if they are read again."""
        return None if self.round.bits is None or self.round.at is not None else CACHES.of_run(self.limits)

    def _key(self, shard: ShardRef, bits: int) -> tuple[ShardRef, bytes, bytes, int]:
        """What kept rows are known by."""
        return shard, self.identity, frame_digest(self.state.frame), bits

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
        integers[part] = frame.integers(points[part], bits)
    integers.flags.writeable = False
    return integers


def sum_shards(reader: ShardReader, shards: Sequence[ShardRef]) -> NDArray[np.int64]:
    """The statistic of some shards together: a sum of integers, the same for any number of threads.

    Returns:
      int64, shape (size of the round's plan,).

    Raises:
      InputError: if a shard cannot be read.
      RunnerError: if the command is to stop, or there is no memory for the rows of a block.
    """
    # NumPy asks for the interpreter's lock after every step of some microseconds, so threads of it would only wait.
    n_threads = min(reader.limits.cores, len(shards)) if row_pass.start() else 1
    waiting = _Waiting(shards)
    with opening_ahead(each.file for each in shards if reader.opens(each)):
        if n_threads < 2:
            return _drained(reader, waiting)
        with concurrent.futures.ThreadPoolExecutor(n_threads - 1) as pool:
            inside = [contextvars.copy_context() for _ in range(n_threads - 1)]
            pending = [pool.submit(each.run, _drained, reader, waiting) for each in inside]
            totals = [_drained(reader, waiting), *(each.result() for each in pending)]
    return np.sum(totals, axis=0, dtype=np.int64)


class _Waiting:
    """Shards that no thread has taken yet."""

    def __init__(self, shards: Sequence[ShardRef]):
        self._lock = threading.Lock()
        self._shards = iter(shards)

    def take(self) -> ShardRef | None:
        """The next one; None if there is none. Raises RunnerError if the command is to stop: a part is no sum."""
        if STOPPING.asked:
            raise RunnerError("all rows must be added up, got a command that is to stop; run it again.")
        with self._lock:
            return next(self._shards, None)

    def drop(self) -> None:
        """Nobody needs the others."""
        with self._lock:
            self._shards = iter(())


def _drained(reader: ShardReader, waiting: _Waiting) -> NDArray[np.int64]:
    """The statistic of the shards that one thread has taken."""
    total = np.zeros(reader.round.plan.size, dtype=np.int64)
    try:
        while (shard := waiting.take()) is not None:
            for part in reader.works(shard):
                total += part()
    except MemoryError:
        # What it says itself has the number of rows.
        waiting.drop()
        raise RunnerError(NO_MEMORY) from None
    except BaseException:
        waiting.drop()
        raise
    return total
