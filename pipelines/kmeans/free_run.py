"""A `fit` without a ledger; it can be resumed with the same --run_id."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from dapple_dp.pipelines.jobs.place import Place, Summary
from dapple_dp.pipelines.kmeans.plan.fingerprint import keyed_fingerprint
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.pipelines.ledger.spending import Reservation
from dapple_dp.pipelines.run.folder import KEY_FILE, SECRET_FILE
from dapple_dp.pipelines.run.options import JobOptions
from dapple_dp.pipelines.run.round_driver import check_version, clear_rounds, has_begun, rounds_recorded
from dapple_dp.pipelines.run.run_keys import HoldKey, end_key, resumed_nonce, run_keys
from dapple_dp.pipelines.tables.client_staging import clear_copy
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.transforms.files.signals.measures import MEASURES, TAKEN_UP
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.privacy.key_files import create_key, delete_key

_LOGGER = logging.getLogger(__name__)


@runtime_checkable
class Account(Protocol):
    """Keeps the keys of a run and fingerprints its input."""

    def held_key(self, uri: str, setting: str = "key_uri") -> contextlib.AbstractContextManager[str]:
        """Yields the place of the run's key, which is derived from the kept key at `uri`."""

    def start(self, planned: PlannedFit, key_uri: str) -> str:
        """Called before noise is drawn; returns the fingerprint of the input."""

    def leaves(self, digests: Mapping[str, str]) -> None:
        """Called with the SHA-256 digests of private state that the run leaves to the next window."""


class _OneGo(NamedTuple):
    """`Account` of a run that ends with this process."""

    held_key: HoldKey

    def start(self, planned: PlannedFit, key_uri: str) -> str:
        return keyed_fingerprint(planned, key_uri)

    def leaves(self, digests: Mapping[str, str]) -> None:
        """Does nothing, since no run follows."""


@contextlib.contextmanager
def in_one_go(folder: str) -> Iterator[Account]:
    """Yields the account of a run that is never resumed; deletes its new keys and round records at the end."""
    with run_keys(folder) as hold:
        yield _OneGo(hold)
    clear_rounds(folder)


class FreeRun(Place):
    """The output folder of a `fit` run without a ledger.

    A run that fails before its first recorded rounds leaves nothing. Afterwards its keys and staging folder are kept
    after any error, since noise has been drawn and the resumed run must draw the same.

    Args:
      config: the job.
      options: options of the command.
    """

    def __init__(self, config: FitConfig, options: JobOptions):
        super().__init__(options)
        self._config = config

    def complete(self) -> Summary | None:
        """Returns the summary of this run if its output is in place, as after a stop at the very end."""
        result = self.in_place(config_digest(self._config))
        if result is not None:
            clear_copy(self.folder.staging)  # An earlier deletion may be lost after a power cut.
        return result

    @contextlib.contextmanager
    def opened(self, reservation: Reservation | None) -> Iterator[None]:
        """Makes the staging folder, or takes over that of a stopped attempt.

        Raises:
          ConfigError: if the other attempt is still running.
        """
        self._made: list[tuple[str, str]] = []
        with contextlib.ExitStack() as stack:
            stack.callback(self.folder.release)
            with self.folder.claimed():
                self.folder.take_up()
            check_version(self.folder, ConfigError, "start over with another --run_id")
            with self._kept_if_begun():
                yield

    @contextlib.contextmanager
    def _kept_if_begun(self) -> Iterator[None]:
        """Starts or resumes the run; after a failure, keeps the folder if noise may have been drawn."""
        try:
            if has_begun(self.folder):
                MEASURES.add(TAKEN_UP)
            self.folder.clear(keep_rounds=has_begun(self.folder))
            yield
        except BaseException:
            if rounds_recorded(self.folder) or self.folder.is_taken_over:
                run = self.folder.run_id
                _LOGGER.info("what is done stays; the same command with --run_id %s resumes", run)
            else:
                self._delete_keys()
                self.folder.discard()
            raise

    @contextlib.contextmanager
    def held_key(self, uri: str, setting: str = "key_uri") -> Iterator[str]:
        """Yields the place of the run's key; creates the kept key at `uri` if no noise was drawn yet.

        A created key is kept until the run is published.
        """
        begun = has_begun(self.folder)
        if begun and not STORE.exists(uri):
            raise ConfigError(
                f"--run_id {self.folder.run_id} must be resumed with the {setting} that it started with, got none at "
                f"{uri}; choose another run_id."
            )
        own = uri in (self.folder.path(KEY_FILE), self.folder.path(SECRET_FILE))
        if own and not begun:
            delete_key(uri, setting)  # Left by a process that was killed before it drew noise.
        if made := not STORE.exists(uri):
            create_key(uri, setting)
        if made or own:
            self._made.append((uri, setting))
        yield resumed_nonce(self.folder.staging, self.folder.run_id, begun=begun).place(uri)

    def start(self, planned: PlannedFit, key_uri: str) -> str:
        """Returns the fingerprint of the input, before noise is drawn."""
        return keyed_fingerprint(planned, key_uri)

    def leaves(self, digests: Mapping[str, str]) -> None:
        """Does nothing, since only a ledger records windows."""

    def publish(self, manifest: dict[str, Any]) -> None:
        """Makes the staging folder, without keys and round records, the output."""
        clear_rounds(self.folder.staging)
        for uri, setting in self._made:
            end_key(uri, self.folder.staging, setting)
        super().publish(manifest)

    def _delete_keys(self) -> None:
        for uri, setting in self._made:
            end_key(uri, None, setting)
