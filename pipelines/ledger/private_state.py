"""Register of private state: verifies by digest what the windows of an epoch leave to later windows.

The client list, the record of offsets and the released files of a window have the same names in every copy, such as an
older backup or a rehearsal of the epoch with another ledger. So the ledger's commit of a window holds the SHA-256 of
each, and a process that reads them for a later window compares it through this register first.
"""

import enum
import hashlib
from collections.abc import Sequence

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.privacy.ledger_entry import LedgerEntry, RunStatus, run_states
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import VerifiedManifest
from dapple_dp.transforms.files import untrusted


class State(enum.StrEnum):
    """State that a window leaves; the value is its key in the ledger's commit.

    CLIENT_LIST: the clients that have been counted. OFFSETS: the messages of a topic that the window had. MANIFEST: its
    release, with the sums that it remembers.
    """

    CLIENT_LIST = "roll"
    OFFSETS = "offsets"
    MANIFEST = "manifest"


def digest_of(content: bytes) -> str:
    """SHA-256 of a file, 64 hex digits, as stored in a commit."""
    return hashlib.sha256(content).hexdigest()


class Register:
    """The ledger's record of the private state of one epoch.

    Args:
      ledger: path of the epoch's ledger.
      dataset: `data.name` of its jobs.
      epoch: name of the epoch.
    """

    def __init__(self, ledger: str, dataset: str, epoch: str):
        self._of = (ledger, dataset, epoch)
        self._runs: dict[int, RunStatus] | None = None

    def runs(self) -> dict[int, RunStatus]:
        """Returns the status of the epoch's runs by window number; read once until `look_again`."""
        if self._runs is None:
            ledger, dataset, epoch = self._of
            self._runs = Ledger(ledger).windows(dataset, epoch)
        return self._runs

    def look_again(self) -> None:
        """Forgets the statuses, since a window may have been committed."""
        self._runs = None

    def read(self, state: State, index: int, path: str, refusal: Refusal, *, may_be_open: bool = False) -> bytes:
        """Reads a file that a window left, and verifies its digest.

        Args:
          state: kind of the file.
          index: number of the window.
          path: path of the file.
          refusal: error for another file.
          may_be_open: whether to accept the file of the first window that isn't committed yet.

        Raises:
          DappleError: of the refusal's kind, if the file is missing or differs from the window's commit.
        """
        content = untrusted.read_bytes(path, refusal)
        self.check(state, index, digest_of(content), refusal, may_be_open=may_be_open)
        return content

    def check(self, state: State, index: int, digest: str, refusal: Refusal, *, may_be_open: bool = False) -> None:
        """Compares the SHA-256 of a file with the commit of its window; arguments are those of `read`."""
        runs = self.runs()
        if may_be_open and index == _next(runs):
            return
        if _named(runs, state, index) != digest:
            raise refusal.because("another one than the ledger's commit of that window names")

    def is_over(self, index: int) -> bool:
        """Returns whether a window is committed, so that its state can't be made again."""
        return _is_committed(self.runs(), index)


def check_published(entries: Sequence[LedgerEntry], manifest: VerifiedManifest, digest: str, refusal: Refusal) -> None:
    """Compares an output with the ledger that was charged for it.

    Args:
      entries: entries of the ledger.
      manifest: manifest of the output.
      digest: SHA-256 of the manifest's file.
      refusal: error for another output.

    Raises:
      DappleError: of the refusal's kind, if the ledger lacks the run, or an entry that the run has seen.
    """
    status = run_states(entries).get(manifest.run_id)
    if status is None or status.committed is None:
        raise refusal.because("one that it does not hold as committed")
    if status.committed.get(State.MANIFEST, digest) != digest:
        raise refusal.because("one with another digest there")
    head = None if manifest.ledger is None else manifest.ledger.head
    if head is not None and all(entry.digest != head for entry in entries):
        raise refusal.because("one that has seen an entry that the ledger lacks")


def _named(runs: dict[int, RunStatus], state: State, index: int) -> str | None:
    """The digest in the commit of a window; None if there is none."""
    committed = runs[index].committed if index in runs else None
    return None if committed is None else committed.get(state)


def _is_committed(runs: dict[int, RunStatus], index: int) -> bool:
    return index in runs and runs[index].committed is not None


def _next(runs: dict[int, RunStatus]) -> int:
    """Index of the first window without a commit."""
    return next(index for index in range(len(runs) + 1) if not _is_committed(runs, index))
