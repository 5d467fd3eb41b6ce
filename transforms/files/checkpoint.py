"""Checkpoints: all that a long protocol needs to resume after one of its rounds, stored completely or not at all.

Arrays are in one file per checkpoint. The manifest names it with its digest, and is replaced atomically once that file
is on the disk, so that it always names a whole file, whenever the process or the machine stops.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import pydantic
from numpy.typing import NDArray
from pydantic import Field

from dapple_dp.schemas.errors import ConfigError, InputError, PrivacyFlowError
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.json_schema import FILE_CONTENT, FileContent, OpenContent
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.files import new_file, stores, untrusted
from dapple_dp.transforms.files.file_bytes import files_in, put_whole, read_bytes
from dapple_dp.transforms.files.formats.arrays_file import arrays_to_bytes
from dapple_dp.transforms.files.stores import STORE, join

MANIFEST_FILE = "checkpoint.json"
FORMAT = 2
"""Number of the format of `checkpoint.json`."""
_WRITERS = {1: "0.2.0 or older"}
"""Versions of Dapple that wrote older formats."""
Arrays = Mapping[str, NDArray]
"""State of a protocol between two rounds, by name; never objects, so that nothing has to be unpickled."""
MOST_ROUNDS = 10**9
"""Largest number of rounds of a run."""
_REMEDY = "start over with another --run_id"
_REMEDIES = {
    "config_digest": ("the config", "restore the config"),
    "input_fingerprint": ("the input", "restore the input"),
    "key_digest": ("the noise key", "restore the key"),
    "plan_digest": ("the privacy plan", "install the versions that began it"),
}
_Digest = Annotated[str, Field(max_length=1 << 12)]


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunBinding:
    """The properties that a run must share with the interrupted run that it resumes.

    Attributes:
      config_digest: of the job.
      input_fingerprint: keyed digest of the rows.
      key_digest: one-way digest of the run key.
      plan_digest: of the events that the whole run spends.
    """

    config_digest: _Digest
    input_fingerprint: _Digest
    key_digest: _Digest
    plan_digest: _Digest


class _ArraysContent(FileContent):
    """The file of arrays in `checkpoint.json`: a bare name as `_arrays_name` makes it, never a path."""

    file: str = Field(pattern=r"^round-[0-9]{6,18}\.npz$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _Number(OpenContent):
    format: int


class _Content(FileContent):
    format_number: ClassVar[int] = FORMAT
    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    rounds: int = Field(ge=0, le=MOST_ROUNDS)
    binding: RunBinding
    plan: dict[str, Any]
    events: list[dict[str, Any]]
    extended: list[dict[str, Any]]
    arrays: _ArraysContent


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A run after some of its rounds.

    Attributes:
      rounds: number of finished rounds.
      binding: of the run.
      plan: the spending of the whole run, as JSON.
      events: spending of the finished rounds, as JSON.
      arrays: of the protocol.
      extended: registered types that the finished rounds rely on, as `privacy.json` lists them.
    """

    rounds: int
    binding: RunBinding
    plan: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    arrays: Arrays
    extended: tuple[dict[str, Any], ...] = ()

    def check(self, binding: RunBinding) -> None:
        """Refuses to resume a run from the checkpoint of a different one.

        Raises:
          ConfigError: if config, input, key or plan has changed; the message says which.
        """
        for field in dataclasses.fields(RunBinding):
            if getattr(binding, field.name) != getattr(self.binding, field.name):
                what, remedy = _REMEDIES[field.name]
                raise ConfigError(
                    f"This --run_id belongs to an interrupted run, and {what} has changed since then; {remedy}, or "
                    "start over with another --run_id."
                )


def read_state(path: str) -> dict[str, NDArray]:
    """Reads arrays that a pipeline wrote for the launcher; raises InputError for another file."""
    rule = f"{path} must be the arrays that the last rounds wrote"
    return untrusted.read_arrays(path, Refusal(kind=InputError, rule=rule, remedy=_REMEDY))


class CheckpointFolder:
    """The checkpoint of one run; an older one is deleted once the next is on the disk.

    Args:
      folder: private, on any Beam filesystem; exists.
    """

    def __init__(self, folder: str):
        self._folder = folder

    def arrays_path(self, rounds: int) -> str:
        """Returns the path at which a pipeline writes the arrays after this many rounds."""
        return self._path(_arrays_name(rounds))

    def save(self, checkpoint: Checkpoint) -> None:
        """Makes a checkpoint the current one of the run; its arrays may already be at `arrays_path`."""
        name, content = _arrays_name(checkpoint.rounds), arrays_to_bytes(checkpoint.arrays)
        put_whole(self._path(name), content)
        manifest = {
            "rounds": checkpoint.rounds,
            "binding": dataclasses.asdict(checkpoint.binding),
            "plan": checkpoint.plan,
            "events": list(checkpoint.events),
            "extended": list(checkpoint.extended),
            "arrays": {"file": name, "sha256": hashlib.sha256(content).hexdigest()},
        }
        before = self._manifest()
        text = json.dumps(with_number(manifest, FORMAT), indent=2, sort_keys=True, allow_nan=False)
        put_whole(self._path(MANIFEST_FILE), text.encode())
        if before is not None and before.arrays.file != name:
            STORE.delete(self._path(before.arrays.file))

    def latest(self) -> Checkpoint | None:
        """Reads the current checkpoint of the run; None if there is none yet.

        Raises:
          InputError: if its files have changed since they were written.
        """
        manifest = self._manifest()
        if manifest is None:
            return None
        content = untrusted.read_bytes(self._path(manifest.arrays.file), self.refusal)
        if hashlib.sha256(content).hexdigest() != manifest.arrays.sha256:
            raise self.refusal.because("other arrays")
        if manifest.arrays.file != _arrays_name(manifest.rounds):
            raise self.refusal.because("arrays of another round")
        return Checkpoint(
            rounds=manifest.rounds,
            binding=manifest.binding,
            plan=manifest.plan,
            events=manifest.events,
            extended=tuple(manifest.extended),
            arrays=untrusted.arrays_of(content, self.refusal),
        )

    def older_version(self) -> str | None:
        """Returns the versions of Dapple that began the run if they wrote checkpoints of an older format; else None."""
        path = self._path(MANIFEST_FILE)
        if not STORE.exists(path):
            return None
        return _WRITERS.get(untrusted.read_json(path, _Number, self.refusal).format)

    def rounds(self) -> int:
        """Returns the number of recorded rounds; raises InputError for another file."""
        manifest = self._manifest()
        return 0 if manifest is None else manifest.rounds

    def clear(self) -> None:
        """Removes the checkpoint, the manifest first: what goes afterwards, a run that resumes would miss."""
        STORE.delete(self._path(MANIFEST_FILE))
        if stores.is_local(self._folder):
            new_file.flush(self._folder)
        STORE.delete(*(file.path for file in files_in(self._folder) if is_arrays(os.path.basename(file.path))))

    def _path(self, name: str) -> str:
        return join(self._folder, name)

    @property
    def refusal(self) -> Refusal:
        """The refusal of files that are not as they were written."""
        rule = f"{self._path(MANIFEST_FILE)} must be a checkpoint as it was written"
        return Refusal(kind=InputError, rule=rule, remedy=_REMEDY)

    def _manifest(self) -> _Content | None:
        path = self._path(MANIFEST_FILE)
        return untrusted.read_json(path, _Content, self.refusal) if STORE.exists(path) else None


def _arrays_name(rounds: int) -> str:
    return f"round-{rounds:06d}.npz"


def is_arrays(name: str) -> bool:
    """Returns whether a file of this name holds the arrays of a round."""
    return name.startswith("round-") and name.endswith(".npz")


def write_arrays(arrays: dict, path: str) -> None:
    """Writes the result of rounds to a file of `CheckpointFolder.arrays_path`.

    Raises PrivacyFlowError if a second run gives other arrays: the same key may have drawn noise for other sums.
    """
    content = arrays_to_bytes(arrays)
    if STORE.exists(path) and read_bytes(path) != content:
        raise PrivacyFlowError(
            "Repeating an interrupted round gave different results; use a machine of the same type and the versions "
            f"that the run began with, or {_REMEDY}."
        )
    put_whole(path, content)
