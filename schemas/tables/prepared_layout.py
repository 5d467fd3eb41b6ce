"""The client-sharded layout: what marks its files, and the manifest that is written after all of them.

Rows are sharded by client, sorted by client in each file, and no client crosses a row group, except that a client
larger than a row group has a run of row groups of its own.
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
"""Key-value metadata of a prepared file: how many row groups belong together, as a JSON list."""


class PreparedFile(NamedTuple):
    """One file of a prepared data set.

    Attributes:
      name: in the folder.
      n_rows: private, as is everything here.
      n_bytes: size of the file.
      sha256: of its content, 64 hex digits.
    """

    name: FileName
    n_rows: Annotated[int, Field(ge=0)]
    n_bytes: Annotated[int, Field(ge=0)]
    sha256: Digest


class PreparedManifest(FileContent):
    """What a prepared folder says of itself; private to the trusted zone like its files.

    Attributes:
      client_id: column that names the client.
      features: names of scalar columns, or of one list column.
      max_rows_per_client: the bound that was applied to every client; None if there was none.
      files: sorted by name.
      snapshot: of the table that the rows were taken from; None if it has none.
    """

    client_id: str = Field(min_length=1)
    features: str | Annotated[tuple[str, ...], Field(min_length=1)]
    max_rows_per_client: Annotated[int, Field(ge=1)] | None
    files: tuple[PreparedFile, ...]
    snapshot: Snapshot | None = None

    def to_json(self) -> str:
        """Text of `manifest.json`."""
        marks = {"layout": LAYOUT, "files_digest": _files_digest(self)}
        content = with_number(self.model_dump(mode="json", exclude={"files"}) | marks)
        content["files"] = [each._asdict() for each in self.files]
        return json.dumps(content, indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: bytes | str, where: str) -> "PreparedManifest":
        """Reads `to_json`'s text.

        Args:
          text: JSON.
          where: names it in messages.

        Raises:
          InputError: if it is not a whole manifest of this layout.
        """
        refusal = Refusal(
            kind=InputError, rule=f"{where} must be a manifest that prepare wrote", remedy="run prepare again"
        )
        content = parse_as(text, _Content, refusal)
        if (content.layout, content.files_digest) != (LAYOUT, _files_digest(content)):
            raise InputError(
                f"{where} must be an unchanged manifest of layout {LAYOUT}, got another; run prepare again."
            )
        return PreparedManifest(**{name: getattr(content, name) for name in PreparedManifest.model_fields})

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


class _Content(PreparedManifest):
    format: FormatNumber
    layout: str
    files_digest: Digest


def _files_digest(manifest: PreparedManifest) -> str:
    return hashlib.sha256(json.dumps([list(each) for each in manifest.files]).encode()).hexdigest()


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
    runs = parse_as(text, list[Annotated[int, Field(ge=1)]], refusal)
    if sum(runs) != n_row_groups:
        raise refusal.because("others")
    return runs
