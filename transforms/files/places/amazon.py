"""Objects of Amazon's protocol, `s3://`, by their exact names: Amazon's store, MinIO and others.

Requests are made by obstore. A request that is not answered is made again for as long as a store may be away, once it
has answered at all. A process that was forked after its parent made a request would wait for ever, and is refused.
Stores hold credentials in clear, so nothing that is pickled may hold one: paths travel, and each process makes its own.

Credentials and endpoint are those of Beam's `--s3_*` flags, then of the environment, then of whatever Amazon's own
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
"""Bytes at the end of an object that one request brings: a small object whole, of another one the footer."""
_READ_AHEAD = 1 << 24
_PAGE = 1000
_PATIENCE, _FIRST_PATIENCE = 180.0, 10.0
"""Seconds for which a store may be away, and one that has never answered: its address may be wrong."""
_LONGEST_WAIT = 10.0
_FLAGS = (
    *("s3_access_key_id", "s3_secret_access_key", "s3_session_token", "s3_endpoint_url"),
    *("s3_region_name", "s3_verify", "s3_disable_ssl"),
)
"""Beam's flags that say how a store is reached."""
_FOUND_BY_OBSTORE = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
_CREDENTIALS = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
"""Variables that name the files which Amazon's library reads, and what it reads without them."""
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
            # Only a request whose answer was lost and that was made again may have found what it wrote itself.
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
            raise ValueError(f"{path} must be renamed in its bucket, got {other}; copy it.")
        _ask(other, "CopyObject", lambda store, name: obstore.copy(store, source, name))
        self.delete(path)

    def list(self, prefix: str) -> Iterator[ListedFile]:
        import obstore.exceptions

        bucket, _, start = prefix.removeprefix(_SCHEME).partition("/")
        folder = start.rpartition("/")[0]
        found: dict[str, Mapping[str, Any]] = {}
        try:
            # Of a name at the root obstore leaves out a slash at its beginning, as if it were another object.
            for each in _pages(bucket, folder) if folder else _pages_with_odd_names(bucket, start):
                # Nor does it keep one at the end; the object that has the name without it comes first.
                found.setdefault(each["path"], each)
        except obstore.exceptions.InvalidPathError:
            found = {each["path"]: each for each in _pages_with_odd_names(bucket, start)}
        for each in found.values():
            path = f"{_SCHEME}{bucket}/{each['path']}"
            # An empty object may be the mark of a folder, whose name has lost its slash.
            if path.startswith(prefix) and (each["size"] or self.exists(path)):
                yield ListedFile(path, *_state(each))

    def make_folder(self, path: str, mode: int = 0o777) -> None:
        """There are none."""


STORE: Store = _AmazonStore()


def open_object(path: str) -> OpenedFile:
    """An object as it is now; it has been read if it is small."""
    return _Object(path).opened()


class _Object(io.RawIOBase):
    """An object as it was when it was opened: later requests ask for that one and no other.

    Args:
      path: of the object.
    """

    def __init__(self, path: str):
        meta, self._end = _ask(path, "GetObject", _end_of)
        self._path, self._place = path, 0
        self._tag, self._state = meta["e_tag"], _state(meta)

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
            found = self._part(self._place, min(self._place + len(target), first))
        target[: len(found)] = found
        self._place += len(found)
        return len(found)

    def _part(self, start: int, end: int) -> bytes:
        import obstore

        options: Any = {"range": (start, end), "if_match": self._tag}
        part = _ask(
            self._path, "GetObject", lambda store, name: bytes(obstore.get(store, name, options=options).bytes())
        )
        if len(part) != end - start:
            raise OSError(f"{self._path} cannot be read: other bytes came than were asked for")
        return part


class _Upload(io.RawIOBase):
    """An object that is written in parts, and there when it is closed; an error before that leaves nothing.

    Args:
      path: of the object.
    """

    def __init__(self, path: str):
        import obstore

        self._path, self._is_given_up = path, False
        bucket, name = _split(path)
        patience = _PATIENCE if bucket in _known.answered else _FIRST_PATIENCE
        # Parts that were sent stay with obstore, so it is the one that asks again.
        self._writer = obstore.open_writer(_store(bucket, patience), name)

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        """Writes all of it."""
        return len(content) if self._is_given_up else int(self._guarded(self._writer.write, bytes(content)))

    def close(self) -> None:
        """Makes the object."""
        if not self.closed:
            super().close()
            if not self._is_given_up:
                self._guarded(self._writer.close)

    def give_up(self, *error: Any) -> None:
        """Has the store forget what was written."""
        self._is_given_up = True
        self._writer.__exit__(*error)

    def _guarded(self, request: Callable[..., Any], *given: Any) -> Any:
        try:
            return request(*given)
        except Exception as error:
            raise _reason(self._path, error) from error


class _Written(io.BufferedWriter):
    """A file in front of an upload that is given up if the work in its `with` fails."""

    raw: _Upload

    def __exit__(self, *error: Any) -> None:
        """Closes the file."""
        if error[0] is not None:
            self.raw.give_up(*error)
        super().__exit__(*error)


def _end_of(store: Any, name: str) -> tuple[Mapping[str, Any], bytes]:
    """What a store says of an object, and bytes of its end."""
    import obstore
    from obstore.exceptions import GenericError

    try:
        found = obstore.get(store, name, options={"range": {"suffix": _END_BYTES}})
    except GenericError as error:
        # No range is one of an empty object, and some stores know none.
        if _status(error) != 416 and "non-partial" not in str(error):
            raise
        found = obstore.get(store, name)
    return found.meta, bytes(found.bytes())


def _delete(names: list[str], store: Any, _: str) -> None:
    import obstore

    obstore.delete(store, names)


def _state(meta: Mapping[str, Any]) -> StoredFile:
    """An object's state: stores round its time in one answer and not in another, so whole seconds and its tag."""
    tag = re.sub(r'[\s"]', "", meta["e_tag"] or "")
    return StoredFile(meta["size"], f"{int(meta['last_modified'].timestamp())}-{tag}")


def _pages(bucket: str, folder: str) -> Iterator[Mapping[str, Any]]:
    """Objects below a folder, in the order of their names.

    Raises:
      InvalidPathError: if one has a name that obstore does not take.
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
    """Objects whose names begin so, by Amazon's own library; those that obstore could not read are left out."""
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
                # Without content it is the mark of a folder.
                skipped += not each["Key"].endswith("/") or each["Size"] > 0
            else:
                state = {"size": each["Size"], "last_modified": each["LastModified"], "e_tag": each["ETag"]}
                yield {"path": each["Key"]} | state
        if not page.get("IsTruncated"):
            break
        place["ContinuationToken"] = page["NextContinuationToken"]
    if skipped:
        _LOGGER.warning("%d objects below %s%s/%s have names that cannot be read", skipped, _SCHEME, bucket, start)


def _is_odd(name: str) -> bool:
    """Whether obstore does not take a name, or would change it."""
    return any(part in ("", ".", "..") for part in name.split("/")) or not name.isprintable()


def _split(path: str) -> tuple[str, str]:
    bucket, _, name = path.removeprefix(_SCHEME).partition("/")
    if not bucket or _is_odd(name):
        raise ConfigError(
            f"A name on s3:// must have a bucket, no empty part, no part . or .. and no control character, got "
            f"{path!r}; choose another name."
        )
    return bucket, name


def _ask(path: str, operation: str, request: Callable[[Any, str], Answer]) -> Answer:
    """`_ask_bucket` of one object."""
    return _ask_bucket(*_split(path), operation, request)


def _ask_bucket(bucket: str, name: str, operation: str, request: Callable[[Any, str], Answer]) -> Answer:
    """The answer to a request, made again while the store does not answer.

    Args:
      bucket: its name.
      name: of an object in it, or what the names of several begin with.
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
            _LOGGER.warning("a store did not answer in full; retrying")
        # Threads that were refused together do not come back together.
        time.sleep(wait * (0.5 + time.monotonic_ns() % 1000 / 2000))
        wait, retries = min(2.0 * wait, _LONGEST_WAIT), retries + 1
    known.answered.add(bucket)
    MEASURES.asked(path, operation, retries)
    return answer


def _reason(path: str, error: Exception) -> Exception:
    """The error of a file that one of obstore's means; another one is itself."""
    from obstore import exceptions

    if isinstance(error, FileNotFoundError) or _status(error) == 404:
        return FileNotFoundError(f"{path} cannot be read: it is not there")
    if isinstance(error, exceptions.AlreadyExistsError) or _status(error) == 409:
        return FileExistsError(path)
    if isinstance(error, exceptions.PreconditionError):
        return OSError(f"{path} cannot be read: another object has taken its place")
    if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError)):
        return denied(path)
    if not isinstance(error, exceptions.GenericError):
        return error
    status = _status(error)
    return away(path) if status is None or says_nothing(status) else OSError(f"{path}: the store answers {status}")


def _status(error: Exception) -> int | None:
    """The status of HTTP in an error's text; None if there is none."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


class _Known:
    """Stores of a process by bucket and flags; those of other surroundings are forgotten."""

    def __init__(self, forked: bool = False) -> None:
        self.forked = forked
        self.lock = threading.Lock()
        self.surroundings: Any = None
        self.stores: dict[tuple[Any, ...], Any] = {}
        self.answered: set[str] = set()


_known = _Known()


def _after_fork() -> None:
    """A child has no thread of those that wait for answers, and the lock may be held by one that it has not."""
    global _known
    _known = _Known(_known.forked or bool(_known.stores))


os.register_at_fork(after_in_child=_after_fork)


def _store(bucket: str, patience: float = 0.0) -> Any:
    """The store of a bucket; made anew if flags or environment have changed, or the files that hold credentials.

    Args:
      bucket: its name.
      patience: seconds for which obstore itself makes a request again; 0 leaves that to who asks.
    """
    known, flags = _known, _flags()
    if known.forked:
        raise RuntimeError(
            "a process that was forked after its parent had reached s3:// cannot reach it; start processes by spawn."
        )
    surroundings = dict(os.environ), [_stamp(os.environ.get(name, file)) for name, file in _CREDENTIALS.items()]
    with known.lock:
        if known.surroundings != surroundings:
            known.surroundings, known.stores = surroundings, {}
        if (bucket, flags, patience) not in known.stores:
            known.stores[bucket, flags, patience] = _made(bucket, dict(zip(_FLAGS, flags, strict=True)), patience)
        return known.stores[bucket, flags, patience]


def _flags() -> tuple[Any, ...]:
    """Beam's flags, of a job or a worker; none in a process without Beam."""
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
    """What Amazon's own library finds, if it is installed; obstore itself asks the instance that it runs on."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    try:
        return Boto3CredentialProvider()
    except ValueError:
        raise denied(f"{_SCHEME}{bucket}") from None


def _library(flags: tuple[Any, ...]) -> Any:
    """Amazon's own client."""
    try:
        import boto3
    except ImportError:
        raise ConfigError(
            "some objects have names that obstore does not take, and only boto3 lists them: install it, or remove them."
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
    """What changes with a file."""
    try:
        found = os.stat(os.path.expanduser(path))
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
