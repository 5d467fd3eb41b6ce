"""The protocol of a store of files, its records and paths, and its errors for a store that is away or refuses access.

A path is a name: brackets, stars and question marks have no special meaning. All code asks `stores.STORE`.
"""

import contextlib
import errno
import os
import re
import socket
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol

from dapple_dp.schemas.errors import StoreAwayError, StoreDeniedError, chain

_SCHEME = re.compile(r"([a-zA-Z][-a-zA-Z0-9+.]*)://")

_GONE = frozenset(
    getattr(errno, name)
    for name in (
        *("ESTALE", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET", "ENOTCONN", "ESHUTDOWN"),
        *("ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EREMOTEIO", "EPIPE", "ENONET"),
    )
    if hasattr(errno, name)
)
"""Errors of the operating system for a disk or server on a network that can't be reached."""
_AWAY = {
    "botocore.exceptions": {"HTTPClientError", "IncompleteReadError", "ConnectionError"},
    "requests.exceptions": {"ConnectionError", "Timeout", "ChunkedEncodingError"},
    "urllib3.exceptions": {"HTTPError"},
    "azure.core.exceptions": {"ServiceRequestError", "ServiceResponseError"},
    "google.auth.exceptions": {"TransportError"},
    "google.api_core.exceptions": {"RetryError", "ServerError"},
}
"""Classes of libraries' errors, by module, for a request that was not answered."""
_DENIED = {
    "botocore.exceptions": {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"},
    "google.auth.exceptions": {"DefaultCredentialsError"},
}
_BUSY, _NO_RIGHTS = (408, 425, 429), (401, 403)


def is_away(error: BaseException) -> bool:
    """Returns whether an error comes from a store that is away; a worker's error is recognized by its text."""
    return any(isinstance(each, StoreAwayError) or _RAISED in str(each) for each in chain(error))


_RAISED = f"{StoreAwayError.__module__}.{StoreAwayError.__name__}: "


@contextlib.contextmanager
def answered(path: str) -> Iterator[None]:
    """Translates the errors of a store that is away or refuses access.

    Args:
      path: of the requested file.

    Raises:
      StoreAwayError: if it doesn't answer now.
      StoreDeniedError: if it refuses access.
    """
    try:
        yield
    except (StoreAwayError, StoreDeniedError):
        raise
    except Exception as error:
        found = list(chain(error))
        if any(_status(each) in _NO_RIGHTS or _is_of(each, _DENIED) for each in found):
            raise denied(path) from error
        if any(map(is_gone, found)):
            raise away(path) from error
        raise


def denied(path: str) -> StoreDeniedError:
    """Creates the error for a store that refuses access."""
    return StoreDeniedError(f"The store denies access to {path}; check the credentials or this user's permissions.")


def away(path: str) -> StoreAwayError:
    """Creates the error for a store that doesn't answer now."""
    return StoreAwayError(f"The store of {path} doesn't answer; run the same command again later.")


def says_nothing(status: int) -> bool:
    """Returns whether an HTTP status means that a store is busy or away."""
    return status >= 500 or status in _BUSY


def is_gone(error: BaseException) -> bool:
    """Returns whether this error alone, without its causes, means that a store doesn't answer now."""
    status = _status(error)
    if status is not None:
        return says_nothing(status)
    if isinstance(error, (ConnectionError, TimeoutError, socket.gaierror)) or _is_of(error, _AWAY):
        return True
    return isinstance(error, OSError) and error.errno in _GONE


def _status(error: Any) -> int | None:
    """Returns the HTTP status that a library attaches to an error; None without one."""
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
    """Size and time of a file on a store.

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
      state: of the file; None if the store didn't send it with the bytes.
      fixed: True if all bytes are those at the time of opening, even if the file is replaced meanwhile.
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
    """Returns the scheme of a URL, by Beam's rule; None for a path."""
    scheme = _SCHEME.match(path.strip())
    return None if scheme is None else scheme[1]


def is_local(path: str) -> bool:
    """Returns whether a path is on a disk of this machine, or mounted like one."""
    return scheme_of(path) in (None, "file")


def local_path(path: str) -> str:
    """Returns a local path without its scheme."""
    return path.removeprefix("file://")


def join(path: str, *names: str) -> str:
    """Joins names to a path."""
    if is_local(path):
        return os.path.join(path, *names)
    for name in names:
        path = f"{path.rstrip('/')}/{name.lstrip('/')}"
    return path


class Store(Protocol):
    """Files by exact names. Errors are OSErrors, or ConfigError for a name that the store can't have."""

    def exists(self, path: str) -> bool:
        """Returns whether a file exists; a folder counts on stores with folders."""

    def stat(self, path: str) -> StoredFile:
        """Returns the size and time of a file."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file to read and seek in."""

    def get(self, path: str) -> bytes:
        """Returns the content of a file."""

    def create(self, path: str) -> BinaryIO:
        """Opens a file to write, replacing an existing one; an object store shows it when it is closed."""

    def put(self, path: str, content: bytes) -> None:
        """Writes a whole file and creates missing folders; on a local disk the file and its name are then durable."""

    def put_new(self, path: str, content: bytes) -> None:
        """Creates a file; on a local disk for its owner only, and durable on return.

        Raises:
          FileExistsError: if something is there, a dangling link too.
          ConfigError: if the place can't tell which writer was first.
        """

    def delete(self, *paths: str) -> None:
        """Deletes files of one store; missing ones are no error."""

    def rename(self, path: str, other: str) -> None:
        """Renames a file; on an object store by a copy."""

    def list(self, prefix: str) -> Iterator[ListedFile]:
        """Yields files whose paths begin with `prefix`, at any depth, in any order; on HDFS those of one folder."""

    def make_folder(self, path: str, mode: int = 0o777) -> None:
        """Creates a folder on stores with folders; an existing one is no error."""
