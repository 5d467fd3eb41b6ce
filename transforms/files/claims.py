"""Claims: keep other jobs out of a place while one works there, by a lock on a disk or an object on a store.

A lock ends with the process that holds it. A store has no locks, so there the claim is an object that exactly one job
creates by a conditional write before anything is charged. The job removes it at its end; if it is killed, it stays.
No job takes it over, since a dead job looks like a slow one; a person who knows better removes it. A job whose
claim was removed publishes nothing.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import logging
import os
import re
import secrets
import socket
from collections.abc import Iterator
from typing import Self

from dapple_dp.schemas.errors import ConfigError, StoreAwayError
from dapple_dp.transforms.files import stores
from dapple_dp.transforms.files.file_bytes import make_folder, read_bytes
from dapple_dp.transforms.files.stores import STORE, join

_LOGGER = logging.getLogger(__name__)
_LEFT: dict[str, bytes] = {}
"""Claims of finished jobs of this process that couldn't be removed, by path; the next job takes them over."""
_WHERE = re.compile(rb"[^\n]*\n[^\n]*\n([\w :+.-]{1,200}, process \d{1,10})\n")
"""The third line of a claim; only this line is repeated in messages."""


class UnderWayError(ConfigError):
    """Raised if another attempt of the same run is still active."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim that this job has made on a store.

    Attributes:
      path: of its object.
      content: the id of the run, a random part that makes it unique, and the host and process, for a person to check.
    """

    path: str
    content: bytes

    @classmethod
    def taken(cls, path: str, run: str, setting: str, place: str) -> Self:
        """Makes the claim.

        Args:
          path: of its object.
          run: id of the run that makes it.
          setting: the setting that names the place, for messages.
          place: the claimed place, for messages.

        Raises:
          UnderWayError: if the same run has it.
          ConfigError: if another run has it, or the store can't tell which writer was first.
        """
        since = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
        where = f"{since} on {socket.gethostname()}, process {os.getpid()}"
        left = _LEFT.pop(path, None)
        if left is not None and _read(path) == left:
            return cls(path=path, content=left)
        claim = cls(path=path, content=f"{run}\n{secrets.token_hex(16)}\n{where}\n".encode())
        try:
            # A store without conditional writes writes twice. If an answer was lost, the second write finds the first.
            for _ in range(2):
                if not claim._made():
                    return claim
        except FileExistsError as error:
            claim.give_up()
            rule = f"{setting} must be used by one run at a time, got {place}"
            raise _refused(_read(path), path, run, rule) from error
        except BaseException as error:
            claim.give_up()
            if not isinstance(error, OSError) or isinstance(error, StoreAwayError):
                raise
            raise ConfigError(
                f"No file can be created in {place}, which {setting} names; choose another place."
            ) from error
        claim.give_up()
        raise ConfigError(
            f"The store of {place} ({setting}) overwrites an object that another run has created, so two runs could "
            "collide; choose another place, or a version of the store that supports If-None-Match."
        )

    def _made(self) -> bool:
        """Makes the object; returns False if this claim already exists, raises FileExistsError if it is another's."""
        try:
            STORE.put_new(self.path, self.content)
        except FileExistsError:
            if _read(self.path) != self.content:
                raise
            return False
        return True

    def check(self) -> None:
        """Raises UnderWayError if the claim was removed: another run may be at the same place."""
        if _read(self.path) != self.content:
            raise UnderWayError(
                f"The claim {self.path} was removed while the run was working. Nothing more is written; run the job "
                "again when no other run uses this place."
            )

    def is_of_another_attempt(self) -> bool:
        """Returns whether the claim was removed and another attempt of the same run has made one."""
        found = _read(self.path)
        return found not in (None, self.content) and _is_of(found, self.content)

    def give_up(self) -> None:
        """Removes the claim if it is still this one."""
        try:
            if _read(self.path) == self.content:
                STORE.delete(self.path)
        except OSError:
            _LEFT[self.path] = self.content
            _LOGGER.warning("warning: %s could not be removed; remove it by hand, since this run is over", self.path)


def _read(path: str) -> bytes | None:
    """Reads a claim; None if it can't be read."""
    try:
        return read_bytes(path) if STORE.exists(path) else None
    except StoreAwayError:
        raise
    except OSError:
        return None


def _is_of(found: bytes | None, own: bytes) -> bool:
    """Returns whether two claims are of the same run."""
    return found is not None and found.partition(b"\n")[0] == own.partition(b"\n")[0]


def _refused(found: bytes | None, path: str, run: str, rule: str) -> ConfigError:
    """Creates the error for a run that comes second."""
    kind, who = (UnderWayError, "this run") if _is_of(found, f"{run}\n".encode()) else (ConfigError, "another run")
    since = _WHERE.fullmatch(found or b"")
    at = "" if since is None else f" at {since[1].decode()}"
    return kind(f"{rule}, which {who} has claimed{at}; wait for it to end, or if it was killed, remove {path}.")


@contextlib.contextmanager
def alone_at(folder: str, run: str, setting: str, place: str) -> Iterator[None]:
    """Keeps other jobs out of a folder for the length of the context; creates the folder if it is missing.

    Args:
      folder: on any Beam filesystem.
      run: id of the run that works there.
      setting: the setting that names the place, for messages.
      place: the claimed place, for messages.

    Raises:
      ConfigError: if another job works there.
    """
    if not stores.is_local(folder):
        claim = Claim.taken(join(folder, "job.claim"), run, setting, place)
        try:
            yield
        finally:
            claim.give_up()
        return
    make_folder(folder)
    descriptor = os.open(folder.removeprefix("file://"), os.O_RDONLY)
    try:
        if not locked(descriptor):
            raise ConfigError(
                f"{setting} must be used by one job at a time, and another job is using {place}; wait for it to end, "
                "or give each job its own folder."
            )
        yield
    finally:
        os.close(descriptor)


def is_locked(folder: str) -> bool:
    """Returns whether someone may hold the lock of a folder; False if the folder is gone or is a link."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except PermissionError:  # another user's folder, whose lock can't be checked
        return True
    except OSError:
        return False
    try:
        return not locked(descriptor)
    finally:
        os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Takes the lock of an open folder; returns False if another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
