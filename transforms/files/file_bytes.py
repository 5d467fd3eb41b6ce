"""Whole files as bytes on any Beam filesystem, tables as bytes of Parquet, and listings of what workers write."""

import io
import json
import os
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError
from schemas.settings.format_number import FORMAT, METADATA
from schemas.settings.refusal import Refusal
from schemas.settings.run_manifest import Digest, FileName
from transforms.files import gate, new_file, stores

LISTING_FILE = "files.json"


stores.share_clients()


def write_bytes(path: str, content: bytes) -> None:
    """Writes a whole file on any Beam filesystem; on a local disk it and its name are durable on return."""
    if stores.is_local(path):
        new_file.make_folders(os.path.dirname(path))
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(content)
    if stores.is_local(path):
        new_file.flush(path)
        new_file.flush(os.path.dirname(path))


def read_bytes(path: str) -> bytes:
    """Bytes of a whole file that are hashed or compared; a file that is believed is read by `gate`."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return bytes(file.read())


def make_folder(path: str) -> None:
    """Makes a folder, on a local disk for its owner only; one that is there is no error."""
    if stores.is_local(path):
        new_file.make_folders(path, 0o700)
    elif not FileSystems.exists(path):
        FileSystems.mkdirs(path)


def remove_files(pattern: str) -> None:
    """Removes all files of a pattern on a store, where a folder is no more than a part of names."""
    try:
        found = [each.path for each in FileSystems.match([pattern])[0].metadata_list]
    except BeamIOError:
        return
    if found:
        FileSystems.delete(found)


def table_bytes(table: pa.Table) -> bytes:
    """A table as a Parquet file with the number of the format; equal tables give equal bytes."""
    buffer = io.BytesIO()
    metadata = (table.schema.metadata or {}) | {METADATA: str(FORMAT)}
    pq.write_table(table.replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


class WrittenFile(NamedTuple):
    """A file in a folder.

    Attributes:
      name: in its folder.
      digest: SHA-256 of its content, 64 hex digits.
    """

    name: str
    digest: str


def write_listing(files: list[WrittenFile], path: str) -> None:
    """Writes names and digests of files, sorted by name, as JSON."""
    write_bytes(path, json.dumps(sorted(files)).encode())


def written_files(folder: str) -> list[WrittenFile]:
    """Files that a pipeline wrote, by the listing `LISTING_FILE` in a folder, which is removed.

    Raises:
      ConfigError: if the launcher cannot see the listing.
    """
    listing = FileSystems.join(folder, LISTING_FILE)
    rule = "--output must be a folder that workers and launcher share"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="choose another place")
    found = gate.read_json(listing, list[tuple[FileName, Digest]], refusal)
    FileSystems.delete([listing])
    return [WrittenFile(*entry) for entry in found]
