"""Whole files as bytes on any Beam filesystem, tables as bytes of Parquet, and listings of what workers write."""

import io
import json
import os
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.schemas.settings.format_number import FORMAT, METADATA
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import Digest, FileName
from dapple_dp.transforms.files import gate, new_file
from dapple_dp.transforms.files.stores import STORE, ListedFile, is_local, join

LISTING_FILE = "files.json"


def write_bytes(path: str, content: bytes) -> None:
    """Writes a whole file; on a local disk it and its name are durable on return."""
    STORE.put(path, content)


def read_bytes(path: str) -> bytes:
    """Bytes of a whole file that are hashed or compared; a file that is believed is read by `gate`."""
    return STORE.get(path)


def make_folder(path: str) -> None:
    """Makes a folder, on a local disk for its owner only; one that is there is no error."""
    STORE.make_folder(path, 0o700)


def files_in(folder: str, ending: str = "") -> list[ListedFile]:
    """Files in a folder, not in those below it, whose names end like this; sorted."""
    inside = folder.rstrip("/") + "/"
    return sorted(
        file
        for file in STORE.list(inside)
        if "/" not in file.path.removeprefix(inside) and file.path.removeprefix(inside).endswith(ending)
    )


def remove_files(prefix: str, only: Callable[[str], bool] = lambda _: True) -> None:
    """Removes files whose paths begin like this, where they can be listed; a folder is a part of names on a store.

    Args:
      prefix: of their paths.
      only: called with the rest of a path; whether the file goes.
    """
    try:
        found = [file.path for file in STORE.list(prefix) if only(file.path.removeprefix(prefix))]
    except OSError:
        return
    STORE.delete(*found)


def write_once(path: str, content: bytes, *, private: bool = False) -> None:
    """Writes a file whole, durable on a local disk; one that is there already must be its equal.

    Args:
      path: on any Beam filesystem.
      content: of the file.
      private: whether a local file is for its owner only.

    Raises:
      ProtocolError: if something else is there.
      ConfigError: if the place cannot tell who was first.
    """
    try:
        if is_local(path):
            new_file.make_folders(os.path.dirname(path))
            new_file.link_in_place(path, content, 0o600 if private else 0o666)
        else:
            STORE.put_new(path, content)
    except FileExistsError:
        rule, remedy = f"{path} must be written once", "a mask covers one message only"
        refusal = Refusal(kind=ProtocolError, rule=rule, remedy=remedy)
        if gate.read_bytes(path, refusal, len(content)) != content:
            raise refusal.because("other content for it") from None


def table_bytes(table: pa.Table) -> bytes:
    """A table as a Parquet file with the number of the format; equal tables give equal bytes."""
    import pyarrow.parquet as pq

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
    listing = join(folder, LISTING_FILE)
    rule = "--output must be a folder that workers and launcher share"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="choose another place")
    found = gate.read_json(listing, list[tuple[FileName, Digest]], refusal)
    STORE.delete(listing)
    return [WrittenFile(*entry) for entry in found]
