"""Objects of Amazon's protocol, `s3://`, by their exact names: on Amazon S3, MinIO and others.

obstore makes the requests. A request without an answer is repeated for as long as a store may be away, once it
has answered at all. A process that was forked after its parent made a request would wait forever, and is refused.
Stores hold plaintext credentials, so they are never pickled: only paths are, and each process creates its own stores.

Credentials and endpoint come from Beam's `--s3_*` flags, then from the environment, then from whatever Amazon's own
library finds: profiles, single sign-on, processes, instances.
"""

import functools
import io
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, BinaryIO, TypeVar, cast

import pyarrow as pa

from dapple_dp.schemas.errors import ConfigError, StoreAwayError
from dapple_dp.transforms.files.places.store import (
    ListedFile,
    OpenedFile,
    Store,
    StoredFile,
    answered,
    away,
    denied,
    says_nothing,
)
from dapple_dp.transforms.files.signals.measures import MEASURES

_LOGGER = logging.getLogger(__name__)
_SCHEME = "s3://"
_END_BYTES = 1 << 22
"""Bytes at the end of an object that the first request fetches: a small object as a whole, of others the footer."""
_READ_AHEAD = 1 << 24
_PAGE = 1000
_PATIENCE, _FIRST_PATIENCE = 180.0, 10.0
"""Seconds to wait for a store that is away, and for one that has never answered, whose address may be wrong."""
_LONGEST_WAIT = 10.0
_FLAGS = (
    *("s3_access_key_id", "s3_secret_access_key", "s3_session_token", "s3_endpoint_url"),
    *("s3_region_name", "s3_verify", "s3_disable_ssl"),
)
"""Beam's flags for the connection to a store."""
_FOUND_BY_OBSTORE = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
_CREDENTIALS = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
"""Variables that name the files which Amazon's library reads, and their defaults."""
_STATUS = re.compile(r"status code: (\d{3})")
Answer = TypeVar("Answer")


class _AmazonStore:
    """`Store` on `s3://`."""

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path: str) -> StoredFile:
        import obstore

        return _state(_ask(path, "HeadObject", obstore.head))

    def open(self, path: str) -> BinaryIO:
        source = open_object(path).source
        return cast(BinaryIO, source)

    def get(self, path: str) -> bytes:
        import obstore

        return _ask(path, "GetObject", lambda store, name: bytes(obstore.get(store, name).bytes()))

    def create(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _Written(_Upload(path), _END_BYTES))

    def put(self, path: str, content: bytes) -> None:
        import obstore

        _ask(path, "PutObject", lambda store, name: obstore.put(store, name, content))

    def put_new(self, path: str, content: bytes) -> None:
        import obstore

        try:
            _ask(
                path,
                "PutObject",
                lambda store, name: obstore.put(store, name, content, mode="create", use_multipart=False),
            )
        except FileExistsError as error:
            # Only a repeated request, whose first answer was lost, can have found the object that it wrote itself.
            if not getattr(error, "was_repeated", False) or self.get(path) != content:
                raise

    def delete(self, *paths: str) -> None:
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, name = _split(path)
            by_bucket.setdefault(bucket, []).append(name)
        for bucket, names in by_bucket.items():
            _ask_bucket(bucket, "", "DeleteObjects", functools.partial(_delete, names))

    def rename(self, path: str, other: str) -> None:
        import obstore

        bucket, source = _split(path)
        if bucket != _split(other)[0]:
            raise ValueError(f"A file is renamed within its bucket only, got {path} and {other}; copy it instead.")
        _ask(other, "CopyObject", lambda store, name: obstore.copy(store, source, name))
        self.delete(path)

    def list(self, prefix: str) -> Iterator[ListedFile]:
        import obstore.exceptions

        bucket, _, start = prefix.removeprefix(_SCHEME).partition("/")
        folder = start.rpartition("/")[0]
        found: dict[str, Mapping[str, Any]] = {}
        try:
            # For names at the root, obstore drops a leading slash, as if it were another object.
            for each in _pages(bucket, folder) if folder else _pages_with_odd_names(bucket, start):
                # It drops a trailing one, too; the object whose name has none comes first.
                found.setdefault(each["path"], each)
        except obstore.exceptions.InvalidPathError:
            found = {name["path"]: name for name in _pages_with_odd_names(bucket, start)}
        for each in found.values():
            path = f"{_SCHEME}{bucket}/{each['path']}"
            # An empty object may be the mark of a folder, whose name has lost its slash.
            if path.startswith(prefix) and (each["size"] or self.exists(path)):
                yield ListedFile(path, *_state(each))

    def make_folder(self, path: str, mode: int = 0o777) -> None:
        """Does nothing: there are no folders."""


STORE: Store = _AmazonStore()


def open_object(path: str) -> OpenedFile:
    """Opens an object as it is now; a small one is read at once."""
    return _Object(path).opened()


class _Object(io.RawIOBase):
    """An object as it was when it was opened; later requests ask for that version and no other, if it has a tag.

    Amazon's objects have one. Gateways to a disk may have none for files that weren't written through them.

    Args:
      path: of the object.
    """

    def __init__(self, path: str):
        meta, self._end = _ask(path, "GetObject", _end_of)
        self._path, self._place = path, 0
        self._tag, self._state = meta["e_tag"], _state(meta)

    def opened(self) -> OpenedFile:
        """Returns the opened object and its state."""
        whole = len(self._end) == self._state.size
        source = pa.BufferReader(self._end) if whole else io.BufferedReader(self, _READ_AHEAD)
        return OpenedFile(source, self._state, fixed=whole or bool(self._tag))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position, without a request."""
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._state.size}[whence]
        return self._place

    def readinto(self, target: Any) -> int:
        """Reads from the current position, either from the known end of the object or from the store."""
        first = self._state.size - len(self._end)
        if self._place >= first:
            found = self._end[self._place - first :][: len(target)]
        else:
            found = self._part(self._place, min(self._place + len(target), first))
        target[: len(found)] = found
        self._place += len(found)
        return len(found)

    def _part(self, start: int, end: int) -> bytes:
        import obstore

        options: Any = {"range": (start, end)}
        if self._tag:
            options |= {"if_match": self._tag}
        part = _ask(
            self._path, "GetObject", lambda store, name: bytes(obstore.get(store, name, options=options).bytes())
        )
        if len(part) != end - start:
            raise OSError(f"{self._path} could not be read: the store sent other bytes than requested")
        return part


class _Upload(io.RawIOBase):
    """An object that is written in parts and appears when it is closed; an error before that leaves nothing.

    Args:
      path: of the object.
    """

    def __init__(self, path: str):
        import obstore

        self._path, self._is_given_up = path, False
        bucket, name = _split(path)
        patience = _PATIENCE if bucket in _known.answered else _FIRST_PATIENCE
        # obstore keeps the parts that were sent, so it repeats requests itself.
        self._writer = obstore.open_writer(_store(bucket, patience), name)

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        """Writes all of `content`."""
        return len(content) if self._is_given_up else int(self._guarded(self._writer.write, bytes(content)))

    def close(self) -> None:
        """Completes the object."""
        if not self.closed:
            super().close()
            if not self._is_given_up:
                self._guarded(self._writer.close)

    def give_up(self, *error: Any) -> None:
        """Makes the store discard what was written."""
        self._is_given_up = True
        self._writer.__exit__(*error)

    def _guarded(self, request: Callable[..., Any], *given: Any) -> Any:
        try:
            return request(*given)
        except Exception as error:
            raise _reason(self._path, error) from error


class _Written(io.BufferedWriter):
    """A buffered upload that is given up if the body of its `with` fails."""

    raw: _Upload

    def __exit__(self, *error: Any) -> None:
        """Closes the file, giving up the upload after an error."""
        if error[0] is not None:
            self.raw.give_up(*error)
        super().__exit__(*error)


def _end_of(store: Any, name: str) -> tuple[Mapping[str, Any], bytes]:
    """Returns the metadata of an object and the bytes of its end."""
    import obstore
    from obstore.exceptions import GenericError

    try:
        found = obstore.get(store, name, options={"range": {"suffix": _END_BYTES}})
    except GenericError as error:
        # An empty object has no range, and some stores don't support ranges.
        if _status(error) != 416 and "non-partial" not in str(error):
            raise
        found = obstore.get(store, name)
    return found.meta, bytes(found.bytes())


def _delete(names: list[str], store: Any, _: str) -> None:
    import obstore

    obstore.delete(store, names)


def _state(meta: Mapping[str, Any]) -> StoredFile:
    """Returns an object's state: its time in whole seconds, since stores round differently, and its tag."""
    tag = re.sub(r'[\s"]', "", meta["e_tag"] or "")
    return StoredFile(meta["size"], f"{int(meta['last_modified'].timestamp())}-{tag}")


def _pages(bucket: str, folder: str) -> Iterator[Mapping[str, Any]]:
    """Yields the objects below a folder, ordered by name.

    Raises:
      InvalidPathError: if obstore can't handle a name.
    """
    import obstore

    last = None
    while True:

        def page(store: Any, _: str, after: str | None = last) -> Any:
            return next(iter(obstore.list(store, folder or None, offset=after, chunk_size=_PAGE)), [])

        found = _ask_bucket(bucket, folder, "ListObjectsV2", page)
        yield from found
        if len(found) < _PAGE:
            return
        # The last one may be the mark of a folder that has lost its slash, and names before it come after that.
        last = max(each["path"] for each in found)


def _pages_with_odd_names(bucket: str, start: str) -> Iterator[Mapping[str, Any]]:
    """Yields the objects whose names begin with `start`, by Amazon's library; skips those that obstore can't read."""
    library, place, skipped = _library(_flags()), {"Bucket": bucket, "Prefix": start}, 0

    def ask(*_: Any) -> Any:
        path = f"{_SCHEME}{bucket}/{start}"
        with answered(path):
            try:
                return library.list_objects_v2(**place)
            except library.exceptions.ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                kind = FileNotFoundError if status == 404 else OSError
                raise kind(f"{path}: the store answers {status}") from error

    while True:
        page = _ask_bucket(bucket, start, "ListObjectsV2", ask)
        for each in page.get("Contents", ()):
            if _is_odd(each["Key"]):
                # An object without content marks a folder.
                skipped += not each["Key"].endswith("/") or each["Size"] > 0
            else:
                state = {"size": each["Size"], "last_modified": each["LastModified"], "e_tag": each["ETag"]}
                yield {"path": each["Key"]} | state
        if not page.get("IsTruncated"):
            break
        place["ContinuationToken"] = page["NextContinuationToken"]
    if skipped:
        _LOGGER.warning("%d objects below %s%s/%s have names that could not be read", skipped, _SCHEME, bucket, start)


def _is_odd(name: str) -> bool:
    """Returns whether obstore refuses a name or would change it."""
    return any(part in ("", ".", "..") for part in name.split("/")) or not name.isprintable()


def _split(path: str) -> tuple[str, str]:
    bucket, _, name = path.removeprefix(_SCHEME).partition("/")
    if not bucket or _is_odd(name):
        raise ConfigError(
            "A name on s3:// must have a bucket, no empty part, no part . or .. and no control character, got "
            f"{path!r}; choose another name."
        )
    return bucket, name


def _ask(path: str, operation: str, request: Callable[[Any, str], Answer]) -> Answer:
    """Sends a request about one object; see `_ask_bucket`."""
    return _ask_bucket(*_split(path), operation, request)


def _ask_bucket(bucket: str, name: str, operation: str, request: Callable[[Any, str], Answer]) -> Answer:
    """Returns the answer to a request, repeating it while the store doesn't answer.

    Args:
      bucket: its name.
      name: of an object in it, or a prefix of several names.
      operation: its name in Amazon's protocol, for the counts of requests.
      request: takes the store and the object's name.
    """
    path = f"{_SCHEME}{bucket}/{name}"
    known, began, wait, retries = _known, time.monotonic(), 0.1, 0
    while True:
        store = _store(bucket)
        try:
            answer = request(store, name)
            break
        except Exception as error:
            reason = _reason(path, error)
            patience = _PATIENCE if bucket in known.answered else _FIRST_PATIENCE
            if not isinstance(reason, StoreAwayError) or time.monotonic() - began + wait > patience:
                if retries and isinstance(reason, FileExistsError):
                    reason.was_repeated = True  # type: ignore[attr-defined]
                raise reason from error
        if not retries:
            _LOGGER.warning("a store's answer was incomplete; retrying")
        # Spread out threads that were refused at the same time.
        time.sleep(wait * (0.5 + time.monotonic_ns() % 1000 / 2000))
        wait, retries = min(2.0 * wait, _LONGEST_WAIT), retries + 1
    known.answered.add(bucket)
    MEASURES.asked(path, operation, retries)
    return answer


def _reason(path: str, error: Exception) -> Exception:
    """Translates an error of obstore into that of a file; returns any other error unchanged."""
    from obstore import exceptions

    if isinstance(error, FileNotFoundError) or _status(error) == 404:
        return FileNotFoundError(f"{path} could not be read: it doesn't exist")
    if isinstance(error, exceptions.AlreadyExistsError) or _status(error) == 409:
        return FileExistsError(path)
    if isinstance(error, exceptions.PreconditionError):
        return OSError(f"{path} could not be read: it was replaced while reading")
    if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError)):
        return denied(path)
    if not isinstance(error, exceptions.GenericError):
        return error
    status = _status(error)
    return away(path) if status is None or says_nothing(status) else OSError(f"{path}: the store answers {status}")


def _status(error: Exception) -> int | None:
    """Returns the HTTP status in an error's text; None without one."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


class _Known:
    """Stores of a process by bucket and flags; forgotten when the environment changes."""

    def __init__(self, forked: bool = False) -> None:
        self.forked = forked
        self.lock = threading.Lock()
        self.surroundings: Any = None
        self.stores: dict[tuple[Any, ...], Any] = {}
        self.answered: set[str] = set()


_known = _Known()


def _after_fork() -> None:
    """Resets the state in a child, which lacks the threads that wait for answers and may have inherited a held lock."""
    global _known
    _known = _Known(_known.forked or bool(_known.stores))


os.register_at_fork(after_in_child=_after_fork)


def _store(bucket: str, patience: float = 0.0) -> Any:
    """Returns the store of a bucket; creates a new one if flags, environment or credential files have changed.

    Args:
      bucket: its name.
      patience: seconds for which obstore itself repeats a request; 0 leaves that to the caller.
    """
    known, flags = _known, _flags()
    if known.forked:
        raise RuntimeError(
            "A forked process could not use s3://, because its parent already had; start processes with spawn."
        )
    surroundings = dict(os.environ), [_stamp(os.environ.get(name, file)) for name, file in _CREDENTIALS.items()]
    with known.lock:
        if known.surroundings != surroundings:
            known.surroundings, known.stores = surroundings, {}
        if (bucket, flags, patience) not in known.stores:
            known.stores[bucket, flags, patience] = _made(bucket, dict(zip(_FLAGS, flags, strict=True)), patience)
        return known.stores[bucket, flags, patience]


def _flags() -> tuple[Any, ...]:
    """Returns Beam's flags, of a job or a worker; all None in a process without Beam."""
    if "apache_beam.io.filesystems" not in sys.modules:
        return (None,) * len(_FLAGS)
    from dapple_dp.transforms.files.places.beam import given_flags

    return given_flags(_FLAGS)


def _made(bucket: str, flags: dict[str, Any], patience: float) -> Any:
    from obstore.store import S3Store

    keys = ("s3_access_key_id", "s3_secret_access_key", "s3_session_token", "s3_endpoint_url", "s3_region_name")
    names = ("access_key_id", "secret_access_key", "session_token", "endpoint", "region")
    config: Any = {name: flags[key] for key, name in zip(keys, names, strict=True) if flags[key]}
    config.setdefault("endpoint", os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))
    if config["endpoint"] is None:
        del config["endpoint"]
        if flags["s3_disable_ssl"]:
            config["endpoint"] = (
                f"http://s3.{config.get('region', os.environ.get('AWS_REGION', 'us-east-1'))}.amazonaws.com"
            )
    client: Any = {"allow_http": config.get("endpoint", "").startswith("http://")}
    verify = flags["s3_verify"]
    if verify is not None and str(verify).lower() in ("false", "0", "no"):
        client["allow_invalid_certificates"] = True
    elif isinstance(verify, str) and os.path.isfile(verify):
        with open(verify, "rb") as file:
            client["root_certificate"] = file.read()
    provider = None
    if "access_key_id" not in config and not any(os.environ.get(name) for name in _FOUND_BY_OBSTORE):
        provider = _provider(bucket)
    return S3Store(
        bucket,
        config=config,
        client_options=client,
        retry_config={
            "max_retries": 1000 if patience else 0,
            "retry_timeout": timedelta(seconds=patience or 1.0),
            "backoff": {"max_backoff": timedelta(seconds=_LONGEST_WAIT)},
        },
        credential_provider=provider,
    )


def _provider(bucket: str) -> Any:
    """Returns a provider of the credentials that Amazon's library finds; None without it, then obstore looks itself."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    try:
        return Boto3CredentialProvider()
    except ValueError:
        raise denied(f"{_SCHEME}{bucket}") from None


def _library(flags: tuple[Any, ...]) -> Any:
    """Creates a client of Amazon's library."""
    try:
        import boto3
    except ImportError:
        raise ConfigError(
            "obstore could not list some objects because of their names; install boto3, which can, or remove them."
        ) from None
    given = dict(zip(_FLAGS, flags, strict=True))
    return boto3.client(
        "s3",
        region_name=given["s3_region_name"],
        use_ssl=not given["s3_disable_ssl"],
        verify=given["s3_verify"],
        endpoint_url=given["s3_endpoint_url"],
        aws_access_key_id=given["s3_access_key_id"],
        aws_secret_access_key=given["s3_secret_access_key"],
        aws_session_token=given["s3_session_token"],
    )


def _stamp(path: str) -> tuple[int, ...]:
    """Returns values that change whenever a file changes."""
    try:
        found = os.stat(os.path.expanduser(path))
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
