"""Output of a run, and its reservation in the ledger.

Jobs differ in their `OutputKind`, and in whether their `reserve` charges a ledger:

| job | writes | a stopped attempt | charged | its keys |
| --- | --- | --- | --- | --- |
| `fit`, `topics` | whole | resumed after the first round | with a ledger, once | kept until published |
| `clustered_fl` | whole | resumed after its first record | with a ledger, once | kept until published |
| `profile`, `encode` | whole | its folder refused | with a ledger, each attempt | of one attempt |
| `shuffle`, `decode` | whole | its folder refused | no | none |
| a window of `decode` | whole | replaced | no | none |
| pooled `fit`, `assign`, `evaluate` | whole, marked | its folder refused | no | none |
| `prepare` | whole, with the workers' manifest | its folder refused | no | of one attempt |
| `sweep` | parts, marked | resumed after the first part | with a ledger, each part | of one part |
| `stream`, windows of `decode` | a folder for each window | that window only | each window | each window's |
| `aggregate` | to an exchange, alone | adds up again | with a ledger, each attempt | kept by the party |
| `upload`, `unmask` | to an exchange | repeats its answers | no | kept by the party |

A whole output is complete or absent: it is staged, then moved, and never replaces another. Running a complete run
again returns its summary, without reading or charging: `fit` always does so, `profile` and `clustered_fl` with a
ledger.

`fit` has its own classes: `kmeans/free_run.py` without a ledger, `kmeans/account.py` with one. Its ledger records
key, input and release in three entries, so it can finish a run, or draw it again if its files are lost.
"""

import contextlib
import dataclasses
import enum
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from dapple_dp.pipelines.ledger.spending import Draw, Reservation, spending
from dapple_dp.pipelines.run.folder import MANIFEST, PRIVACY_FILE, RunFolder, check_apart, check_no_link
from dapple_dp.pipelines.run.options import JobOptions
from dapple_dp.pipelines.run.round_driver import finish, is_sealed, resumable
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import ChargedManifest, Spent
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.claims import alone_at
from dapple_dp.transforms.files.stores import STORE, join

_LOGGER = logging.getLogger(__name__)
Summary = dict[str, Any]


class Writes(enum.Enum):
    """Place that a job writes to, and the moment when others see it."""

    WHOLE = "into a staging folder, which becomes the output at the end"
    PARTS = "into the output, as it goes; each part is complete or absent"
    EXCHANGE = "into an exchange, beside other parties"
    ALONE = "into an exchange, where one process at a time may do it"


class Stopped(enum.Enum):
    """Fate of the staging folder that a killed attempt left behind."""

    REFUSED = "a run of the same id is refused"
    REPLACED = "a run of the same id starts over"
    RESUMED = "a run of the same id goes on, after the first record of rounds"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputKind:
    """Properties of a job's output.

    Attributes:
      writes: place of the output, and when others see it.
      stopped: what follows a killed attempt, for jobs that write a whole output.
      answered: whether a charged and complete run returns its summary instead of running again.
      mark: manifest entries of an output that isn't private and must be kept apart from released ones; None for other
        outputs.
      allowed_by: settings section whose `beside_released` allows a marked output beside released ones; "" if nothing
        does.
      manifest: file that completes the output; workers write any other than `run.json`.
    """

    writes: Writes = Writes.WHOLE
    stopped: Stopped = Stopped.REFUSED
    answered: bool = False
    mark: Mapping[str, Any] | None = None
    allowed_by: str = ""
    manifest: str = MANIFEST

    def place(self, settings: Any, options: JobOptions) -> "Place":
        """Returns the place of a run."""
        return Place(options, settings, self)


WHOLE = OutputKind()


class Place:
    """Output of a run.

    Args:
      options: options of the run.
      settings: settings of the job.
      kind: kind of the output.
    """

    def __init__(self, options: JobOptions, settings: Any = None, kind: OutputKind = WHOLE):
        self.folder = RunFolder(options.output, options.run_id)
        self._options = options
        self._settings = settings
        self._kind = kind
        self._draw: Draw | None = None

    @property
    def summary(self) -> Summary:
        """Run id and output, if the job writes a whole output."""
        if not self.is_whole:
            return {}
        return {"run_id": self._options.run_id, "output": self._options.output}

    @property
    def is_whole(self) -> bool:
        """True if the run makes one output, which is complete or absent."""
        return self._kind.writes is Writes.WHOLE

    def complete(self) -> Summary | None:
        """Returns the summary of this run if the ledger has charged it and its output exists.

        Commits the charge if an earlier process was stopped between its last move and its commit.
        """
        if not self._kind.answered or self._settings.ledger is None:
            return None
        from dapple_dp.pipelines.ledger.store import Ledger

        run = self._options.run_id
        status = Ledger(self._settings.ledger).status(run)
        if status is None or status.state == "void":
            return None
        result = self.in_place(config_digest(self._settings))
        if result is not None and status.state == "reserved":
            Ledger(self._settings.ledger).commit(run, {})
        return result

    def in_place(self, digest: str) -> Summary | None:
        """Returns the summary of this run if its output exists; None if there is no output, or that of another run.

        Args:
          digest: digest of the settings.

        Raises:
          ConfigError: if a file of the run was changed.
        """
        path, run = join(self._options.output, MANIFEST), self._options.run_id
        if not STORE.exists(path):
            return None
        found = untrusted.read_json(path, ChargedManifest, _not_of_run(path))
        if (found.run_id, found.config_digest) != (run, digest):
            return None
        path = join(self._options.output, PRIVACY_FILE)
        spent = untrusted.read_json(path, Spent, _not_of_run(path))
        _LOGGER.info("run %s is complete: nothing is read or charged", run)
        return self.summary | {"epsilon": spent.epsilon, "delta": spent.delta}

    def check(self) -> None:
        """Refuses an output that isn't empty, is a link, or is in the wrong place; nothing has been read yet."""
        kind, output = self._kind, self._options.output
        if kind.writes in (Writes.EXCHANGE, Writes.ALONE):
            return
        if kind.mark is not None and not (kind.allowed_by and getattr(self._settings, kind.allowed_by).beside_released):
            check_apart(output, kind.allowed_by)
        check_no_link(output)
        if kind.writes is Writes.WHOLE:
            self.folder.check()

    @contextlib.contextmanager
    def opened(self, reservation: Reservation | None) -> Iterator[None]:
        """Charges the run and prepares its output; the caller must publish as the last step inside.

        Refuses an output to which another run writes before it charges anything.

        Raises:
          LedgerRefusedError: before anything is read, if the ledger refuses the charge.
        """
        charged = self._charged(reservation)
        with contextlib.ExitStack() as stack:
            if self._kind.writes is Writes.WHOLE:
                stack.callback(self.folder.release)
                with self.folder.claimed():
                    if self._kind.stopped is Stopped.RESUMED:
                        # The key, which may be in the folder, decides whether a run is resumed or charged.
                        stack.enter_context(resumable(self.folder))
                        stack.enter_context(charged)
                    else:
                        stack.enter_context(charged)
                        again = self._kind.stopped is Stopped.REPLACED
                        stack.enter_context(self.folder.reopened() if again else self.folder.opened())
            else:
                if self._kind.writes is Writes.ALONE:
                    exchange = self._options.exchange
                    stack.enter_context(alone_at(exchange, self._options.run_id, "--exchange", exchange))
                stack.enter_context(charged)
            yield

    @contextlib.contextmanager
    def _charged(self, reservation: Reservation | None) -> Iterator[None]:
        """Charges the run, and keeps the callback that records its key."""
        with spending(reservation) as draw:
            self._draw = draw
            yield

    def draws_with(self, key_uri: str) -> None:
        """Records in the ledger, if the run is charged, the key with which it is about to draw noise.

        Args:
          key_uri: place of the run's key.

        Raises:
          LedgerRefusedError: if another run has drawn with this key.
        """
        if self._draw is None:
            raise RuntimeError("a key must be announced inside of `opened`.")
        self._draw(key_uri)

    def publish(self, manifest: dict[str, Any]) -> None:
        """Moves staged files to the output, the manifest last; does nothing for jobs that write in place."""
        if self._kind.writes is not Writes.WHOLE:
            return
        if self._kind.manifest != MANIFEST:
            self.folder.move([*manifest["files"], self._kind.manifest])
        elif self._kind.stopped is Stopped.RESUMED:
            if not is_sealed(self.folder):
                self.folder.seal(manifest)
            finish(self.folder)
        else:
            self.folder.publish({**(self._kind.mark or {}), **manifest})


def _not_of_run(path: str) -> Refusal:
    """The refusal of a file that no run has written like this."""
    return Refusal(kind=ConfigError, rule=f"{path} must be as a run wrote it", remedy="choose another --output")
