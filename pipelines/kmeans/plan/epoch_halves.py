"""The private state of an epoch under masks: each role's halves of the sums of the last windows, in its own folder.

The aggregator's masked sums lie in `LEDGER.sums`, the clients' totals of masks in `LEDGER.masks`. Each half is sealed
under the kept key of its role. Halves together are the exact sums of the last windows; one of them says nothing.

Both halves of a window are durable before the window is committed. Until then a repeated attempt writes both again, and
the ledger sees to it that they are the same. Before noise is drawn, halves of earlier windows are compared: each pair
must be of the same messages. They go once no later window adds them up, and all of them with the last window.
"""

import contextlib
import dataclasses
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator

import numpy as np
from apache_beam.io.filesystems import FileSystems
from numpy.typing import NDArray

from schemas.choices import Trust
from schemas.errors import ConfigError, LedgerRefusedError
from schemas.kmeans.fit_config import FitConfig
from schemas.kmeans.lloyd_config import DPLloydFit
from schemas.kmeans.recurring.epoch import EpochConfig
from schemas.privacy.charge import canonical
from schemas.privacy.window_halves import MaskedSums, MaskTotals, WindowHalf
from schemas.settings.refusal import Refusal
from transforms.files import gate, new_file
from transforms.files.octets import make_folder, remove_files
from transforms.files.write_once import write_once
from transforms.kmeans.dp_lloyd.window_rounds import epoch_facts, weights_of
from transforms.masked.clients import SECRET_SETTING
from transforms.masked.window_halves import half_path, opened_half

STAGED = "halves"
"""The folder of both halves in the private folder of a run, while it is under way."""
_KEYS = {MaskedSums: "key_uri", MaskTotals: SECRET_SETTING}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpochHalves:
    """The halves that a window of an epoch adds up and leaves.

    Attributes:
      sums: the aggregator's; its folder is the one that lasts.
      masks: the clients'; likewise.
      name: of the epoch.
      is_last: whether no window comes after this one.
    """

    sums: MaskedSums
    masks: MaskTotals
    name: str
    is_last: bool

    @classmethod
    def of(cls, config: FitConfig) -> "EpochHalves | None":
        """Those of a job; None for a job that is no window of an epoch under masks."""
        epoch = config.epoch
        if epoch is None or config.trust is not Trust.MASKED or not isinstance(config, DPLloydFit):
            return None
        facts = canonical(epoch_facts(config) | {"dataset": config.data.name, "window": None, "index": None})
        weights, (sums, masks) = weights_of(config), _folders(config, epoch)
        key, secret = str(config.key_uri), str(config.masked.secret_uri)
        return cls(
            sums=MaskedSums(folder=sums, key_uri=key, epoch=facts, index=epoch.index, weights=weights),
            masks=MaskTotals(folder=masks, key_uri=secret, epoch=facts, index=epoch.index, weights=weights),
            name=epoch.name,
            is_last=epoch.index + 1 == epoch.windows,
        )

    @property
    def _both(self) -> tuple[WindowHalf, WindowHalf]:
        return self.sums, self.masks

    def check_keys(self) -> None:
        """Refuses an epoch whose keys are not there, or are one: a key that a window makes is gone with the window.

        Raises:
          ConfigError: naming the setting.
        """
        for half in self._both:
            setting = _KEYS[type(half)]
            if not FileSystems.exists(half.key_uri):
                raise ConfigError(
                    f"{setting} must be a file that lasts as long as the epoch {self.name}, got none at "
                    f"{half.key_uri}; write one: (umask 077; head -c 32 /dev/urandom > {half.key_uri})."
                )
        if os.path.realpath(self.sums.key_uri) == os.path.realpath(self.masks.key_uri):
            raise ConfigError(
                f"{SECRET_SETTING} must be another file than key_uri, got one under two names; whoever adds up "
                "messages must not hold the masks."
            )

    def digest_before(self) -> str:
        """SHA-256 of what a window adds up of earlier ones, which are checked: pairs of halves of the same messages.

        Raises:
          LedgerRefusedError: if one is gone, or two are no pair.
        """
        found = hashlib.sha256()
        for index in self.sums.earlier:
            (of_sum, _), (of_mask, _) = (_opened(half, index, self._refusal(half, index)) for half in self._both)
            if of_sum != of_mask:
                raise self._refusal(self.masks, index).because("one of other messages than their sum")
            for half in self._both:
                found.update(gate.read_octets(half_path(half.folder, index), self._refusal(half, index)))
        return found.hexdigest() if self.sums.earlier else ""

    @contextlib.contextmanager
    def staged(self, folder: str) -> Iterator["EpochHalves"]:
        """The halves as workers find them: copies of earlier ones, sealed, in the private folder of the run.

        Those of its own window are kept durably when the graph is done.

        Args:
          folder: of the run, private; exists, and workers share it.
        """
        place = FileSystems.join(folder, STAGED)
        make_folder(place)
        sums = dataclasses.replace(self.sums, folder=FileSystems.join(place, MaskedSums.NAME))
        masks = dataclasses.replace(self.masks, folder=FileSystems.join(place, MaskTotals.NAME))
        for kept, half in zip(self._both, (sums, masks), strict=True):
            make_folder(half.folder)
            for index in kept.earlier:
                content = gate.read_octets(half_path(kept.folder, index), self._refusal(kept, index))
                write_once(half_path(half.folder, index), content, private=True)
        try:
            yield dataclasses.replace(self, sums=sums, masks=masks)
            self._keep((sums, masks))
        finally:
            shutil.rmtree(place) if os.path.isdir(place) else remove_files(f"{glob.escape(place)}/**")

    def drop(self) -> None:
        """Removes all halves if the window is the last one of the epoch; to be called when it is committed."""
        for half in self._both if self.is_last else ():
            shutil.rmtree(half.folder, ignore_errors=True)

    def _keep(self, staged: tuple[WindowHalf, WindowHalf]) -> None:
        """Replaces the halves of this window, durably; those that no later window adds up go."""
        for kept, half in zip(self._both, staged, strict=True):
            path = half_path(half.folder, half.index)
            content = gate.read_octets(path, gate.staged(path))
            os.makedirs(kept.folder, mode=0o700, exist_ok=True)
            own = half_path(kept.folder, kept.index)
            wanted = {own, *(half_path(kept.folder, index) for index in kept.earlier)}
            for other in glob.glob(os.path.join(glob.escape(kept.folder), "*")):
                if other not in wanted:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(other)
            new_file.put_in_place(own, content)

    def _refusal(self, half: WindowHalf, index: int) -> Refusal:
        """What the user is told of a half that cannot be used."""
        path = half_path(half.folder, index)
        return Refusal(
            kind=LedgerRefusedError,
            rule=f"{path} must be the {half.NAME} of window {index} of epoch {self.name}, sealed under "
            f"{_KEYS[type(half)]}",
            remedy="restore file and key, or begin an epoch of another name",
        )


def _opened(half: WindowHalf, index: int, refusal: Refusal) -> tuple[bytes, NDArray[np.int64]]:
    """A half that lasts."""
    return opened_half(half, index, gate.read_octets(half_path(half.folder, index), refusal), refusal)


def _folders(config: FitConfig, epoch: EpochConfig) -> tuple[str, str]:
    """Where halves of an epoch last: beside the ledger that charges it."""
    ledger = os.path.realpath(str(config.ledger).removeprefix("file://"))
    name = hashlib.sha256(canonical({"dataset": config.data.name, "epoch": epoch.name}).encode()).hexdigest()[:32]
    return (os.path.join(f"{ledger}.sums", name), os.path.join(f"{ledger}.masks", name))
