"""Claims: nobody else has a place while a job works there; a lock on a disk, an object of a claim's own on a store.

A lock goes with the process that holds it. A store has no locks. There the claim is an object that exactly one job
makes by a conditional write, before anything is charged. It goes when the job is over, and stays if the job is killed.
No job takes it over, since nothing distinguishes a dead job from a slow one; a person who knows removes it. A job whose
claim was removed publishes nothing any more.
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
"""Claims of jobs of this process that are over, and that could not be removed, by path: the next job has them."""
_WHERE = re.compile(rb"[^\n]*\n[^\n]*\n([\w :+.-]{1,200}, process \d{1,10})\n")
"""What a claim says after its first two lines; nothing else is repeated to anybody."""


class UnderWayError(ConfigError):
    """Another attempt of the same run is not over."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim that this job has made on a store.

    Attributes:
      path: of its object.
      content: of it: the id of the run, what no other claim has, and where a person can look whether it is alive.
    """

    path: str
    content: bytes

    @classmethod
    def taken(cls, path: str, run: str, setting: str, place: str) -> Self:
        """Makes the claim.

        Args:
          path: of its object.
          run: who makes it.
          setting: that names what is claimed.
          place: what is claimed.

        Raises:
          UnderWayError: if the same run has it.
          ConfigError: if another run has it, or the store cannot tell who was first.
        """
        since = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
        where = f"{since} on {socket.gethostname()}, process {os.getpid()}"
        left = _LEFT.pop(path, None)
        if left is not None and _read(path) == left:
            return cls(path=path, content=left)
        claim = cls(path=path, content=f"{run}\n{secrets.token_hex(16)}\n{where}\n".encode())
        try:
            # A store that knows no conditions writes twice. An answer that was lost is met by what it had made.
            for _ in range(2):
                if not claim._made():
                    return claim
        except FileExistsError as error:
            claim.give_up()
            raise _refused(_read(path), path, run, f"{setting} must be of one run at a time, got {place}") from error
        except BaseException as error:
            claim.give_up()
            if not isinstance(error, OSError) or isinstance(error, StoreAwayError):
                raise
            raise ConfigError(
                f"{setting} must be where files can be made, got {place}; choose another place."
            ) from error
        claim.give_up()
        raise ConfigError(
            f"{setting} must be on a store that makes an object only where there is none, got {place} on one that "
            "wrote over it; choose another place, or a version of the store that heeds If-None-Match."
        )

    def _made(self) -> bool:
        """Makes the object; False if this claim had made it, FileExistsError if it is another's."""
        try:
            STORE.put_new(self.path, self.content)
        except FileExistsError:
            if _read(self.path) != self.content:
                raise
            return False
        return True

    def check(self) -> None:
        """Raises UnderWayError if the claim was taken away: another run may be at the same place."""
        if _read(self.path) != self.content:
            raise UnderWayError(
                f"the claim {self.path} must stay while its run works, got one that was taken away; nothing more is "
                "written, so run the job again when nobody else is at work there."
            )

    def is_of_another_attempt(self) -> bool:
        """Whether the claim was taken away, and another attempt of the same run has made one."""
        found = _read(self.path)
        return found not in (None, self.content) and _is_of(found, self.content)

    def give_up(self) -> None:
        """Takes the claim away, if it is still this one."""
        try:
            if _read(self.path) == self.content:
                STORE.delete(self.path)
        except OSError:
            _LEFT[self.path] = self.content
            _LOGGER.warning("warning: %s could not be removed; remove it, since this run is over", self.path)


def _read(path: str) -> bytes | None:
    """Content of a claim; None if it cannot be read."""
    try:
        return read_bytes(path) if STORE.exists(path) else None
    except StoreAwayError:
        raise
    except OSError:
        return None


def _is_of(found: bytes | None, own: bytes) -> bool:
    """Whether a claim is of the same run as another one."""
    return found is not None and found.partition(b"\n")[0] == own.partition(b"\n")[0]


def _refused(found: bytes | None, path: str, run: str, rule: str) -> ConfigError:
    """The error for the one that comes second."""
    kind, who = (UnderWayError, "this run") if _is_of(found, f"{run}\n".encode()) else (ConfigError, "another run")
    since = _WHERE.fullmatch(found or b"")
    at = "" if since is None else f" at {since[1].decode()}"
    return kind(f"{rule}, which {who} has claimed{at}; wait for it to end, or if it was killed, remove {path}.")


@contextlib.contextmanager
def alone_at(folder: str, run: str, setting: str, place: str) -> Iterator[None]:
    """Nobody else is at work in a folder, which is made if it is missing.

    Args:
      folder: on any Beam filesystem.
      run: who is.
      setting: that names what is claimed.
      place: what is claimed.

    Raises:
      ConfigError: if another job is.
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
                f"{setting} must be of one job at a time, got {place}, which another one uses; wait for it to end, or "
                "give each job a folder of its own."
            )
        yield
    finally:
        os.close(descriptor)


def is_locked(folder: str) -> bool:
    """Whether someone may be at work in a folder, and hold its lock; False of a folder that is gone, or of a link."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except PermissionError:  # another user's, about which nothing is known here
        return True
    except OSError:
        return False
    try:
        return not locked(descriptor)
    finally:
        os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Takes the lock of an open folder; False if another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
