"""Rows that a worker caches between the rounds of a run: as lattice integers, in memory, then in an unnamed file.

The rows are private. They are never on a store or in the staging folder. The file has no name once it is
open, so nothing is left of it when the process ends, however it ends. An input file that is replaced after its
rows were cached is not read again; rows that aren't cached are read under their file's seal, as in the first round.
"""

import contextlib
import dataclasses
import os
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import IO, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.rounds import machine

Kept = TypeVar("Kept")
_MEMORY_SHARE = 4
"""Memory gets one in this many bytes of the cache, the file all others."""
_MOST_MEMORY = 1 << 24
"""The file is in the system's cache anyway: more memory saved no time, and took memory from larger jobs."""
_ON_DISK = "/var/tmp"
_FREE_SHARE = 4
"""Rows get at most one in this many bytes of the memory that the process may still take."""


class HeldByRun(Generic[Kept]):
    """One value for each run; threads may share it.

    Args:
      end: called with a value when it is removed.
    """

    def __init__(self, end: Callable[[Kept], None]):
        self._lock = threading.Lock()
        self._end = end
        self._kept: dict[str, Kept] = {}
        self._held: set[str] = set()

    def of(self, run: str, make: Callable[[], Kept] | None) -> Kept | None:
        """Returns the value of a run; values of runs that aren't held are removed to make room for a new one.

        Args:
          run: name of the run in this process.
          make: creates the value if there is none yet; None to create none.
        """
        with self._lock:
            if run not in self._kept and make is not None:
                for other in self._kept.keys() - self._held:
                    self._end(self._kept.pop(other))
                self._kept[run] = make()
            return self._kept.get(run)

    @contextlib.contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Keeps a run's value until its rounds are over, and no longer."""
        with self._lock:
            self._held.add(run)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(run)
                kept = self._kept.pop(run, None)
            if kept is not None:
                self._end(kept)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Limits of a worker process for the rounds of a run; they don't affect results.

    Attributes:
      run: names the run among those of a process; random, since rows of one run are never read by another.
      cores: threads that add up rows; 0 if the runner counts cores: one thread then adds up, and one reads ahead.
      cache_bytes: bytes of rows that are kept between rounds; 0 to read rows again in every round.
    """

    run: str = ""
    cores: int = 0
    cache_bytes: int = 0


NO_LIMITS = WorkerLimits()
"""Limits without a cache; the runner counts the cores."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Rows in memory, or their position in the file.

    Attributes:
      rows: int32, shape (n_rows, n_features); None if they are in the file.
      offset: in the file, bytes.
      shape: of the rows.
      offsets: of their clients, as a `ClientBlock` has them.
    """

    rows: NDArray[np.int32] | None
    offset: int = 0
    shape: tuple[int, ...] = ()
    offsets: NDArray[np.int64] | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return sum(each.nbytes for each in (self.rows, self.offsets) if each is not None)


class RowCache:
    """The rows that one run caches in this process; threads may share it.

    Args:
      n_bytes: most bytes, memory and file together.
    """

    def __init__(self, n_bytes: int):
        self._lock = threading.Lock()
        self._memory = memory_of(n_bytes)
        self._disk = n_bytes - self._memory
        self._file: IO[bytes] | None = None
        self._end = 0
        self._entries: dict[Hashable, tuple[Piece, ...]] = {}

    def pieces(self, key: Hashable) -> tuple[Piece, ...] | None:
        """Returns the cached pieces of a key; None without any."""
        return self._entries.get(key)

    def filled(self, key: Hashable, blocks: Iterable[ClientBlock]) -> Iterator[ClientBlock]:
        """Yields the blocks of a shard, which are cached under a key if all of them were read and fit.

        Args:
          key: of the shard; if two workers read the same one, the first counts.
          blocks: rows as int32.
        """
        pieces: list[Piece] = []
        whole = False
        try:
            room = True
            for block in blocks:
                piece = self._keep(block) if room else None
                room = piece is not None
                pieces += [] if piece is None else [piece]
                yield block
            whole = room
        finally:
            with self._lock:
                if not whole or self._entries.setdefault(key, tuple(pieces))[:1] != tuple(pieces)[:1]:
                    # Their range of the file stays unused.
                    self._memory += sum(each.n_bytes for each in pieces)

    def load(self, piece: Piece) -> ClientBlock:
        """Returns cached rows.

        Raises:
          OSError: if the file cannot be read.
        """
        if piece.rows is not None:
            return ClientBlock(piece.rows, piece.offsets)
        rows = np.empty(piece.shape, dtype=np.int32)
        view, offset, file = memoryview(rows.data).cast("B"), piece.offset, self._file
        while file is not None and len(view):
            n_read = os.preadv(file.fileno(), [view], offset)
            if not n_read:
                raise OSError("the file in which a worker keeps rows is too short")
            view, offset = view[n_read:], offset + n_read
        return ClientBlock(rows, piece.offsets)

    def _keep(self, block: ClientBlock) -> Piece | None:
        """Caches the rows of a block; returns None if they don't fit."""
        rows, n_offsets = block.points, 0 if block.offsets is None else block.offsets.nbytes
        with self._lock:
            in_memory = rows.nbytes + n_offsets <= self._memory
            place = None if in_memory else self._reserved(rows.nbytes)
            if not in_memory and (place is None or n_offsets > self._memory):
                return None
            kept = Piece(
                rows=None if place else rows, offset=place[1] if place else 0, shape=rows.shape, offsets=block.offsets
            )
            self._memory -= kept.n_bytes
        if place is not None:
            try:
                _write(place[0], rows, place[1])
            except OSError:
                with self._lock:
                    self._memory += kept.n_bytes
                return None
        return kept

    def _reserved(self, n_bytes: int) -> tuple[IO[bytes], int] | None:
        """Reserves a range of the file; returns None if it would become too large. The caller holds the lock."""
        try:
            if self._file is None:
                # Readable by its owner only, and without a name: nothing else can open it.
                self._file = tempfile.TemporaryFile(buffering=0, dir=_folder())  # noqa: SIM115 - as long as the cache
            free = machine.free_disk(self._file.fileno())
        except OSError:
            return None
        if n_bytes > min(self._disk - self._end, free):
            return None
        offset, self._end = self._end, self._end + n_bytes
        return self._file, offset


def memory_of(n_bytes: int) -> int:
    """Returns the bytes of the cache that are in memory: at most a quarter of what the process may still take."""
    free = machine.free_memory()
    limit = _MOST_MEMORY if free is None else min(_MOST_MEMORY, free // _FREE_SHARE)
    return min(n_bytes // _MEMORY_SHARE, limit)


def disk_of(n_bytes: int) -> tuple[str, int]:
    """Returns the folder of the file, and the most bytes of rows that it may hold now."""
    folder = _folder() or tempfile.gettempdir()
    try:
        return folder, min(n_bytes - memory_of(n_bytes), machine.free_disk(folder))
    except OSError:
        return folder, 0


def _folder() -> str | None:
    """Returns the folder of the file: TMPDIR, else one on a disk, since /tmp may be in memory; None for the default."""
    return _ON_DISK if "TMPDIR" not in os.environ and os.access(_ON_DISK, os.W_OK | os.X_OK) else None


def _write(file: IO[bytes], rows: NDArray[Any], offset: int) -> None:
    """Writes all bytes; raises OSError."""
    view = memoryview(rows.data).cast("B")
    while len(view):
        n_written = os.pwrite(file.fileno(), view, offset)
        view, offset = view[n_written:], offset + n_written


class _Caches(HeldByRun[RowCache]):
    """The caches of this process, by run."""

    def of_run(self, limits: WorkerLimits) -> RowCache | None:
        """Returns the cache of a run; None if it caches nothing."""
        if not (limits.run and limits.cache_bytes):
            return None
        return self.of(limits.run, lambda: RowCache(limits.cache_bytes))


CACHES = _Caches(end=lambda _: None)
"""Caches of this process."""
