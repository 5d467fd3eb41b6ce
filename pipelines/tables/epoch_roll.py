"""The private state of an epoch at client level: its rolls, in a folder beside the ledger that charges the epoch.

The roll of a window is called from that of the window before and from the ids of the window. It is durable before noise
is drawn. Until the window is committed it can be called again, from the same roll before, so that one is kept as long.
Who loses a roll ends the epoch: clients would count anew.
"""

import contextlib
import dataclasses
import glob
import hashlib
import os
import secrets
from typing import Any

from schemas.errors import LedgerRefusedError
from schemas.kmeans.recurring.epoch import EpochConfig
from schemas.privacy.charge import canonical
from schemas.settings.refusal import Refusal
from schemas.tables.participation import Participation
from transforms.files import gate, new_file
from transforms.files.octets import write_bytes
from transforms.numerics.tables.participation import Counted, Rule
from transforms.tables.counted_clients import SALT_BYTES, Roll
from transforms.tables.group_clients import Windows
from transforms.tables.split_clients import RollParams

SUFFIX = ".rolls"
_BEFORE, _CALLED = "before.npz", "called.npz"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpochRoll:
    """The rolls of one epoch, and the window of a run.

    Attributes:
      epoch: the section of the run.
      client_id: column of the client ids.
      folder: where the rolls lie; private.
    """

    epoch: EpochConfig
    client_id: str
    folder: str

    @classmethod
    def of(cls, epoch: EpochConfig, ledger: str, dataset: str, client_id: str) -> "EpochRoll":
        """The rolls of an epoch of a data set.

        Args:
          epoch: its section.
          ledger: path of the ledger.
          dataset: name of the data set there.
          client_id: column of the client ids.
        """
        name = hashlib.sha256(canonical({"dataset": dataset, "epoch": epoch.name}).encode()).hexdigest()[:32]
        path = os.path.realpath(ledger.removeprefix("file://"))
        return cls(epoch=epoch, client_id=client_id, folder=os.path.join(path + SUFFIX, name))

    @property
    def windows(self) -> Windows:
        """The windows that are read."""
        return Windows(self.epoch.column, self.epoch.dates)

    @property
    def rule(self) -> Rule:
        """How often a client counts."""
        epoch = self.epoch
        binds = epoch.times < -(-epoch.windows // epoch.separation)
        return Rule(epoch.times, epoch.separation, epoch.band, binds)

    def before(self) -> bytes:
        """The roll of the window before, or an empty one.

        Raises:
          LedgerRefusedError: if it is gone or another one.
        """
        index = self.epoch.index
        if index == 0:
            return Roll(
                facts=self._facts(-1), salt=secrets.token_bytes(SALT_BYTES), kind="", counted=Counted.nobody()
            ).to_bytes()
        path = self._path(index - 1)
        refusal = Refusal(
            kind=LedgerRefusedError,
            rule=f"{path} must be the roll of the window before of epoch {self.epoch.name}",
            remedy="restore it, or begin an epoch of another name, since clients would count anew",
        )
        content = gate.read_octets(path, refusal)
        Roll.from_bytes(content, self._facts(index - 1), refusal)
        return content

    def digest_before(self) -> str:
        """SHA-256 of the roll of the window before; empty before the first window."""
        return hashlib.sha256(self.before()).hexdigest() if self.epoch.index else ""

    def params(self, copy: str) -> RollParams:
        """How workers call the roll; what they read is put into a private folder that they share.

        Args:
          copy: that folder.
        """
        epoch = self.epoch
        write_bytes(os.path.join(copy, _BEFORE), self.before())
        return RollParams(
            client_id=self.client_id,
            column=epoch.column,
            date=epoch.window,
            window=epoch.index,
            rule=self.rule,
            before=os.path.join(copy, _BEFORE),
            facts=self._facts(epoch.index - 1),
            path=os.path.join(copy, _CALLED),
            to=self._facts(epoch.index),
        )

    def called(self, copy: str) -> Participation:
        """Keeps the roll that workers have called, durably, and says where rows are read by it.

        Args:
          copy: the folder of `params`.
        """
        epoch, path = self.epoch, os.path.join(copy, _CALLED)
        content = gate.read_octets(path, gate.staged(path))
        Roll.from_bytes(content, self._facts(epoch.index), gate.staged(path))
        self._keep(content)
        return Participation(
            column=epoch.column,
            dates=epoch.dates,
            index=epoch.index,
            max_windows=epoch.times,
            min_separation=epoch.separation,
            path=path,
            digest=hashlib.sha256(content).hexdigest(),
        )

    def _keep(self, content: bytes) -> None:
        """Replaces the roll of this window; those before the last one go."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        path = self._path(self.epoch.index)
        kept = {path, self._path(self.epoch.index - 1)}
        for other in glob.glob(os.path.join(glob.escape(self.folder), "*")):
            if other not in kept:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(other)
        made = f"{path}.{secrets.token_hex(8)}"
        new_file.create(made, content)
        os.replace(made, path)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, index: int) -> str:
        return os.path.join(self.folder, f"{index:05d}.npz")

    def _facts(self, index: int) -> dict[str, Any]:
        """What the roll of a window says that it is."""
        epoch = self.epoch
        names = ("name", "first", "days", "windows", "band", "max_windows", "min_separation")
        return {name: getattr(epoch, name) for name in names} | {"index": index}
