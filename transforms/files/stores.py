"""Files on Beam's filesystems, whose modules are imported with the first store: files on a disk need none of them.

Beam makes a session and a client of Amazon's library for each thing that it asks of a file, and both read descriptions
of the protocol from the disk: a tenth of a CPU second. Here all threads of a process share one client.
"""

import collections
import concurrent.futures
import contextlib
import contextvars
import functools
import io
import itertools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from transforms.files.signals.measures import MEASURES

_LOGGER = logging.getLogger(__name__)
_SCHEME = re.compile(r"([a-zA-Z][-a-zA-Z0-9+.]*)://")
_END_BYTES = 1 << 22
"""Bytes at the end of a file that one request brings: a small file whole, of another one the footer."""
_READ_AHEAD = 1 << 24
_FLAGS = (
    *("s3_access_key_id", "s3_secret_access_key", "s3_session_token", "s3_endpoint_url"),
    *("s3_region_name", "s3_api_version", "s3_verify", "s3_disable_ssl"),
)
"""Beam's flags of which a client is made."""
_CREDENTIALS = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
"""Variables that name the files which Amazon's library reads, and what it reads without them."""
_MOST_CONNECTIONS = 64
AT_ONCE = 16
"""Requests of one step that wait for a store side by side: an answer takes tens of milliseconds, and little work."""
_HELD = 512
Answer = TypeVar("Answer")


class StoredFile(NamedTuple):
    """What a store says of a file.

    Attributes:
      size: bytes.
      changed: time of the last change; empty if it gives none.
    """

    size: int
    changed: str


class OpenedFile(NamedTuple):
    """An open file of a store.

    Attributes:
      source: its bytes.
      state: of the file that they are of; None if the store has not sent it with them.
      fixed: whether all bytes are of the file as it was when it was opened, whatever takes its place meanwhile.
    """

    source: Any
    state: StoredFile | None
    fixed: bool


def is_local(path: str) -> bool:
    """Whether a path is on a disk of this machine, or mounted like one; by the rule of Beam."""
    scheme = _SCHEME.match(path.strip())
    return scheme is None or scheme[1] == "file"


def open_store(path: str) -> OpenedFile:
    """Bytes of a file on a store, as they are there; those of a small file have been read.

    Raises:
      OSError: if it cannot be opened.
      ValueError: if there is no filesystem for it.
    """
    ahead = _AHEAD.get()
    opened = None if ahead is None else ahead.take(path)
    return _opened(path) if opened is None else opened


def _opened(path: str) -> OpenedFile:
    """`open_store`, from now on."""
    from apache_beam.io.filesystem import CompressionTypes

    systems = _filesystems()
    if systems.get_scheme(path) == "s3":
        return _Object(path).opened()
    stream = systems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    if stream.seek(0, io.SEEK_END) > _END_BYTES:
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


def stored(path: str) -> StoredFile:
    """The present state of a file on a store; raises what `open_store` raises."""
    found = _filesystems().get_filesystem(path).metadata(path)
    return StoredFile(found.size_in_bytes, str(found.last_updated_in_seconds or ""))


def amazon(path: str) -> Any:
    """Amazon's own client, with the flags and credentials by which Beam reads and writes a path."""
    return _client(_filesystems().get_filesystem(path)._options)


def share_clients() -> None:
    """Has Beam use one client of Amazon's store for all that a process asks; what imports Beam's filesystems calls it.

    Beam keeps the bytes that it is about to read beside the client, for each open file its own, as before.
    """
    from apache_beam.io.aws.clients.s3 import boto3_client

    boto3_client.Client.__init__ = _shared


def _filesystems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    share_clients()
    return FileSystems


class _Clients:
    """Clients of a process by flags; those of other surroundings are forgotten."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.surroundings: Any = None
        self.by_flags: dict[tuple[Any, ...], Any] = {}


_clients = _Clients()


def _forget() -> None:
    """A process that was forked opens connections of its own; the lock may be held by a thread that it has not."""
    global _clients
    _clients = _Clients()


os.register_at_fork(after_in_child=_forget)


def _shared(self: Any, options: Any) -> None:
    """Takes the place of `__init__` of Beam's client."""
    self.client = _client(options)
    self._download_request = None
    self._download_stream = None
    self._download_pos = 0


def _client(options: Any) -> Any:
    """The client for these flags; its credentials renew themselves where they can.

    Another one is made if the environment has changed, or the files in which the library finds credentials.
    """
    flags = _flags(options)
    variables = {name: os.environ.get(name) for name in list(os.environ)}
    surroundings = variables, [_stamp(os.environ.get(name, file)) for name, file in _CREDENTIALS.items()]
    clients = _clients
    with clients.lock:
        if clients.surroundings != surroundings:
            clients.surroundings, clients.by_flags = surroundings, {}
        if flags not in clients.by_flags:
            clients.by_flags[flags] = _made(flags)
        return clients.by_flags[flags]


def _flags(options: Any) -> tuple[Any, ...]:
    from apache_beam.options.pipeline_options import PipelineOptions, S3Options

    if options is None or isinstance(options, PipelineOptions):
        view = (options or PipelineOptions([])).view_as(S3Options)
        return tuple(getattr(view, name) for name in _FLAGS)
    return tuple(options.get(name) for name in _FLAGS)


def _made(flags: tuple[Any, ...]) -> Any:
    import boto3
    from botocore.config import Config

    key_id, key, token, endpoint, region, version, verify, plain = flags
    client = boto3.session.Session().client(
        service_name="s3",
        region_name=region,
        api_version=version,
        use_ssl=not plain,
        verify=verify,
        endpoint_url=endpoint,
        aws_access_key_id=key_id,
        aws_secret_access_key=key,
        aws_session_token=token,
        config=Config(max_pool_connections=_MOST_CONNECTIONS),
    )
    client.meta.events.register("provide-client-params.s3", _note_place)
    client.meta.events.register("after-call.s3", _count)
    return client


def _note_place(params: Any, context: Any, **_: object) -> None:
    """Keeps what a request is for until it is answered."""
    context["dapple_place"] = f"s3://{params.get('Bucket', '')}/{params.get('Key', params.get('Prefix', ''))}"


def _count(model: Any, parsed: Any, context: Any, **_: object) -> None:
    """Counts a request that was answered."""
    retries = parsed.get("ResponseMetadata", {}).get("RetryAttempts", 0)
    MEASURES.asked(context.get("dapple_place", ""), model.name, retries)


def _stamp(path: str) -> tuple[int, ...]:
    """What changes with a file."""
    try:
        found = os.stat(os.path.expanduser(path))
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


class _Object(io.RawIOBase):
    """An object of Amazon's store as it was when it was opened: later requests ask for that one and no other.

    Args:
      path: of the object.
    """

    def __init__(self, path: str):
        from apache_beam.io.aws.s3io import S3IO, parse_s3_path

        bucket, name = parse_s3_path(path)
        self._path, self._place = path, 0
        self._get = functools.partial(amazon(path).get_object, Bucket=bucket, Key=name)
        told, self._end = self._answer(Range=f"bytes=-{_END_BYTES}")
        self._tag = told.get("ETag", "")
        size = int(told["ContentRange"].rpartition("/")[2]) if "ContentRange" in told else len(self._end)
        self._state = StoredFile(size, str(S3IO._updated_to_seconds(told["LastModified"]) or ""))

    def opened(self) -> OpenedFile:
        """The object, and what the store said of it."""
        whole = len(self._end) == self._state.size
        source = pa.BufferReader(self._end) if whole else io.BufferedReader(self, _READ_AHEAD)
        return OpenedFile(source, self._state, fixed=True)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes to a place; asks for nothing."""
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._state.size}[whence]
        return self._place

    def readinto(self, target: Any) -> int:
        """Reads from this place on, either what is known already or what is not."""
        first = self._state.size - len(self._end)
        if self._place >= first:
            found = self._end[self._place - first :][: len(target)]
        else:
            end = min(self._place + len(target), first)
            _, found = self._answer(Range=f"bytes={self._place}-{end - 1}", IfMatch=self._tag)
            if len(found) != end - self._place:
                raise OSError(f"{self._path} cannot be read: other bytes came than were asked for")
        target[: len(found)] = found
        self._place += len(found)
        return len(found)

    def _answer(self, **wanted: str) -> tuple[Any, bytes]:
        """What the store says, and bytes; a request that fails in a way that passes is made again."""
        from apache_beam.utils import retry
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found: tuple[Any, bytes] = retry.with_exponential_backoff(retry_filter=_passes, logger=_say_again)(
                self._ask
            )(**wanted)
            return found
        except ClientError as error:
            if error.response["Error"]["Code"] == "InvalidRange":
                # No range is one of an empty object.
                return self._ask()
            raise OSError(f"{self._path} cannot be read") from error
        except BotoCoreError as error:
            raise OSError(f"{self._path} cannot be read") from error

    def _ask(self, **wanted: str) -> tuple[Any, bytes]:
        answer = self._get(**wanted)
        return answer, answer["Body"].read()


def _say_again(*_: object) -> None:
    """What Beam would log has bytes of private files counted."""
    _LOGGER.warning("a store did not answer in full; retrying")


def _passes(error: BaseException) -> bool:
    """Whether a request that failed may succeed later: the network, or a store that is busy."""
    from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

    if isinstance(error, ClientError):
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"]) >= 500
    return isinstance(error, (HTTPClientError, IncompleteReadError))
