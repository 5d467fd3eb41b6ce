"""The register of private state: what the windows of an epoch leave to later ones is known by its content.

Roll, record of offsets and released files of a window have names that copies share: an older backup has them, so has a
rehearsal of the same epoch with another ledger. So the ledger's commit of a window holds the SHA-256 of each, and
a process that reads them for a later window uses this register, which compares first.
"""

import enum
import hashlib
from collections.abc import Sequence

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.privacy.ledger_entry import LedgerEntry, RunStatus, run_states
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import VerifiedManifest
from dapple_dp.transforms.files import gate


class State(enum.StrEnum):
    """What a window leaves; the value is its key in the ledger's commit.

    ROLL: which clients have counted. OFFSETS: which messages of a topic it had. MANIFEST: what it released, with the
    sums that it remembers.
    """

    ROLL = "roll"
    OFFSETS = "offsets"
    MANIFEST = "manifest"


def digest_of(content: bytes) -> str:
    """What a commit holds of a file: SHA-256, 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


class Register:
    """What the ledger knows of the private state of one epoch.

    Args:
      ledger: path of the ledger that charges it.
      dataset: `data.name` of its jobs.
      epoch: its name.
    """

    def __init__(self, ledger: str, dataset: str, epoch: str):
        self._of = (ledger, dataset, epoch)
        self._runs: dict[int, RunStatus] | None = None

    def runs(self) -> dict[int, RunStatus]:
        """What the ledger says of the runs of the epoch, by the number of the window; read once until `look_again`."""
        if self._runs is None:
            ledger, dataset, epoch = self._of
            self._runs = Ledger(ledger).windows(dataset, epoch)
        return self._runs

    def look_again(self) -> None:
        """Forgets what the ledger said: a window has been committed since, or may have been."""
        self._runs = None

    def read(self, state: State, index: int, path: str, refusal: Refusal, *, may_be_open: bool = False) -> bytes:
        """The file that a window left.

        Args:
          state: what it is.
          index: number of the window.
          path: of the file.
          refusal: for another file.
          may_be_open: whether the window itself may be the next one, which has no commit yet.

        Raises:
          DappleError: of the refusal's kind, if it is gone or another one than the commit of the window names.
        """
        content = gate.read_bytes(path, refusal)
        self.check(state, index, digest_of(content), refusal, may_be_open=may_be_open)
        return content

    def check(self, state: State, index: int, digest: str, refusal: Refusal, *, may_be_open: bool = False) -> None:
        """Compares the SHA-256 of a file with the commit of the window that left it; arguments are those of `read`."""
        runs = self.runs()
        if may_be_open and index == _next(runs):
            return
        if _named(runs, state, index) != digest:
            raise refusal.because("another one than the ledger's commit of that window names")

    def is_over(self, index: int) -> bool:
        """Whether a window is committed, so that what it left cannot be made again."""
        return _is_committed(self.runs(), index)


def check_published(entries: Sequence[LedgerEntry], manifest: VerifiedManifest, digest: str, refusal: Refusal) -> None:
    """Compares an output with the ledger that was charged for it.

    Args:
      entries: of the ledger.
      manifest: of the output.
      digest: SHA-256 of the manifest's file.
      refusal: for another one.

    Raises:
      DappleError: of the refusal's kind, if the ledger does not hold the run, or what the run has seen of it.
    """
    status = run_states(entries).get(manifest.run_id)
    if status is None or status.committed is None:
        raise refusal.because("one that it does not hold as committed")
    if status.committed.get(State.MANIFEST, digest) != digest:
        raise refusal.because("one with another digest there")
    head = None if manifest.ledger is None else manifest.ledger.head
    if head is not None and all(each.digest != head for each in entries):
        raise refusal.because("one that has seen an entry that the ledger lacks")


def _named(runs: dict[int, RunStatus], state: State, index: int) -> str | None:
    """The digest in the commit of a window; None if there is none."""
    committed = runs[index].committed if index in runs else None
    return None if committed is None else committed.get(state)


def _is_committed(runs: dict[int, RunStatus], index: int) -> bool:
    return index in runs and runs[index].committed is not None


def _next(runs: dict[int, RunStatus]) -> int:
    """The first window without a commit."""
    return next(index for index in range(len(runs) + 1) if not _is_committed(runs, index))
