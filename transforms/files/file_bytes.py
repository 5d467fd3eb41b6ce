"""Whole files as bytes on any Beam filesystem, tables as bytes of Parquet, and listings of what workers write."""

import io
import json
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.schemas.privacy.release_table import releases_to_table
from dapple_dp.schemas.settings.format_number import FORMAT, METADATA
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import Digest, FileName
from dapple_dp.transforms.files import new_file, untrusted
from dapple_dp.transforms.files.stores import STORE, ListedFile, is_local, join

LISTING_FILE = "files.json"


def write_bytes(path: str, content: bytes) -> None:
    """Writes a whole file; on a local disk it and its name are durable on return."""
    STORE.put(path, content)


def put_whole(path: str, content: bytes, mode: int = 0o600) -> None:
    """Puts a file into place, or replaces one: on a disk by a flush and a rename, in an object store as one object.

    Args:
      path: durable on a local disk on return.
      content: of the file.
      mode: of a local file, by default for its owner only.
    """
    if is_local(path):
        new_file.put_in_place(path, content, mode)
    else:
        STORE.put(path, content)


def read_bytes(path: str) -> bytes:
    """Reads a whole file to be hashed or compared; files whose content is parsed are read by `untrusted`."""
    return STORE.get(path)


def make_folder(path: str) -> None:
    """Creates a folder, on a local disk for its owner only; an existing one is no error."""
    STORE.make_folder(path, 0o700)


def files_in(folder: str, ending: str = "") -> list[ListedFile]:
    """Returns the files in a folder (not in its subfolders) whose names end with `ending`, sorted."""
    inside = folder.rstrip("/") + "/"
    return sorted(
        file
        for file in STORE.list(inside)
        if "/" not in file.path.removeprefix(inside) and file.path.removeprefix(inside).endswith(ending)
    )


def remove_files(prefix: str, only: Callable[[str], bool] = lambda _: True) -> None:
    """Removes files whose paths begin with `prefix`, if they can be listed; on a store, a folder is a part of names.

    Args:
      prefix: of their paths.
      only: called with the rest of a path; returns whether to remove the file.
    """
    try:
        paths = [file.path for file in STORE.list(prefix) if only(file.path.removeprefix(prefix))]
    except OSError:
        return
    STORE.delete(*paths)


def write_once(path: str, content: bytes, *, private: bool = False) -> None:
    """Writes a whole file, durable on a local disk; an existing file must have the same content.

    Args:
      path: on any Beam filesystem.
      content: of the file.
      private: True if only its owner may read a local file.

    Raises:
      ProtocolError: if the file exists with other content.
      ConfigError: if the place can't tell which writer was first.
    """
    try:
        if is_local(path):
            new_file.make_folders(os.path.dirname(path))
            new_file.link_in_place(path, content, 0o600 if private else 0o666)
        else:
            STORE.put_new(path, content)
    except FileExistsError:
        rule, remedy = f"{path} must be written once", "a mask covers one message only, so open a new run"
        refusal = Refusal(kind=ProtocolError, rule=rule, remedy=remedy)
        if untrusted.read_bytes(path, refusal, len(content)) != content:
            raise refusal.because("other content for it") from None


def table_bytes(table: pa.Table, *, repeating: bool = True) -> bytes:
    """Returns a table as a Parquet file with the number of the format; equal tables give equal bytes.

    Args:
      table: any.
      repeating: False if values hardly repeat: a dictionary of millions of them takes a tenfold of the time.
    """
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    metadata = (table.schema.metadata or {}) | {METADATA: str(FORMAT)}
    pq.write_table(table.replace_schema_metadata(metadata), buffer, use_dictionary=repeating)
    return buffer.getvalue()


def releases_bytes(releases: Sequence[Release]) -> bytes:
    """Returns the content of `releases.parquet`."""
    return table_bytes(releases_to_table(list(releases)), repeating=False)


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
    """Returns the files that a pipeline wrote, by the listing `LISTING_FILE` in a folder; removes the listing.

    Raises:
      ConfigError: if the launcher can't see the listing.
    """
    listing = join(folder, LISTING_FILE)
    rule = "--output must be a folder that the workers and the launcher share"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="choose another place")
    found = untrusted.read_json(listing, list[tuple[FileName, Digest]], refusal)
    STORE.delete(listing)
    return [WrittenFile(*entry) for entry in found]
