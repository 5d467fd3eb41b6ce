"""Client lists of an epoch at client level: private state beside the epoch's ledger, or in `state`.

The client list of a window is computed from the previous one and from the ids in the window. It is durable
before noise is drawn. Until the window is committed it can be computed again, so the previous list is kept that long.
Losing a list ends the epoch, since clients would be counted again. A list is verified by its digest, see `Register`.
"""

import contextlib
import dataclasses
import hashlib
import os
import secrets
from typing import Any

from dapple_dp.pipelines.ledger.private_state import Register, State, digest_of
from dapple_dp.pipelines.ledger.store import CLIENT_LISTS, Ledger
from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.schemas.privacy.charge import canonical
from dapple_dp.schemas.privacy.ledger_entry import RunStatus
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.participation import Participation
from dapple_dp.transforms.files import new_file, untrusted
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.numerics.tables.participation import Counted, Rule
from dapple_dp.transforms.tables.counted_clients import SALT_BYTES, ClientList
from dapple_dp.transforms.tables.group_clients import Windows
from dapple_dp.transforms.tables.split_clients import ClientListParams

_BEFORE, _CALLED = "before.npz", "called.npz"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpochClientList:
    """Client lists of one epoch, and the window of a run.

    Attributes:
      facts: identity of the epoch: data set, name, calendar and contract.
      column: Hive partition column of the windows.
      dates: dates of the windows that a run reads, newest first.
      index: number of the run's own window.
      rule: limits on how often a client counts.
      client_id: column of the client ids.
      ledger: ledger that charges the epoch.
      state: local folder of the lists; None for a folder beside the ledger file.
    """

    facts: dict[str, Any]
    column: str
    dates: tuple[str, ...]
    index: int
    rule: Rule
    client_id: str
    ledger: str
    state: str | None = None

    @property
    def windows(self) -> Windows:
        """Windows that the run reads."""
        return Windows(self.column, self.dates)

    def before(self) -> bytes:
        """Reads the client list of the window before; returns an empty one for the first window.

        Raises:
          LedgerRefusedError: if it is missing or was changed.
        """
        runs = self._runs()
        if self.index == 0:
            return ClientList(
                facts=self._facts(-1, runs), salt=secrets.token_bytes(SALT_BYTES), kind="", counted=Counted.nobody()
            ).to_bytes()
        path = self._path(self.index - 1)
        refusal = Refusal(
            kind=LedgerRefusedError,
            rule=f"{path} must be the client list of the previous window of epoch {self.facts['name']}",
            remedy="restore it, or begin an epoch of another name, since clients would count again",
        )
        content = self._register.read(State.CLIENT_LIST, self.index - 1, path, refusal)
        ClientList.from_bytes(content, self._facts(self.index - 1, runs), refusal)
        return content

    def digest_before(self) -> str:
        """SHA-256 of the previous client list; empty for the first window."""
        return digest_of(self.before()) if self.index else ""

    def params(self, copy: str) -> ClientListParams:
        """Returns the parameters by which workers compute the list, and writes their input to a private shared folder.

        Args:
          copy: the private shared folder.
        """
        runs = self._runs()
        write_bytes(os.path.join(copy, _BEFORE), self.before())
        return ClientListParams(
            client_id=self.client_id,
            column=self.column,
            date=self.dates[0],
            window=self.index,
            rule=self.rule,
            before=os.path.join(copy, _BEFORE),
            facts=self._facts(self.index - 1, runs),
            path=os.path.join(copy, _CALLED),
            to=self._facts(self.index, runs),
        )

    def called(self, copy: str) -> Participation:
        """Stores the computed client list durably, and returns the participation for reading rows by it.

        Args:
          copy: folder given to `params`.
        """
        path = os.path.join(copy, _CALLED)
        content = untrusted.read_bytes(path, untrusted.staged_refusal(path))
        ClientList.from_bytes(content, self._facts(self.index, self._runs()), untrusted.staged_refusal(path))
        self._keep(content)
        return Participation(
            column=self.column,
            dates=self.dates,
            index=self.index,
            max_windows=self.rule.max_windows,
            min_separation=self.rule.min_separation,
            path=path,
            digest=digest_of(content),
        )

    def _keep(self, content: bytes) -> None:
        """Replaces the client list of this window; keeps the previous one and deletes older ones."""
        new_file.make_folders(self._folder, 0o700)
        path = self._path(self.index)
        kept = {path, self._path(self.index - 1)}
        for other in (os.path.join(self._folder, name) for name in os.listdir(self._folder)):
            if other not in kept:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(other)
        new_file.put_in_place(path, content)

    def _path(self, index: int) -> str:
        return os.path.join(self._folder, f"{index:05d}.npz")

    @property
    def _folder(self) -> str:
        name = canonical({"dataset": self.facts["dataset"], "epoch": self.facts["name"]})
        place = self.state or f"{Ledger(self.ledger).folder}{CLIENT_LISTS}"
        return os.path.join(place, hashlib.sha256(name.encode()).hexdigest()[:32])

    def _runs(self) -> dict[int, RunStatus]:
        """Status of the epoch's runs in the ledger, by window number."""
        return self._register.runs()

    @property
    def _register(self) -> Register:
        return Register(self.ledger, self.facts["dataset"], self.facts["name"])

    def _facts(self, index: int, runs: dict[int, RunStatus]) -> dict[str, Any]:
        """Identity of a window's client list, for the epoch that began with a certain reservation."""
        return self.facts | {"index": index, "begun": runs[0].reserved["nonce"] if 0 in runs else None}
