"""Protocol of a place for files, its records and paths, and how it says that it is away or refuses access.

A path is a name: brackets, stars and question marks are letters of it. `stores.STORE` is the one that everything asks.
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
            raise denied(path) from error
        if any(map(is_gone, found)):
            raise away(path) from error
        raise


def denied(path: str) -> StoreDeniedError:
    """The error of a store that refuses access."""
    return StoreDeniedError(f"The store refuses access to {path}; correct the credentials or the rights of this user.")


def away(path: str) -> StoreAwayError:
    """The error of a store that does not answer now."""
    return StoreAwayError(f"The store of {path} doesn't answer; run the same command again later.")


def says_nothing(status: int) -> bool:
    """Whether a status of HTTP is that of a store that is busy or away."""
    return status >= 500 or status in _BUSY


def is_gone(error: BaseException) -> bool:
    """Whether one error, whatever it came from, says that a store does not answer now."""
    status = _status(error)
    if status is not None:
        return says_nothing(status)
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
