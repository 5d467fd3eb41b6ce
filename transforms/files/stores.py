"""Files by their exact names, on local disks and on Beam's filesystems.

`STORE` takes every path as it is: brackets, stars and question marks are letters of a name. Nothing else may call
Beam's `FileSystems`, whose `delete` and `match` take patterns. Beam's modules are imported with the first store, so
files on a disk need none of them. States, graphs and contracts hold paths only; what asks a store is never pickled.

Beam makes a session and a client of Amazon's library for each thing that it asks of a file, and both read descriptions
of the protocol from the disk: a tenth of a CPU second. Here all threads of a process share one client.
"""

import collections
import concurrent.futures
import contextlib
import contextvars
import errno
import functools
import io
import itertools
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from dapple_dp.schemas.errors import ConfigError, StoreAwayError, StoreDeniedError, chain
from dapple_dp.transforms.files import new_file
from dapple_dp.transforms.files.signals.measures import MEASURES

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


_GONE = frozenset(
    getattr(errno, name)
    for name in (
        *("ESTALE", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET", "ENOTCONN", "ESHUTDOWN"),
        *("ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EREMOTEIO", "EPIPE", "ENONET"),
    )
    if hasattr(errno, name)
)
"""What the system says of a disk, or a server, that is reached by a network and is not there."""
_AWAY = {
    "botocore.exceptions": {"HTTPClientError", "IncompleteReadError", "ConnectionError"},
    "requests.exceptions": {"ConnectionError", "Timeout", "ChunkedEncodingError"},
    "urllib3.exceptions": {"HTTPError"},
    "azure.core.exceptions": {"ServiceRequestError", "ServiceResponseError"},
    "google.auth.exceptions": {"TransportError"},
    "google.api_core.exceptions": {"RetryError", "ServerError"},
}
"""Classes of libraries, by module, of a request that was not answered."""
_DENIED = {
    "botocore.exceptions": {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"},
    "google.auth.exceptions": {"DefaultCredentialsError"},
}
_BUSY, _NO_RIGHTS = (408, 425, 429), (401, 403)


def is_away(error: BaseException) -> bool:
    """Whether an error is, or came from, a store that does not answer now; a worker's error is known by its text."""
    return any(isinstance(each, StoreAwayError) or _RAISED in str(each) for each in chain(error))


_RAISED = f"{StoreAwayError.__module__}.{StoreAwayError.__name__}: "


@contextlib.contextmanager
def answered(path: str) -> Iterator[None]:
    """Has a store that is away, or that refuses access, say so.

    Args:
      path: of the file that it is asked for.

    Raises:
      StoreAwayError: if it does not answer now.
      StoreDeniedError: if it refuses access.
    """
    try:
        yield
    except (StoreAwayError, StoreDeniedError):
        raise
    except Exception as error:
        found = list(chain(error))
        if any(_status(each) in _NO_RIGHTS or _is_of(each, _DENIED) for each in found):
            raise StoreDeniedError(
                f"The store refuses access to {path}; correct the credentials or the rights of this user."
            ) from error
        if any(map(is_gone, found)):
            raise StoreAwayError(f"The store of {path} doesn't answer; run the same command again later.") from error
        raise


def is_gone(error: BaseException) -> bool:
    """Whether one error, whatever it came from, says that a store does not answer now."""
    status = _status(error)
    if status is not None:
        return status >= 500 or status in _BUSY
    if isinstance(error, (ConnectionError, TimeoutError, socket.gaierror)) or _is_of(error, _AWAY):
        return True
    return isinstance(error, OSError) and error.errno in _GONE


def _status(error: Any) -> int | None:
    """The status of HTTP that a library gives for an error; None if it gives none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        found = next((getattr(error, name) for name in ("status_code", "code") if hasattr(error, name)), None)
        found = getattr(response, "status_code", None) if found is None else found
    try:
        return int(found) if found is not None and not callable(found) else None
    except (TypeError, ValueError):
        return None


def _is_of(error: BaseException, classes: dict[str, set[str]]) -> bool:
    return any(each.__name__ in classes.get(each.__module__, ()) for each in type(error).__mro__)


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


class ListedFile(NamedTuple):
    """A file in a listing.

    Attributes:
      path: of the file.
      size: bytes.
      changed: time of the last change; empty if the store gives none.
    """

    path: str
    size: int
    changed: str


def scheme_of(path: str) -> str | None:
    """The scheme of a URL, by Beam's rule; None for a path."""
    scheme = _SCHEME.match(path.strip())
    return None if scheme is None else scheme[1]


def is_local(path: str) -> bool:
    """Whether a path is on a disk of this machine, or mounted like one."""
    return scheme_of(path) in (None, "file")


def local_path(path: str) -> str:
    """A local path without its scheme."""
    return path.removeprefix("file://")


def join(path: str, *names: str) -> str:
    """A path below another one."""
    if is_local(path):
        return os.path.join(path, *names)
    for name in names:
        path = f"{path.rstrip('/')}/{name.lstrip('/')}"
    return path


class Store(Protocol):
    """Files by exact names. Errors are OSErrors, or ConfigError for a name that the store cannot have."""

    def exists(self, path: str) -> bool:
        """Whether there is a file; a folder counts where there are folders."""

    def stat(self, path: str) -> StoredFile:
        """Size and time of a file."""

    def open(self, path: str) -> BinaryIO:
        """A file to read and to seek in."""

    def get(self, path: str) -> bytes:
        """Content of a file."""

    def create(self, path: str) -> BinaryIO:
        """A file to write, in place of any that is there; an object store shows it when it is closed."""

    def put(self, path: str, content: bytes) -> None:
        """Writes a whole file; on a local disk it and its name are durable on return, and missing folders are made."""

    def put_new(self, path: str, content: bytes) -> None:
        """Writes a whole file that nobody has written; on a local disk for its owner only, and durable on return.

        Raises:
          FileExistsError: if something is there, a dangling link too.
          ConfigError: if the place cannot tell who was first.
        """

    def delete(self, *paths: str) -> None:
        """Deletes files of one store; those that are gone are no error."""

    def rename(self, path: str, other: str) -> None:
        """Gives a file another name; on an object store by a copy."""

    def list(self, prefix: str) -> Iterator[ListedFile]:
        """Files whose paths begin like this, at any depth, in any order; on HDFS those of one folder."""

    def make_folder(self, path: str, mode: int = 0o777) -> None:
        """Makes a folder where there are folders; one that is there is no error."""


def _says_away(method: Any) -> Any:
    """A method of a path whose store may be away."""

    @functools.wraps(method)
    def wrapped(self: Any, path: str, *args: Any) -> Any:
        with answered(path):
            return method(self, path, *args)

    return wrapped


class _BeamStore:
    """`Store` on a local disk and on Beam's filesystems, none of whose functions gets a name that it could expand."""

    @_says_away
    def exists(self, path: str) -> bool:
        if not is_local(path):
            return bool(_system(path).exists(path))
        try:
            os.stat(local_path(path))
        except (OSError, ValueError) as error:
            if is_gone(error):
                raise
            return False
        return True

    @_says_away
    def stat(self, path: str) -> StoredFile:
        if is_local(path):
            found = os.stat(local_path(path))
            return StoredFile(found.st_size, str(found.st_mtime))
        entry = _system(path).metadata(path)
        return StoredFile(entry.size_in_bytes, str(entry.last_updated_in_seconds or ""))

    @_says_away
    def open(self, path: str) -> BinaryIO:
        if is_local(path):
            return open(local_path(path), "rb")
        opened: BinaryIO = _system(path).open(path, *_as_is())
        return opened

    @_says_away
    def get(self, path: str) -> bytes:
        with self.open(path) as file:
            return bytes(file.read())

    @_says_away
    def create(self, path: str) -> BinaryIO:
        if is_local(path):
            return open(local_path(path), "wb")
        made: BinaryIO = _system(path).create(path, *_as_is())
        return made

    @_says_away
    def put(self, path: str, content: bytes) -> None:
        folder = os.path.dirname(local_path(path))
        if is_local(path):
            new_file.make_folders(folder)
        with self.create(path) as file:
            file.write(content)
        if is_local(path):
            new_file.flush(local_path(path))
            new_file.flush(folder)

    @_says_away
    def put_new(self, path: str, content: bytes) -> None:
        scheme = scheme_of(path)
        if is_local(path):
            new_file.create(local_path(path), content)
        elif scheme in CONDITIONAL:
            _check_name(path)
            CONDITIONAL[scheme](path, content)
        else:
            raise ConfigError(
                f"{path} must be on a local disk, gs://, s3://, azfs:// or hdfs://, where a file can be made by one "
                f"run only, got {scheme}://; choose another place."
            )

    def delete(self, *paths: str) -> None:
        if any(path.endswith("/") for path in paths):
            raise ValueError(f"files must be deleted by their names, got {paths}; list a folder first.")
        for path in filter(is_local, paths):
            with contextlib.suppress(FileNotFoundError), answered(path):
                os.unlink(local_path(path))
        remote = [path for path in paths if not is_local(path)]
        if not remote:
            return
        for path in remote:
            _check_name(path)
        with answered(remote[0]):
            self._delete(remote)

    def _delete(self, paths: list[str]) -> None:
        """Deletes files of a store."""
        system = _system(paths[0])
        try:
            if scheme_of(paths[0]) == "gs":  # its `delete` expands patterns
                failed = [path for path, error in system._gcsIO().delete_batch(paths) if error]
                if failed:
                    raise OSError(f"{failed[0]} cannot be deleted")
            else:
                system.delete(paths)
        except OSError:
            if any(map(self.exists, paths)):
                raise

    @_says_away
    def rename(self, path: str, other: str) -> None:
        if is_local(path):
            os.replace(local_path(path), local_path(other))
        else:
            _check_name(other)
            _system(path).rename([path], [other])

    def list(self, prefix: str) -> Iterator[ListedFile]:
        with answered(prefix):
            yield from _walk(local_path(prefix)) if is_local(prefix) else self._list(prefix)

    def _list(self, prefix: str) -> Iterator[ListedFile]:
        """Files of a store."""
        system = _system(prefix)
        for entry in system._list(prefix.rpartition("/")[0] if system.has_dirs() else prefix):
            if entry.path.startswith(prefix):
                yield ListedFile(entry.path, entry.size_in_bytes, str(entry.last_updated_in_seconds or ""))

    @_says_away
    def make_folder(self, path: str, mode: int = 0o777) -> None:
        if is_local(path):
            new_file.make_folders(local_path(path), mode)
            return
        system = _system(path)
        if system.has_dirs() and not system.exists(path):
            system.mkdirs(path)


STORE: Store = _BeamStore()


def _walk(prefix: str) -> Iterator[ListedFile]:
    """Local files; those that go meanwhile, and links that lead nowhere, are left out."""
    top = os.path.dirname(prefix)
    for folder, _, names in os.walk(top or "."):
        for name in names:
            path = os.path.join(folder, name).removeprefix("" if top else "./")
            if path.startswith(prefix):
                with contextlib.suppress(OSError):
                    found = os.stat(path)
                    yield ListedFile(path, found.st_size, str(found.st_mtime))


def _system(path: str) -> Any:
    """Beam's filesystem of a path; raises ValueError if there is none, and what `_check_name` raises."""
    _check_name(path)
    return _filesystems().get_filesystem(path)


def _check_name(path: str) -> None:
    """Raises ConfigError for a name on a store that Beam cuts at a line feed, or that HDFS's client expands."""
    if "\n" in path or (scheme_of(path) == "hdfs" and "#LATEST" in path):
        raise ConfigError(
            f"A name on a store can have no line feed, and no #LATEST on HDFS, got {path!r}; choose another name."
        )


def _as_is() -> tuple[str, str]:
    """Beam's type of content, and that nothing is to be packed whatever the name ends with."""
    from apache_beam.io.filesystem import CompressionTypes

    return "application/octet-stream", CompressionTypes.UNCOMPRESSED


def set_options(options: Any) -> None:
    """Tells Beam's filesystems the flags of a job: some need them before its first pipeline is made."""
    _filesystems().set_options(options)


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
        return _Object(path).opened()
    stream = STORE.open(path)
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


def _amazon(path: str) -> Any:
    """Amazon's own client, with the flags and credentials by which Beam reads and writes a path."""
    return _client(_system(path)._options)


def _share_clients() -> None:
    """Has Beam use one client of Amazon's store for all that a process asks.

    Beam keeps the bytes that it is about to read beside the client, for each open file its own, as before.
    """
    from apache_beam.io.aws.clients.s3 import boto3_client

    boto3_client.Client.__init__ = _shared


def _filesystems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    _share_clients()
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
        self._get = functools.partial(_amazon(path).get_object, Bucket=bucket, Key=name)
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


def _on_google(path: str, content: bytes) -> None:
    """Generation 0 is that of an object that is not there."""
    from apache_beam.io.gcp.gcsio import GcsIO, parse_gcs_path
    from google.api_core.exceptions import GoogleAPIError, PreconditionFailed

    bucket, name = parse_gcs_path(path)
    try:
        GcsIO().client.bucket(bucket).blob(name).upload_from_string(content, if_generation_match=0)
    except PreconditionFailed as error:
        raise FileExistsError(path) from error
    except GoogleAPIError as error:
        raise OSError(f"{path} cannot be written") from error


def _on_amazon(path: str, content: bytes) -> None:
    """An object with any tag is one that is there; a conflict is another writer at the same moment."""
    from botocore.exceptions import BotoCoreError, ClientError

    # The client that Beam writes by: a key must go where Beam writes, whatever flags say of endpoint and credentials.
    store = _amazon(path)
    bucket, _, name = path.removeprefix("s3://").partition("/")
    try:
        store.put_object(Bucket=bucket, Key=name, Body=content, IfNoneMatch="*")
    except ClientError as error:
        taken = error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict")
        raise (FileExistsError(path) if taken else OSError(f"{path} cannot be written")) from error
    except BotoCoreError as error:
        raise OSError(f"{path} cannot be written") from error


def _on_azure(path: str, content: bytes) -> None:
    """A blob that may not be overwritten is sent with If-None-Match: *."""
    from apache_beam.io.azure.blobstorageio import parse_azfs_path
    from azure.core.exceptions import AzureError, ResourceExistsError

    container, name = parse_azfs_path(path)
    # The client that Beam writes by, whatever flags say of endpoint and credentials.
    service = _system(path)._blobstorageIO().client
    try:
        service.get_blob_client(container, name).upload_blob(content, overwrite=False)
    except ResourceExistsError as error:
        raise FileExistsError(path) from error
    except AzureError as error:
        raise OSError(f"{path} cannot be written") from error


def _on_hadoop(path: str, content: bytes) -> None:
    """The name node makes a file only where none is, unless it is asked to overwrite; Beam does not say it."""
    from hdfs import HdfsError

    try:
        with STORE.create(path) as file:
            file.write(content)
    except HdfsError as error:
        if STORE.exists(path):
            raise FileExistsError(path) from error
        raise OSError(f"{path} cannot be written") from error


CONDITIONAL: dict[str, Callable[[str, bytes], None]] = {
    "gs": _on_google,
    "s3": _on_amazon,
    "azfs": _on_azure,
    "hdfs": _on_hadoop,
}
"""How a file is made once, by scheme; these take the place of a look and a write."""
