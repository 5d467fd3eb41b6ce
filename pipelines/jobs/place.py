"""Where a run writes, and under which reservation of the ledger."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Self

from dapple_dp.pipelines.ledger.spending import Draw, Reservation, spending
from dapple_dp.pipelines.run.folder import MANIFEST, PRIVACY_FILE, RunFolder, check_no_link
from dapple_dp.pipelines.run.options import JobOptions
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import ChargedManifest, Spent
from dapple_dp.transforms.files import gate
from dapple_dp.transforms.files.stores import STORE, join

_LOGGER = logging.getLogger(__name__)
Summary = dict[str, Any]


class Place:
    """Where a run writes; this one is of jobs that write as they go, and looks after nothing but the ledger.

    Args:
      options: of the run.
    """

    def __init__(self, options: JobOptions):
        self.folder = RunFolder(options.output, options.run_id)
        self._options = options
        self._draw: Draw | None = None

    @classmethod
    def of(cls, settings: object, options: JobOptions) -> Self:
        """The place of a run, whatever its settings."""
        return cls(options)

    @property
    def summary(self) -> Summary:
        """What the printed summary says of the place."""
        return {}

    def complete(self) -> Summary | None:
        """The summary of a run that had been complete before; None of any other."""
        return None

    def check(self) -> None:
        """Refuses, before anything is read, a place where the run may not write."""

    @contextlib.contextmanager
    def opened(self, reservation: Reservation | None) -> Iterator[None]:
        """Charges the run and makes the place ready; what follows must publish as its last step.

        Raises:
          LedgerRefusedError: before anything is read.
        """
        with self._charged(reservation):
            yield

    @contextlib.contextmanager
    def _charged(self, reservation: Reservation | None) -> Iterator[None]:
        """Charges the run, and takes note of what wants to know its key."""
        with spending(reservation) as draw:
            self._draw = draw
            yield

    def draws_with(self, key_uri: str) -> None:
        """Informs the ledger, if the run is charged, with which key it is about to draw noise.

        Args:
          key_uri: the place of the run's own key.

        Raises:
          LedgerRefusedError: if another run has drawn with this key.
        """
        if self._draw is None:
            raise RuntimeError("a key must be announced inside of `opened`.")
        self._draw(key_uri)

    def publish(self, manifest: dict[str, Any]) -> None:
        """Makes what is staged the output."""


class OutputFolder(Place):
    """A folder that is complete or absent: files are staged beside it, and it is removed if the run fails."""

    @property
    def summary(self) -> Summary:
        """Run id and output."""
        return {"run_id": self._options.run_id, "output": self._options.output}

    def check(self) -> None:
        """Refuses an output folder that holds something or is a link."""
        check_no_link(self._options.output)
        self.folder.check()

    @contextlib.contextmanager
    def opened(self, reservation: Reservation | None) -> Iterator[None]:
        """Charges the run and makes the staging folder; an output to which another run writes is refused before."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.folder.release)
            with self.folder.claimed():
                stack.enter_context(self._charged(reservation))
                stack.enter_context(self._staging())
            yield

    def _staging(self) -> contextlib.AbstractContextManager[None]:
        """The staging folder, which must be new."""
        return self.folder.opened()

    def in_place(self, digest: str) -> Summary | None:
        """The summary of this run, if its output is there; None if nothing is there, or the output of another run.

        Args:
          digest: of the settings.

        Raises:
          ConfigError: if a file of a run is there, and is not as a run wrote it.
        """
        path, run = join(self._options.output, MANIFEST), self._options.run_id
        if not STORE.exists(path):
            return None
        found = gate.read_json(path, ChargedManifest, _not_of_run(path))
        if (found.run_id, found.config_digest) != (run, digest):
            return None
        path = join(self._options.output, PRIVACY_FILE)
        spent = gate.read_json(path, Spent, _not_of_run(path))
        _LOGGER.info("run %s is complete: nothing is read or charged", run)
        return self.summary | {"epsilon": spent.epsilon, "delta": spent.delta}

    def publish(self, manifest: dict[str, Any]) -> None:
        """Makes the staging folder, with its manifest, the output."""
        self.folder.publish(manifest)


class ChargedFolder(OutputFolder):
    """An output folder of a job with a ledger or without: a run that is complete and charged is not made again.

    Args:
      options: of the run.
      ledger: its path; None without one.
      digest: of the settings.
    """

    def __init__(self, options: JobOptions, ledger: str | None, digest: str):
        super().__init__(options)
        self._ledger, self._digest = ledger, digest

    @classmethod
    def of(cls, settings: Any, options: JobOptions) -> Self:
        """The place of a run."""
        return cls(options, settings.ledger, config_digest(settings))

    def complete(self) -> Summary | None:
        """The summary of this run of these settings, if its ledger has charged it and its output is there.

        A process that was stopped between its last move and its commit is committed now.
        """
        if self._ledger is None:
            return None
        from dapple_dp.pipelines.ledger.store import Ledger

        run = self._options.run_id
        status = Ledger(self._ledger).status(run)
        if status is None or status.state == "void":
            return None
        found = self.in_place(self._digest)
        if found is not None and status.state == "reserved":
            Ledger(self._ledger).commit(run, {})
        return found


def _not_of_run(path: str) -> Refusal:
    """The refusal of a file that a run did not leave so."""
    return Refusal(kind=ConfigError, rule=f"{path} must be as a run wrote it", remedy="choose another --output")
