"""Output of a run: first a private staging folder, which becomes the output folder; the manifest is written last."""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from typing import Any

from dapple_dp.pipelines.run.versions import tell_others, versions
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.json_schema import NumberedFile
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES
from dapple_dp.transforms.core import known_objects
from dapple_dp.transforms.files import new_file, untrusted
from dapple_dp.transforms.files.claims import Claim, UnderWayError, is_locked, locked
from dapple_dp.transforms.files.file_bytes import put_whole, read_bytes, remove_files, write_bytes
from dapple_dp.transforms.files.stores import STORE, is_local, join
from dapple_dp.transforms.tables.staging_names import copy_folder, parsed, staging_folder

MANIFEST = "run.json"
PRIVACY_FILE = "privacy.json"
REPORT_FILE = "report.html"
KEY_FILE = "run.key"
SECRET_FILE = "mask.secret"
NONCE_FILE = "run.nonce"
VERSIONS_FILE = "versions.json"
_STAY = (KEY_FILE, SECRET_FILE, VERSIONS_FILE)
_CLAIM_SECONDS = 300.0
"""Time limit for other runs to charge and make their folders, one after the other."""


class RunFolder:
    """Staging folder `OUTPUT.partial-RUN_ID`, which becomes `OUTPUT` when the run is complete.

    Args:
      output: folder on any Beam filesystem; must be empty or not exist.
      run_id: id of the run, which makes the staging folder's name unique.
    """

    def __init__(self, output: str, run_id: str):
        self._local = is_local(output)
        self.output = output.removeprefix("file://") if self._local else output
        self.run_id = run_id
        # Workers may have another working directory.
        self.staging = staging_folder(absolute(output), run_id)
        self._published: dict[str, str] = {}
        self._warnings: dict[str, int | None] = {}
        self._made: list[str] = []
        self._lock = -1
        self._claim: Claim | None = None
        self._began = versions()

    def check(self) -> None:
        """Refuses an output folder that isn't empty, is a link, or can't be created."""
        check_no_link(self.output)
        if self._occupied():
            released = STORE.exists(join(self.output, PRIVACY_FILE))
            again = " It holds a private release, and a further one spends budget again." if released else ""
            raise ConfigError(f"--output must be a new or empty folder, got {self.output}; choose another one.{again}")

    def open(self) -> None:
        """Creates the staging folder, readable only by its owner if the filesystem supports that."""
        try:
            if self._local:
                self._make_parents()
                os.mkdir(self.staging, 0o700)
                new_file.flush(os.path.dirname(self.staging))
            else:
                STORE.make_folder(self.staging)
        except FileExistsError as error:
            raise ConfigError(
                f"--run_id must be new, got that of an attempt that left {self.staging}; choose another one, or remove "
                "the folder if that attempt is over."
            ) from error
        except OSError as error:
            raise ConfigError(f"--output {self.output} could not be created; choose another folder.") from error

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Claims the output, to charge the run and make its staging folder; other runs can't do so meanwhile.

        Runs of one output are recognized by the lock that each holds on its staging folder. Object stores have no
        locks, so a run there holds a claim until `release`.

        Raises:
          ConfigError: if another run writes to the output, or has written to it meanwhile.
          UnderWayError: on a store, if the other one is an attempt of this run.
        """
        if not self._local:
            place = self.output.rstrip("/")
            path = f"{place}.claim" if "/" in place.partition("://")[2] else f"{place}/.claim"
            self._claim = Claim.taken(path, self.run_id, "--output", self.output)
            self.check()
            yield
            return
        with _alone_in(os.path.dirname(absolute(self.output))):
            self.check()
            for other in _stagings_of(absolute(self.output)):
                if other != self.staging and is_locked(other):
                    raise ConfigError(
                        f"--output must be used by one run at a time, and the run of {other} is writing to "
                        f"{self.output}; wait for it to end or choose another one."
                    )
            yield

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Creates the staging folder; removes it after an error, so that nothing has been written."""
        self.open()
        with self._ending():
            if self._local:
                self._lock = os.open(self.staging, os.O_RDONLY)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    @contextlib.contextmanager
    def reopened(self) -> Iterator[None]:
        """Like `opened`, but replaces a killed attempt of the same run and deletes its files.

        Raises:
          UnderWayError: if the other attempt is still running.
        """
        if not self._local:
            self.discard()
        self.take_up()
        with self._ending():
            self.clear()
            yield

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """Discards the staged files after an error, and always releases the lock."""
        try:
            yield
        except BaseException:
            self.discard()
            raise
        finally:
            self.release()

    def check_staging(self) -> None:
        """Refuses to resume in a folder that is a link, since keys and rows would be written to its target."""
        if self._local and os.path.islink(self.staging):
            raise ConfigError(f"{self.staging} must be a folder, got a link; remove it or choose another --run_id.")

    def take_up(self) -> None:
        """Creates the staging folder, or takes over that of a killed attempt; `clear` removes its files.

        Raises:
          UnderWayError: if the other attempt is still running; this one holds a lock until `release`.
        """
        if not self._local:
            STORE.make_folder(self.staging)
            self._note_versions()
            return
        self.check_staging()
        if not os.path.isdir(self.staging):
            self.open()
        self._lock = os.open(self.staging, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise UnderWayError(f"the run of {self.staging} is still under way; wait for it to end.") from error
        self._note_versions()

    def _note_versions(self) -> None:
        """Stores the versions that a run starts with, and warns if it is resumed with others."""
        path = self.path(VERSIONS_FILE)
        if not STORE.exists(path):
            content = json.dumps(with_number({"versions": self._began})).encode()
            put_whole(path, content)
        rule = f"{path} must be the file that the interrupted run wrote"
        refusal = Refusal(kind=ConfigError, rule=rule, remedy="start over with another --run_id")
        self._began = untrusted.read_json(path, _Began, refusal).versions
        tell_others(self.run_id, self._began)

    def clear(self, *, keep_rounds: bool = False) -> None:
        """Removes the files of a killed attempt: all but its keys on a local disk, its copies of rows elsewhere.

        Args:
          keep_rounds: whether to keep its recorded rounds, because this attempt resumes after them.
        """
        if not self._local:
            remove_files(copy_folder(self.staging))
            return
        shutil.rmtree(copy_folder(self.staging), ignore_errors=True)
        for entry in list(os.scandir(self.staging)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name not in _STAY and not (keep_rounds and is_of_rounds(entry.name)):
                os.unlink(entry.path)

    def release(self) -> None:
        """Releases the lock of `take_up`, and the claim."""
        if self._claim is not None:
            self._claim.give_up()
            self._claim = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _make_parents(self) -> None:
        """Creates the missing folders above the output and records them, outermost first."""
        parent = os.path.dirname(os.path.abspath(self.output))
        while not os.path.exists(parent):
            self._made.insert(0, parent)
            parent = os.path.dirname(parent)
        for folder in self._made:
            os.mkdir(folder)
            new_file.flush(os.path.dirname(folder))

    def _occupied(self) -> bool:
        """Returns whether the output folder holds anything."""
        if self._local:
            return os.path.exists(self.output) and (not os.path.isdir(self.output) or bool(os.listdir(self.output)))
        return STORE.exists(join(self.output, MANIFEST))

    def path(self, name: str) -> str:
        """Path of a file in the staging folder."""
        return join(self.staging, name)

    def write(self, name: str, content: bytes) -> None:
        """Stages a file; use `write_privacy` for `privacy.json`."""
        if name == PRIVACY_FILE:
            raise ValueError(f"{PRIVACY_FILE} must be staged by write_privacy, got write; call that.")
        self._stage(name, content)

    def _stage(self, name: str, content: bytes) -> None:
        write_bytes(self.path(name), content)
        self.adopt(name, content)

    def write_privacy(self, statement: dict[str, Any]) -> None:
        """Stages `privacy.json`: the guarantee, and the registered types that it depends on."""
        extended = known_objects.marks()
        content = with_number(statement | ({"extended": extended} if extended else {}))
        self._stage(PRIVACY_FILE, json.dumps(content, indent=2, sort_keys=True).encode())

    def write_report(self, html: str, warnings: int | None) -> None:
        """Stages `report.html`; the manifest records its number of warnings."""
        self.write(REPORT_FILE, html.encode())
        self._warnings = {"warnings": warnings}

    def adopt(self, name: str, content: bytes | None = None) -> None:
        """Lists a staged file in the manifest."""
        content = read_bytes(self.path(name)) if content is None else content
        self.record(name, hashlib.sha256(content).hexdigest())

    def digest(self, name: str) -> str:
        """SHA-256 of a listed file."""
        return self._published[name]

    def record(self, name: str, digest: str) -> None:
        """Lists a staged file with a known SHA-256 in the manifest."""
        self._published[name] = digest

    def publish(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest with the digests of all staged files, and makes the folder the output."""
        self.seal(manifest)
        self.move([*self._published, MANIFEST])

    def seal(self, manifest: dict[str, Any]) -> str:
        """Stages the manifest with the digests of all staged files; returns its own SHA-256."""
        self._check_claim()
        other = {} if self._began == versions() else {"began_with": self._began}
        whole = with_number(manifest | self._warnings | other | {"files": self._published})
        whole["manifest_digest"] = manifest_digest(whole)
        content = json.dumps(whole, indent=2, sort_keys=True).encode()
        put_whole(self.path(MANIFEST), content, 0o666)  # A resumed run takes it for whole.
        return hashlib.sha256(content).hexdigest()

    def _check_claim(self) -> None:
        """Refuses to continue without the claim, since another run may be working there."""
        if self._claim is not None:
            self._claim.check()

    def keep_only(self, names: list[str]) -> None:
        """Removes all other staged files."""
        kept = {self.path(name) for name in names}
        STORE.delete(*(file.path for file in STORE.list(f"{self.staging}/") if file.path not in kept))

    def move(self, names: list[str]) -> None:
        """Makes the folder the output; moves the named files one by one, in this order, if it isn't local."""
        self._check_claim()
        if self._local:
            check_no_link(self.output)
            if os.path.isdir(self.output):
                os.rmdir(self.output)
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.path(VERSIONS_FILE))
            # Make the deletion of keys durable, so that they can't reappear in the output.
            new_file.flush(self.staging)
            os.rename(self.staging, self.output)
            new_file.flush(os.path.dirname(self.staging))
            return
        STORE.make_folder(self.output)
        for folder in sorted({os.path.dirname(name) for name in names} - {""}):
            STORE.make_folder(join(self.output, folder))
        for name in filter(lambda name: STORE.exists(self.path(name)), names):
            STORE.rename(self.path(name), join(self.output, name))
        with contextlib.suppress(OSError):  # the output is whole; a key that could not be deleted may stay
            self.discard()

    def discard(self) -> None:
        """Removes the staging folder and the parents created for it; ignores missing or used folders."""
        if self._local:
            shutil.rmtree(self.staging, ignore_errors=True)
            with contextlib.suppress(OSError):
                for folder in reversed(self._made):
                    os.rmdir(folder)
        elif not self.is_taken_over:
            remove_files(f"{self.staging}/")

    @property
    def is_taken_over(self) -> bool:
        """True if the claim was lost, and another attempt of this run works in the staging folder."""
        return self._claim is not None and self._claim.is_of_another_attempt()


class _Began(NumberedFile):
    versions: dict[str, str]


def new_run_id() -> str:
    """Makes a unique run id from the UTC time and four random bytes."""
    return time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + secrets.token_hex(4)


def is_of_rounds(name: str) -> bool:
    """Returns whether a staged file with this name holds recorded rounds for a further attempt."""
    from dapple_dp.transforms.files.checkpoint import MANIFEST_FILE, is_arrays
    from dapple_dp.transforms.rounds.bound_broadcast import SUFFIX
    from dapple_dp.transforms.rounds.staged_state import STATE_FILE

    own = name in (MANIFEST_FILE, STATE_FILE, NONCE_FILE) or name.endswith(SUFFIX) or is_arrays(name)
    return own and "/" not in name


def manifest_digest(content: dict[str, Any]) -> str:
    """SHA-256 (64 hex digits) of a manifest without its own digest, which reveals edits.

    Anyone can recompute it after an edit; only a ledger or a signature reveals that.
    """
    others = {name: value for name, value in content.items() if name != "manifest_digest"}
    return hashlib.sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def absolute(path: str) -> str:
    """Returns the absolute path, which workers with another working directory can find; store paths are absolute."""
    if is_local(path):
        return os.path.abspath(path.removeprefix("file://"))
    return path


@contextlib.contextmanager
def _alone_in(folder: str) -> Iterator[None]:
    """Locks a folder, or its nearest existing parent; does nothing if it can't be locked."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        yield
        return
    try:
        end = time.monotonic() + _CLAIM_SECONDS
        while not locked(descriptor):
            if time.monotonic() > end:
                raise ConfigError(f"another run has locked {folder}; wait for it to start.")
            time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _stagings_of(output: str) -> list[str]:
    """Local staging folders of an output's runs."""
    folder, name = os.path.split(output)
    try:
        names = [(other, parsed(other)) for other in os.listdir(folder)]
    except OSError:
        return []
    return [os.path.join(folder, other) for other, what in names if what is not None and what.output == name]


def check_no_link(output: str) -> None:
    """Refuses a local output folder that is a link, or below something that isn't a folder.

    The output is put in place by a rename, which would replace a link.

    Raises:
      ConfigError: before anything is read or charged.
    """
    if not is_local(output):
        return
    path = os.path.abspath(output.removeprefix("file://"))
    if os.path.islink(path):
        raise ConfigError(
            f"--output must be a folder, got {output}, which is a link; give the folder that it stands for."
        )
    while not os.path.lexists(path := os.path.dirname(path)):
        pass
    if not os.path.isdir(path):
        raise ConfigError(f"--output {output} could not be created: {path} is not a folder.")


def check_apart(output: str, allowed_by: str = "") -> None:
    """Refuses an output inside the folder of a fit, which may be shared as a whole.

    Args:
      output: folder on any Beam filesystem; need not exist.
      allowed_by: settings section that can allow it; "" if none can.

    Raises:
      ConfigError: if the folder or one above it holds a fit's centers.
    """
    remedy = f"choose another one or set {allowed_by}.beside_released to true" if allowed_by else "choose another one"
    for folder in _upward(output):
        for name in RELEASED_FILES:
            if STORE.exists(join(folder, name)):
                raise ConfigError(
                    f"--output must be a folder outside of released outputs, got {output} with {name} in {folder}; "
                    f"{remedy}."
                )


def _upward(folder: str) -> Iterator[str]:
    if is_local(folder):
        folder = os.path.abspath(folder.removeprefix("file://"))
    while folder.strip("/") and not folder.endswith(":/"):
        yield folder
        folder = folder.rpartition("/")[0]
