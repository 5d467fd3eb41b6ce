"""Ledger accounting of `fit`: a run is charged once, even if it is killed, and never drawn twice for one charge.

Entries of a run, in order, and what must be on disk before the next one:

1. `reserve`: before any row is read. Fixes the settings, the output and the run's nonce; also notes the versions.
2. `start`: before any noise is drawn. The kept key exists. Fixes the digest of the key derived from it and the nonce,
   and the fingerprint of all input under this key. Refuses a digest that another run has. Noise is a function of the
   derived key, the plan and exact sums, so from now on a repeated attempt draws the same noise, or refuses.
3. `commit`: the released files and their manifest are staged and flushed. Fixes their digests. Then the keys are
   deleted and the staging folder becomes the output, in repeatable steps.

A committed run whose files are lost is drawn again while its keys exist: the release must be the same, and the
ledger gets a second `commit` with the new manifest.
"""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from dapple_dp.pipelines.jobs.place import Place, Summary
from dapple_dp.pipelines.kmeans.plan.fingerprint import content_fingerprint, resolve_path, settings_digest
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.pipelines.ledger.private_state import State
from dapple_dp.pipelines.ledger.spending import Reservation, finish_words
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.run.folder import KEY_FILE, MANIFEST, SECRET_FILE, RunFolder, UnderWayError
from dapple_dp.pipelines.run.options import JobOptions
from dapple_dp.pipelines.run.round_driver import check_version, clear_rounds, rounds_recorded
from dapple_dp.pipelines.run.run_keys import RunNonce, end_key
from dapple_dp.pipelines.run.versions import versions
from dapple_dp.pipelines.tables.client_staging import clear_copy
from dapple_dp.schemas.choices import Trust
from dapple_dp.schemas.errors import ConfigError, InputError, LedgerRefusedError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.masked.config import SECRET_SETTING
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.ledger_entry import RunStatus
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES, RELEASES_FILE, RunManifest
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.signals.measures import MEASURES, TAKEN_UP
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.privacy.key_files import kept_key, key_digest

_LOGGER = logging.getLogger(__name__)


class RunAccount(Place):
    """The output folder of a `fit` run with a ledger.

    Args:
      config: the job, with a ledger and a data set name.
      options: options of the command.

    Raises:
      LedgerRefusedError: if the ledger doesn't exist, or has no limit for the data set.
    """

    def __init__(self, config: FitConfig, options: JobOptions):
        super().__init__(options)
        self._ledger = Ledger(str(config.ledger))
        self._ledger.require_limit(str(config.data.name))
        self._run = options.run_id
        self.folder = RunFolder(resolve_path(options.output), options.run_id)
        self._config_digest = settings_digest(config)
        self._secrets = _secrets(config, self.folder)
        self._nonce: RunNonce | None = None
        self._started = False
        self._drew = False
        self._again = False
        self._left = dict(options.leaves)

    def complete(self) -> Summary | None:
        """Returns the summary of a complete run, moving its output into place if needed; None for other runs.

        Raises:
          LedgerRefusedError: if the id belongs to another run, or its release is lost.
        """
        status = self._ledger.status(self._run)
        if status is None or status.state == "void":
            return None
        self._check("config", status.reserved.get("config", ""), self._config_digest)
        folder = RunFolder(status.reserved["output"], self._run)
        self._again = self._can_repeat(folder, status)
        if status.committed is None or self._again:
            self._check("--output", status.reserved["output"], self.folder.output)
            self._started = status.started is not None
            return None
        self._finish_alone(folder, status)
        same = folder.output == self.folder.output
        _LOGGER.info("run %s is complete: nothing is read or charged", self._run)
        spent = {"epsilon": status.charge.epsilon, "delta": status.charge.delta}
        return {"run_id": self._run, "output": self._options.output if same else folder.output} | spent

    @contextlib.contextmanager
    def opened(self, reservation: Reservation | None) -> Iterator[None]:
        """Charges the run or resumes it, and makes its staging folder; a failed run stays reserved.

        The run is voided and its folder deleted only if no noise was drawn, or if its input was invalid and nothing was
        staged.

        Raises:
          LedgerRefusedError: before any row is read, if the ledger refuses the run.
        """
        fresh = False
        try:
            with _claimed(self.folder):
                if not self._again:
                    check_version(self.folder, LedgerRefusedError, "choose another run_id, which is charged again")
                fresh = reservation is None or self._reserve(reservation.charge)
                self.folder.take_up()
            self._check_open()
            self.folder.clear(keep_rounds=self._started and not self._again)
            yield
        except BaseException as error:
            clean = not self._drew or (isinstance(error, InputError) and not self._any_released())
            clean = clean and fresh and not self._started and not isinstance(error, LedgerRefusedError)
            clean = clean and not rounds_recorded(self.folder)
            # A refusal means that another attempt has the folder or has drawn noise, and it shares the charge.
            clean = clean and not self.folder.is_taken_over
            if clean:
                self._give_back(error)
            elif self._drew:
                _LOGGER.info("run %s stays reserved: give --run_id %s to resume for free", self._run, self._run)
            raise
        finally:
            self.folder.release()

    @contextlib.contextmanager
    def held_key(self, uri: str, setting: str = "key_uri") -> Iterator[str]:
        """Yields the place of the run's key; creates the kept key at `uri` if no noise was drawn yet.

        A created key is kept until the run is committed.
        """
        if self._started and not STORE.exists(uri):
            raise LedgerRefusedError(
                f"run_id {self._run} must be resumed with the {setting} that it started with, got none at {uri}; "
                "choose another run_id, which is charged again."
            )
        with kept_key(uri, setting):
            yield self._place(uri)

    def start(self, planned: PlannedFit, key_uri: str) -> str:
        """Records the key and the input of the run before noise is drawn; returns the fingerprint of the input.

        Args:
          planned: the job.
          key_uri: place of the run's key.
        """
        places = {setting: self._place(uri) for setting, (uri, _) in self._secrets.items()}
        keys = {setting: key_digest(place, setting) for setting, place in places.items()}
        where = (key_uri, self._options.beam, self.folder.staging)
        fingerprint = content_fingerprint(planned, self._config_digest, *where)
        self._ledger.start(self._run, {"key": keys, "input": fingerprint})
        self._drew = True
        return fingerprint

    def leaves(self, digests: Mapping[str, str]) -> None:
        """Stores SHA-256 digests of the private state for the next window, for the commit."""
        self._left.update(digests)

    def publish(self, manifest: dict[str, Any]) -> None:
        """Commits the staged files and makes them the output."""
        content = {State.MANIFEST: self.folder.seal(manifest), "releases": self.folder.digest(RELEASES_FILE)}
        content |= self._left
        status = self._ledger.status(self._run)
        if status is not None and status.committed is not None and status.release != content["releases"]:
            self.folder.clear()
            raise LedgerRefusedError(
                f"run {self._run} released something else the first time, as on another type of processor or with "
                "other versions; its budget is spent, so use the first machine with the versions that the ledger "
                "holds, or choose another run_id, which is charged again."
            )
        self._ledger.commit(self._run, content)
        status = self._ledger.status(self._run)
        if status is not None:
            self._finish(self.folder, status)

    def _reserve(self, charge: Charge) -> bool:
        """Charges the run; returns False if an unfinished attempt has done so."""
        status = self._ledger.status(self._run)
        if status is not None and (status.state == "reserved" or self._again):
            if not charge.equals(status.reserved["charge"]):
                raise LedgerRefusedError(f"run_id {self._run} was reserved with another plan; {finish_words(status)}.")
            self._ledger.take_up(self._run)
            MEASURES.add(TAKEN_UP)
            _LOGGER.info("run %s is %s: resuming without a further charge", self._run, status.state)
            return False
        about: dict[str, Any] = {"config": self._config_digest, "versions": versions(), "output": self.folder.output}
        about["made"] = [uri for uri, made in self._secrets.values() if made]
        about["nonce"] = RunNonce.new(self._run).raw.hex()
        self._ledger.reserve(self._run, charge, about)
        return True

    def _check_open(self) -> None:
        """Refuses a run that another attempt has ended meanwhile, before any staged file is touched."""
        status = self._ledger.status(self._run)
        if status is None or status.state != ("committed" if self._again else "reserved"):
            raise LedgerRefusedError(f"run_id {self._run} has ended and is no longer reserved; run the job again.")
        self._started = status.started is not None
        self._nonce = RunNonce(run=self._run, raw=bytes.fromhex(status.reserved["nonce"]))

    def _place(self, uri: str) -> str:
        """The place of the run's key that is derived from the kept key at `uri`."""
        if self._nonce is None:
            raise RuntimeError("keys of a run must be held while it is opened; ask inside of `opened`.")
        return self._nonce.place(uri)

    def _check(self, name: str, recorded: str, found: str) -> None:
        """Refuses to resume a run whose settings differ from the recorded ones."""
        if recorded != found:
            raise LedgerRefusedError(
                f"run_id {self._run} was reserved with another {name}; choose another run_id, which is charged again."
            )

    def _can_repeat(self, folder: RunFolder, status: RunStatus) -> bool:
        """Returns whether a committed run has lost its release but still has the keys to draw it again."""
        if status.charge.is_drawn_once or status.committed is None or status.release is None:
            return False
        # In this order, since another attempt may move the staged files to the output meanwhile.
        staged = _is_staged(folder, status.committed[State.MANIFEST])
        if staged or STORE.exists(join(folder.output, MANIFEST)):
            return False
        return all(STORE.exists(uri) for uri, _ in self._secrets.values())

    def _any_released(self) -> bool:
        """Returns whether a released file has been staged."""
        return any(STORE.exists(self.folder.path(name)) for name in RELEASED_FILES)

    def _give_back(self, error: BaseException) -> None:
        """Voids a run that released nothing, deleting its keys first."""
        for setting, (uri, made) in self._secrets.items():
            if made:
                end_key(uri, None, setting)
        self.folder.discard()
        self._ledger.void(self._run, type(error).__name__)

    def _finish_alone(self, folder: RunFolder, status: RunStatus) -> None:
        """Calls `_finish` for a run that another process may be finishing, too."""
        digest = (status.committed or {})[State.MANIFEST]
        if not _is_staged(folder, digest):
            self._finish(folder, status)
            return
        try:
            with _claimed(folder):
                folder.take_up()
                self._finish(folder, status)
        except ConfigError:
            if not _is(_read(join(folder.output, MANIFEST)), digest):
                raise
        finally:
            folder.release()

    def _finish(self, folder: RunFolder, status: RunStatus) -> None:
        """Deletes the keys of a committed run and moves its staging folder to the output, unless that is done."""
        digest = (status.committed or {})[State.MANIFEST]
        clear_copy(folder.staging)  # An earlier deletion may be lost after a power cut.
        staged = _read(folder.path(MANIFEST))
        if staged is not None and _is(staged, digest):
            for uri in status.reserved["made"]:
                end_key(uri, folder.staging)
            clear_rounds(folder.staging)
            folder.check()
            folder.move([*json_schema.parse_as(staged, RunManifest, _refusal(folder.path(MANIFEST))).files, MANIFEST])
        if not _is(_read(join(folder.output, MANIFEST)), digest):
            raise LedgerRefusedError(
                f"the release of run {self._run} is not at {folder.output}; its budget is spent, so choose another "
                "run_id, which is charged again."
            )


@contextlib.contextmanager
def _claimed(folder: RunFolder) -> Iterator[None]:
    """Claims an output for one attempt at a time; raises LedgerRefusedError for others."""
    try:
        with folder.claimed():
            yield
    except UnderWayError as error:
        raise LedgerRefusedError(str(error)) from error


def _secrets(config: FitConfig, folder: RunFolder) -> dict[str, tuple[str, bool]]:
    """Places of the run's keys by setting, and whether each is created for this run."""
    given = {"key_uri": (config.key_uri, KEY_FILE)}
    if config.trust is Trust.MASKED:
        given[SECRET_SETTING] = (config.masked.secret_uri, SECRET_FILE)
    return {
        setting: (folder.path(name), True) if uri is None else (uri, not STORE.exists(uri))
        for setting, (uri, name) in given.items()
    }


def _is(content: bytes | None, digest: str) -> bool:
    """Returns whether the file exists and has this SHA-256."""
    return content is not None and hashlib.sha256(content).hexdigest() == digest


def _is_staged(folder: RunFolder, digest: str) -> bool:
    """Returns whether all files of a manifest are staged or in the output, unchanged since the commit."""
    staged = _read(folder.path(MANIFEST))
    if staged is None or not _is(staged, digest):
        return False
    files = json_schema.parse_as(staged, RunManifest, _refusal(folder.path(MANIFEST))).files
    places = (folder.staging, folder.output)
    return all(any(_is(_read(join(at, name)), file) for at in places) for name, file in files.items())


def _read(path: str) -> bytes | None:
    """Reads a file; returns None if it doesn't exist or can't be read."""
    try:
        return untrusted.read_bytes(path, _refusal(path)) if STORE.exists(path) else None
    except (OSError, LedgerRefusedError):
        return None


def _refusal(path: str) -> Refusal:
    """The refusal of a manifest that differs from the committed one."""
    return Refusal(
        kind=LedgerRefusedError,
        rule=f"{path} must be the manifest of a committed run",
        remedy="choose another run_id, which is charged again",
    )
