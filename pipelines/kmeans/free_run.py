"""A `fit` without a ledger: it goes on where it was stopped, if it is asked for again under its --run_id."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from apache_beam.io.filesystems import FileSystems

from pipelines.jobs.place import OutputFolder
from pipelines.kmeans.plan.fingerprint import keyed_fingerprint
from pipelines.kmeans.plan.planned_fit import PlannedFit
from pipelines.ledger.spending import Reservation
from pipelines.run.round_driver import clear_rounds, has_begun, rounds_recorded
from pipelines.run.run_keys import resumed_nonce
from schemas.errors import ConfigError, LedgerRefusedError
from transforms.privacy.keys import delete_key, kept_key

_LOGGER = logging.getLogger(__name__)


class FreeRun(OutputFolder):
    """The output folder of one run of `fit` that is charged to nobody.

    Before the first record of rounds a run that fails leaves nothing. After it, its keys and its staging folder stay,
    whatever the error: some noise has been drawn, and what goes on must draw the same.
    """

    @contextlib.contextmanager
    def opened(self, reservation: Reservation | None) -> Iterator[None]:
        """Makes the staging folder, or takes up that of a stopped attempt.

        Raises:
          ConfigError: if the other attempt is not over.
        """
        self._made: list[tuple[str, str]] = []
        with self.folder.claimed():
            try:
                self.folder.take_up()
            except LedgerRefusedError as error:
                raise ConfigError(str(error)) from error
        try:
            self.folder.clear(keep_rounds=has_begun(self.folder))
            yield
        except BaseException:
            if rounds_recorded(self.folder):
                run = self.folder.run_id
                _LOGGER.info("what is done stays; the same command with --run_id %s goes on", run)
            else:
                self._delete_keys()
                self.folder.discard()
            raise
        finally:
            self.folder.release()

    @contextlib.contextmanager
    def held_key(self, uri: str, setting: str = "key_uri") -> Iterator[str]:
        """The place of the run's key; the kept one at `uri` is made if noise has not been drawn yet.

        A key that is made stays until the run is published.
        """
        begun = has_begun(self.folder)
        if begun and not FileSystems.exists(uri):
            raise ConfigError(
                f"--run_id {self.folder.run_id} must be resumed with the {setting} that it started with, got none at "
                f"{uri}; choose another run_id."
            )
        if not FileSystems.exists(uri) or uri.startswith(self.folder.staging):
            self._made.append((uri, setting))
        nonce = resumed_nonce(self.folder.staging, self.folder.run_id, begun=begun)
        with kept_key(uri, setting):
            yield nonce.place(uri)

    def start(self, planned: PlannedFit, key_uri: str) -> str:
        """The fingerprint of the input, before noise is drawn."""
        return keyed_fingerprint(planned, key_uri)

    def leaves(self, **digests: str) -> None:
        """What a run leaves to the next window is of an epoch, which has a ledger."""
        raise ValueError(f"a run without a ledger must leave nothing, got {', '.join(digests)}; give it one.")

    def publish(self, manifest: dict[str, Any]) -> None:
        """Makes the staging folder, without keys and records, the output."""
        clear_rounds(self.folder.staging)
        self._delete_keys()
        super().publish(manifest)

    def _delete_keys(self) -> None:
        for uri, setting in self._made:
            delete_key(uri, setting)
