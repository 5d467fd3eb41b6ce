"""Files by their exact names: `STORE` asks the local disk, obstore for `s3://`, and Beam's filesystems for the rest.

States, graphs and contracts hold paths only; what asks a store is never pickled.
"""

import collections
import concurrent.futures
import contextlib
import contextvars
import io
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from dapple_dp.transforms.files import local_store
from dapple_dp.transforms.files.places.store import (
    ListedFile,
    OpenedFile,
    Store,
    StoredFile,
    answered,
    is_away,
    is_local,
    join,
    local_path,
    scheme_of,
)

__all__ = [
    "AT_ONCE",
    "STORE",
    "ListedFile",
    "OpenedFile",
    "Store",
    "StoredFile",
    "answered",
    "is_away",
    "is_local",
    "join",
    "local_path",
    "makes_once",
    "open_store",
    "opening_ahead",
    "scheme_of",
    "set_options",
    "side_by_side",
]

_SMALL_BYTES = 1 << 22
AT_ONCE = 16
"""Requests of one step that wait for a store side by side: an answer takes tens of milliseconds, and little work."""
_HELD = 512
Answer = TypeVar("Answer")


class _Stores:
    """`Store` of every path: one for each kind of place. Modules of stores are loaded when they are needed."""

    def of(self, path: str) -> Store:
        """The store of a path."""
        if is_local(path):
            return local_store.STORE
        if scheme_of(path) == "s3":
            from dapple_dp.transforms.files.places import amazon

            return amazon.STORE
        from dapple_dp.transforms.files.places import beam

        return beam.STORE

    def exists(self, path: str) -> bool:
        return self.of(path).exists(path)

    def stat(self, path: str) -> StoredFile:
        return self.of(path).stat(path)

    def open(self, path: str) -> BinaryIO:
        return self.of(path).open(path)

    def get(self, path: str) -> bytes:
        return self.of(path).get(path)

    def create(self, path: str) -> BinaryIO:
        return self.of(path).create(path)

    def put(self, path: str, content: bytes) -> None:
        self.of(path).put(path, content)

    def put_new(self, path: str, content: bytes) -> None:
        self.of(path).put_new(path, content)

    def delete(self, *paths: str) -> None:
        if any(path.endswith("/") for path in paths):
            raise ValueError(f"files must be deleted by their names, got {paths}; list a folder first.")
        for store, some in itertools.groupby(paths, self.of):
            store.delete(*some)

    def rename(self, path: str, other: str) -> None:
        self.of(path).rename(path, other)

    def list(self, prefix: str) -> Iterator[ListedFile]:
        return self.of(prefix).list(prefix)

    def make_folder(self, path: str, mode: int = 0o777) -> None:
        self.of(path).make_folder(path, mode)


STORE: Store = _Stores()


def makes_once(path: str) -> bool:
    """Whether a place can tell which of two writers of a file was first."""
    if is_local(path) or scheme_of(path) == "s3":
        return True
    from dapple_dp.transforms.files.places.beam import CONDITIONAL

    return scheme_of(path) in CONDITIONAL


def set_options(options: Any) -> None:
    """Tells stores the flags of a job: some need them before its first pipeline is made."""
    from dapple_dp.transforms.files.places import beam

    beam.set_options(options)


def open_store(path: str) -> OpenedFile:
    """Bytes of a file on a store, as they are there; those of a small file have been read.

    Raises:
      OSError: if it cannot be opened.
      ValueError: if there is no filesystem for it.
    """
    ahead = _AHEAD.get()
    opened = None if ahead is None else ahead.take(path)
    with answered(path):
        return _opened(path) if opened is None else opened


def _opened(path: str) -> OpenedFile:
    """`open_store`, from now on."""
    if scheme_of(path) == "s3":
        from dapple_dp.transforms.files.places.amazon import open_object

        return open_object(path)
    stream = STORE.open(path)
    if stream.seek(0, io.SEEK_END) > _SMALL_BYTES:
        stream.seek(0)
        return OpenedFile(stream, None, fixed=False)
    with stream:
        stream.seek(0)
        return OpenedFile(pa.BufferReader(stream.read()), None, fixed=True)


class _Ahead:
    """Files of a store that are opened before they are asked for.

    Args:
      paths: in the order in which they will be asked for; what is not is opened for nothing.
      pool: has `AT_ONCE` threads.
    """

    def __init__(self, paths: Iterable[str], pool: concurrent.futures.Executor):
        self._lock = threading.Lock()
        self._rest = iter(paths)
        self._pool = pool
        self._pending: collections.defaultdict[str, list[concurrent.futures.Future[OpenedFile]]]
        self._pending = collections.defaultdict(list)
        for _ in range(AT_ONCE):
            self._next()

    def take(self, path: str) -> OpenedFile | None:
        """An open file that nobody else gets, or the error of opening it; None if it was not opened ahead."""
        with self._lock:
            if not self._pending.get(path):
                return None
            pending = self._pending[path].pop(0)
            self._next()
        return pending.result()

    def _next(self) -> None:
        path = next(self._rest, None)
        if path is not None:
            self._pending[path].append(self._pool.submit(_opened, path))


_AHEAD: contextvars.ContextVar[_Ahead | None] = contextvars.ContextVar("_AHEAD", default=None)
"""Of a thread and of those that are started in its context: another run never gets what this one has opened."""


@contextlib.contextmanager
def opening_ahead(paths: Iterable[str]) -> Iterator[None]:
    """While it lasts, `open_store` finds the next files of stores open, in this context; local files are left out.

    Each is as it was when it was opened, so a process that compares it with a seal compares the bytes that are read.

    Args:
      paths: in the order in which they will be asked for.
    """
    remote = [each for each in paths if not is_local(each)]
    if len(remote) < 2:
        yield
        return
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    token = _AHEAD.set(_Ahead(remote, pool))
    try:
        yield
    finally:
        _AHEAD.reset(token)
        pool.shutdown(cancel_futures=True)


def side_by_side(ask: Callable[[str], Answer], paths: Iterable[str]) -> Iterator[Answer]:
    """The answers on files, in their order; of those of a store some are asked at once.

    Args:
      ask: of a path.
      paths: however many; a few hundred are held.
    """
    rest = iter(paths)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        while some := list(itertools.islice(rest, _HELD)):
            yield from map(ask, some) if is_local(some[0]) else pool.map(ask, some)
