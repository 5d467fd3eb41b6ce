"""The client-sharded layout: metadata of its files, and the manifest that is written after all of them.

Rows are sharded by client and sorted by client in each file. No client is in two row groups, unless it is larger than
a row group: it then has several row groups to itself.
"""

import hashlib
import json
from typing import Annotated, NamedTuple

from pydantic import Field

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.json_schema import FileContent, FormatNumber, parse_as
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import Digest, FileName
from dapple_dp.schemas.tables.snapshot import Snapshot

LAYOUT = "client-sharded"
MANIFEST_FILE = "manifest.json"
RUNS_KEY = b"dapple.runs"
"""Metadata key of a prepared file: sizes of the runs of row groups that belong together, as a JSON list."""


class PreparedFile(NamedTuple):
    """One file of a prepared data set.

    Attributes:
      name: path within the folder.
      n_rows: private, like everything in this class.
      n_bytes: size of the file.
      sha256: SHA-256 of its content, 64 hex digits.
    """

    name: FileName
    n_rows: Annotated[int, Field(ge=0)]
    n_bytes: Annotated[int, Field(ge=0)]
    sha256: Digest


class PreparedManifest(FileContent):
    """Manifest of a prepared folder; private to the trusted zone like its files.

    Attributes:
      client_id: column that identifies the client.
      features: names of scalar columns, or of one list column.
      max_rows_per_client: limit that was applied to every client; None if there was none.
      files: sorted by name.
      snapshot: snapshot of the table that the rows come from; None if it has none.
    """

    client_id: str = Field(min_length=1)
    features: str | Annotated[tuple[str, ...], Field(min_length=1)]
    max_rows_per_client: Annotated[int, Field(ge=1)] | None
    files: tuple[PreparedFile, ...]
    snapshot: Snapshot | None = None

    def to_json(self) -> str:
        """Returns the text of `manifest.json`."""
        marks = {"layout": LAYOUT, "files_digest": _files_digest(self)}
        content = with_number(self.model_dump(mode="json", exclude={"files"}) | marks)
        content["files"] = [file._asdict() for file in self.files]
        return json.dumps(content, indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: bytes | str, where: str) -> "PreparedManifest":
        """Inverse of `to_json`.

        Args:
          text: JSON.
          where: name of the file in messages.

        Raises:
          InputError: if it isn't a complete manifest of this layout.
        """
        refusal = Refusal(
            kind=InputError, rule=f"{where} must be a manifest that prepare wrote", remedy="run prepare again"
        )
        content = parse_as(text, _Content, refusal)
        if (content.layout, content.files_digest) != (LAYOUT, _files_digest(content)):
            raise InputError(f"{where} was changed, or its layout isn't {LAYOUT}; run prepare again.")
        return PreparedManifest(**{name: getattr(content, name) for name in PreparedManifest.model_fields})

    def check_files(self, sizes: dict[str, int], where: str) -> None:
        """Checks that a folder holds the listed files with the listed sizes, and no others.

        Args:
          sizes: bytes of each Parquet file in the folder, by name.
          where: name of the folder in messages.

        Raises:
          InputError: if it doesn't.
        """
        if sizes != {file.name: file.n_bytes for file in self.files}:
            raise InputError(f"{where} must hold the files that its manifest lists, got others; run prepare again.")


class _Content(PreparedManifest):
    format: FormatNumber
    layout: str
    files_digest: Digest


def _files_digest(manifest: PreparedManifest) -> str:
    return hashlib.sha256(json.dumps([list(file) for file in manifest.files]).encode()).hexdigest()


def encode_runs(runs: list[int]) -> bytes:
    """Returns the value of the metadata key `RUNS_KEY`."""
    return json.dumps(runs, separators=(",", ":")).encode()


def decode_runs(metadata: dict[bytes, bytes] | None, n_row_groups: int, where: str) -> list[int]:
    """Returns the sizes of runs of row groups that belong together; ones for a file without this metadata.

    Raises:
      InputError: if the metadata contradicts the file.
    """
    text = (metadata or {}).get(RUNS_KEY)
    if text is None:
        return [1] * n_row_groups
    rule = f"{where} must have as many row groups as its metadata say"
    refusal = Refusal(kind=InputError, rule=rule, remedy="run prepare again")
    runs = parse_as(text, list[Annotated[int, Field(ge=1)]], refusal)
    if sum(runs) != n_row_groups:
        raise refusal.because("others")
    return runs
