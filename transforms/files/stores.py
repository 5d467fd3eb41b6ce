"""Files by exact names: `STORE` uses the local disk, obstore for `s3://`, and Beam's filesystems for the rest.

States, graphs and contracts hold paths only; stores are never pickled.
"""

import collections
import concurrent.futures
import contextlib
import contextvars
import io
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

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
    "side_by_side",
]

_SMALL_BYTES = 1 << 22
AT_ONCE = 16
"""Requests of one step that run side by side: a store takes tens of milliseconds to answer, and little work."""
_HELD = 512
Answer = TypeVar("Answer")


def _store_of(path: str) -> Store:
    """Returns the store of a path. Modules of stores are loaded when they are needed."""
    if is_local(path):
        return local_store.STORE
    if scheme_of(path) == "s3":
        from dapple_dp.transforms.files.places import amazon

        return amazon.STORE
    from dapple_dp.transforms.files.places import beam

    return beam.STORE


def _asking(name: str) -> Any:
    """Returns a method of a path's store that translates errors of a store that is away or refuses access."""

    def ask(_: Any, path: str, *given: Any) -> Any:
        with answered(path):
            return getattr(_store_of(path), name)(path, *given)

    return ask


class _Stores:
    """`Store` of every path, by its kind of place."""

    exists, stat, open, get, create, put, put_new, rename, make_folder = map(
        _asking, ("exists", "stat", "open", "get", "create", "put", "put_new", "rename", "make_folder")
    )

    def delete(self, *paths: str) -> None:
        if any(path.endswith("/") for path in paths):
            raise ValueError(f"delete() takes files, got a folder among {paths}; list the folder first.")
        for store, some in itertools.groupby(paths, _store_of):
            first, *others = some
            with answered(first):
                store.delete(first, *others)

    def list(self, prefix: str) -> Iterator[ListedFile]:
        with answered(prefix):
            yield from _store_of(prefix).list(prefix)


STORE: Store = _Stores()


def makes_once(path: str) -> bool:
    """Returns whether a place can tell which of two writers of a file was first."""
    if is_local(path) or scheme_of(path) == "s3":
        return True
    from dapple_dp.transforms.files.places.beam import CONDITIONAL

    return scheme_of(path) in CONDITIONAL


def open_store(path: str) -> OpenedFile:
    """Opens a file on a store as it is; a small file is read at once.

    Raises:
      OSError: if it cannot be opened.
      ValueError: if there is no filesystem for it.
    """
    ahead = _AHEAD.get()
    opened = None if ahead is None else ahead.take(path)
    with answered(path):
        return _opened(path) if opened is None else opened


def _opened(path: str) -> OpenedFile:
    """Opens a file now; see `open_store`."""
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
    """Files of a store that are opened before they are requested.

    Args:
      paths: in the order of the requests; files that are never requested are opened in vain.
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
        """Returns an open file, or raises the error of opening it; None if it was not opened ahead."""
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
"""Files opened ahead for a thread and for those started in its context; other runs never get them."""


@contextlib.contextmanager
def opening_ahead(paths: Iterable[str]) -> Iterator[None]:
    """Opens the next files of stores ahead for `open_store` in this context; local files are left out.

    Each file stays as it was when it was opened, so a comparison with a seal covers the bytes that are read.

    Args:
      paths: in the order of the requests.
    """
    remote = [path for path in paths if not is_local(path)]
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
    """Yields the answers for files, in order; for files of a store, some requests run at once.

    Args:
      ask: request for a path.
      paths: any number; a few hundred are held in memory.
    """
    rest = iter(paths)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        while some := list(itertools.islice(rest, _HELD)):
            yield from map(ask, some) if is_local(some[0]) else pool.map(ask, some)
