"""Statistics of shards: all allowed threads read their rows, or take them from the cache."""

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
    """Returns a digest that distinguishes contracts which read other rows from a shard; 16 bytes."""
    return hashlib.blake2b(pickle.dumps(contract), digest_size=16).digest()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ShardSums:
    """`RowReader` that caches rows between rounds and uses all allowed cores.

    Attributes:
      contract: reads shards.
      limits: of the workers.
    """

    contract: TableContract
    limits: WorkerLimits = NO_LIMITS

    @property
    def by_client(self) -> bool:
        """True if the contract groups rows by client."""
        return self.contract.by_client

    @property
    def client_id(self) -> str | None:
        """Client column of the contract."""
        return self.contract.client_id

    @property
    def participation(self) -> "Participation | None":
        """Participation rule of the contract."""
        return self.contract.participation

    @property
    def cores(self) -> int:
        """Cores of the limits."""
        return self.limits.cores

    def start(self) -> None:
        """Enables the compiled kernel, and gives BLAS one thread, since more are slower for small blocks."""
        row_pass.start()
        one_thread.limit()

    def sums(self, shards: Sequence[ShardRef], round_: Round, state: Any) -> NDArray[np.int64]:
        """Returns the statistic of some shards together; errors as in `sum_shards`."""
        identity = contract_digest(self.contract)
        reader = ShardReader(contract=self.contract, identity=identity, round=round_, state=state, limits=self.limits)
        return sum_shards(reader, shards)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardReader:
    """Turns shards into parts of a round's statistic.

    Attributes:
      contract: reads shards.
      identity: digest of the contract.
      round: the round.
      state: the broadcast.
      limits: of the worker.
    """

    contract: TableContract
    identity: bytes
    round: Round
    state: Any
    limits: WorkerLimits

    def works(self, shard: ShardRef) -> Iterator[Work]:
        """Yields functions that compute parts of a shard's statistic, in any order; their sum is the statistic.

        Raises:
          InputError: if the shard can't be read, or isn't the one that was listed.
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
            # The caching iterator comes first, since it must see the end of the blocks.
            blocks, same = itertools.tee(self._blocks(shard))
            both = zip(self._filled(cache, shard, self.round.later_bits, same), blocks, strict=False)
            yield from (functools.partial(measure, self.round, block, self.state) for _, block in both)

    def opens(self, shard: ShardRef) -> bool:
        """Returns whether the file of a shard will be opened, since its rows aren't cached."""
        cache, bits = self._cache(), self.round.bits
        kept = cache is not None and bits is not None and cache.pieces(self._key(shard, bits)) is not None
        return not kept and shard != EMPTY_SHARD

    def _cache(self) -> RowCache | None:
        """Returns the cache for this round; None if rows are read again."""
        return None if self.round.bits is None or self.round.at is not None else CACHES.of_run(self.limits)

    def _key(self, shard: ShardRef, bits: int) -> tuple[ShardRef, bytes, bytes, int]:
        """Returns the key of cached rows."""
        return shard, self.identity, frame_digest(self.state.frame), bits

    def _filled(
        self, cache: RowCache, shard: ShardRef, bits: int, blocks: Iterable[ClientBlock]
    ) -> Iterator[ClientBlock]:
        """Yields rows as lattice integers at `bits`, without what is beside their features, and caches them."""
        frame: Frame = self.state.frame
        width = len(frame.lattice.center)
        rows = (block._replace(points=_quantized(block.points[:, :width], frame, bits)) for block in blocks)
        return cache.filled(self._key(shard, bits), rows)

    def _blocks(self, shard: ShardRef) -> Iterator[ClientBlock]:
        """Reads rows from the file. If no cores are set, a second thread reads ahead."""
        return read_blocks(shard, self.contract) if self.limits.cores else prefetched_blocks(shard, self.contract)

    def _of_kept(self, cache: RowCache, piece: Piece, known: Any) -> NDArray[np.int64]:
        """Computes the statistic of cached rows."""
        return measure(self.round, cache.load(piece), known)


def _quantized(points: NDArray[np.floating], frame: Frame, bits: int) -> NDArray[np.int32]:
    """Quantizes a few rows at a time, so that temporary copies stay in the processor's cache."""
    integers = np.empty(points.shape, dtype=np.int32)
    for start in range(0, len(points), _QUANTIZED_ROWS):
        part = slice(start, start + _QUANTIZED_ROWS)
        integers[part] = frame.integers(points[part], bits)
    integers.flags.writeable = False
    return integers


def sum_shards(reader: ShardReader, shards: Sequence[ShardRef]) -> NDArray[np.int64]:
    """Returns the statistic of some shards together: a sum of integers, the same for any number of threads.

    Returns:
      int64, shape (size of the round's plan,).

    Raises:
      InputError: if a shard can't be read.
      RunnerError: if the command shall stop, or there is no memory for the rows of a block.
    """
    # NumPy takes the interpreter's lock again after every few microseconds, so its threads would only wait.
    n_threads = min(reader.limits.cores, len(shards)) if row_pass.start() else 1
    waiting = _Waiting(shards)
    with opening_ahead(shard.file for shard in shards if reader.opens(shard)):
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
        """Returns the next shard, or None; raises RunnerError if the command shall stop, since a part is no sum."""
        if STOPPING.asked:
            raise RunnerError("the command was interrupted before all rows were added up; run it again.")
        with self._lock:
            return next(self._shards, None)

    def drop(self) -> None:
        """Drops all remaining shards."""
        with self._lock:
            self._shards = iter(())


def _drained(reader: ShardReader, waiting: _Waiting) -> NDArray[np.int64]:
    """Returns the statistic of the shards that one thread takes."""
    total = np.zeros(reader.round.plan.size, dtype=np.int64)
    try:
        while (shard := waiting.take()) is not None:
            for part in reader.works(shard):
                total += part()
    except MemoryError:
        # Its own message has the number of rows.
        waiting.drop()
        raise RunnerError(NO_MEMORY) from None
    except BaseException:
        waiting.drop()
        raise
    return total
