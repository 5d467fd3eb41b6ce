"""The client-sharded layout: what marks its files, and the manifest that is written after all of them.

Rows are sharded by client, sorted by client in each file, and no client crosses a row group, except that a client
larger than a row group has a run of row groups of its own.
"""

import dataclasses
import hashlib
import json
from typing import Annotated, NamedTuple, Self

from pydantic import Field

from schemas.errors import InputError
from schemas.settings.json_schema import FileContent, parsed
from schemas.settings.refusal import Refusal
from schemas.settings.run_manifest import Digest, FileName
from schemas.tables.snapshot import Snapshot

LAYOUT = "client-sharded"
LAYOUT_VERSION = 1
MANIFEST_FILE = "manifest.json"
RUNS_KEY = b"dapple.runs"
"""Key-value metadata of a prepared file: how many row groups belong together, as a JSON list."""


class PreparedFile(NamedTuple):
    """One file of a prepared data set.

    Attributes:
      name: in the folder.
      n_rows: private, as is everything here.
      n_bytes: size of the file.
      sha256: of its content, 64 hex digits.
    """

    name: str
    n_rows: int
    n_bytes: int
    sha256: str


class _FileContent(FileContent):
    """A `PreparedFile` in `manifest.json`."""

    name: FileName
    n_rows: int = Field(ge=0)
    n_bytes: int = Field(ge=0)
    sha256: Digest


class _SnapshotContent(FileContent):
    """A `Snapshot` in `manifest.json`."""

    format: str
    version: int


class _Content(FileContent):
    """All of `manifest.json`."""

    layout: str
    version: int
    files_digest: Digest
    client_id: str = Field(min_length=1)
    features: str | Annotated[list[str], Field(min_length=1)]
    max_rows_per_client: Annotated[int, Field(ge=1)] | None
    files: list[_FileContent]
    snapshot: _SnapshotContent | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreparedManifest:
    """What a prepared folder says of itself; private to the trusted zone like its files.

    Attributes:
      client_id: column that names the client.
      features: names of scalar columns, or of one list column.
      max_rows_per_client: the bound that was applied to every client; None if there was none.
      files: sorted by name.
      snapshot: of the table that the rows were taken from; None if it has none.
    """

    client_id: str
    features: str | tuple[str, ...]
    max_rows_per_client: int | None
    files: tuple[PreparedFile, ...]
    snapshot: Snapshot | None = None

    def to_json(self) -> str:
        """Text of `manifest.json`."""
        content = {
            "layout": LAYOUT,
            "version": LAYOUT_VERSION,
            "client_id": self.client_id,
            "features": self.features,
            "max_rows_per_client": self.max_rows_per_client,
            "files": [each._asdict() for each in self.files],
            "files_digest": self.files_digest,
            "snapshot": None if self.snapshot is None else self.snapshot.to_json(),
        }
        return json.dumps(content, indent=2, sort_keys=True)

    @property
    def files_digest(self) -> str:
        """SHA-256 of the list of files with sizes and digests, 64 hex digits."""
        return hashlib.sha256(json.dumps([list(each) for each in self.files]).encode()).hexdigest()

    @classmethod
    def from_json(cls, text: bytes | str, where: str) -> Self:
        """Reads `to_json`'s text.

        Args:
          text: JSON.
          where: names it in messages.

        Raises:
          InputError: if it is not a whole manifest of this layout and version.
        """
        refusal = Refusal(
            kind=InputError, rule=f"{where} must be a manifest that prepare wrote", remedy="run prepare again"
        )
        content = parsed(text, _Content, refusal)
        marks = content.layout, content.version, content.files_digest
        with refusal.covers():
            manifest = cls(
                client_id=content.client_id,
                features=content.features if isinstance(content.features, str) else tuple(content.features),
                max_rows_per_client=content.max_rows_per_client,
                files=tuple(PreparedFile(**dict(each)) for each in content.files),
                snapshot=None if content.snapshot is None else Snapshot.from_json(dict(content.snapshot)),
            )
        if marks != (LAYOUT, LAYOUT_VERSION, manifest.files_digest):
            raise InputError(
                f"{where} must be an unchanged manifest of layout {LAYOUT}, version {LAYOUT_VERSION}, got another; "
                "run prepare again."
            )
        return manifest

    def check_files(self, sizes: dict[str, int], where: str) -> None:
        """Checks that a folder holds the listed files, of the listed sizes, and no others.

        Args:
          sizes: bytes of each Parquet file found, by name.
          where: the folder, for messages.

        Raises:
          InputError: if it does not.
        """
        if sizes != {each.name: each.n_bytes for each in self.files}:
            raise InputError(f"{where} must hold the files of its manifest, got others; run prepare again.")


def encode_runs(runs: list[int]) -> bytes:
    """Value of the metadata `RUNS_KEY`."""
    return json.dumps(runs, separators=(",", ":")).encode()


def decode_runs(metadata: dict[bytes, bytes] | None, n_row_groups: int, where: str) -> list[int]:
    """Numbers of successive row groups that belong together; ones for a file that says nothing.

    Raises:
      InputError: if the metadata contradict the file.
    """
    text = (metadata or {}).get(RUNS_KEY)
    if text is None:
        return [1] * n_row_groups
    rule = f"{where} must have as many row groups as its metadata say"
    refusal = Refusal(kind=InputError, rule=rule, remedy="run prepare again")
    runs = parsed(text, list[Annotated[int, Field(ge=1)]], refusal)
    if sum(runs) != n_row_groups:
        raise refusal.because("others")
    return runs
