"""The seal of a file: what every opening of it is compared with, so that a job reads the files that it has listed.

A seal is private, as names and times of files are.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.yaml_text import is_torn
from dapple_dp.transforms.files import gate
from dapple_dp.transforms.files.formats.csv_file import ENDINGS, CsvFile, is_csv
from dapple_dp.transforms.files.stores import STORE, OpenedFile, StoredFile, is_local, local_path, open_store

if TYPE_CHECKING:
    from dapple_dp.transforms.files.formats.packed_rows import RowsFile

PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
_CHUNK = 1 << 22
_TAIL_BYTES = 8
"""Length of the footer, and the mark of a Parquet file."""
_MARK = b"PAR1"
_END_BYTES = 1 << 16
"""What stands for the footer of another file, at most."""


class FileSeal(NamedTuple):
    """Facts about a file without reading its rows.

    Attributes:
      size: bytes.
      changed: time of the last change as the filesystem gives it; empty if it gives none.
      footer: digest of the Parquet footer, or of the end of another file; empty in the listing of an object store,
        where it costs a request per file.
      content: SHA-256 of all bytes by the manifest of a prepared folder; empty of another file.
    """

    size: int
    changed: str
    footer: str = ""
    content: str = ""

    @property
    def text(self) -> str:
        """The seal as shards carry it."""
        return f"{self.size} {self.changed} {self.footer}" + (f" {self.content}" if self.content else "")

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Reads `text`; what no listing wrote gives a seal that no file has."""
        size, _, rest = text.partition(" ")
        changed, _, rest = rest.partition(" ")
        footer, _, content = rest.partition(" ")
        return cls(int(size) if size.isdecimal() else -1, changed, footer, content)

    def covers(self, found: "FileSeal") -> bool:
        """Whether a file that was found is the one that was listed."""
        same_footer = not self.footer or self.footer == found.footer
        return (self.size, self.changed) == (found.size, found.changed) and same_footer


def seal_of(path: str) -> FileSeal:
    """The whole seal of a file.

    Raises:
      InputError: if it is no regular file, or cannot be read.
    """
    with _opened(path, path) as (_, seal):
        return seal


@contextlib.contextmanager
def open_parquet(path: str) -> "Iterator[RowsFile]":
    """Opens a Parquet file that need not be listed, on any Beam filesystem.

    Raises:
      InputError: if it is no regular file, or no Parquet file.
    """
    with _opened(path, path) as (opened, _), gate.parquet_of(opened.source, _no_parquet(path)) as file:
        yield file


@contextlib.contextmanager
def open_sealed(file: str, seal: str, name: str, csv: str = "") -> Iterator[tuple[gate.RowFile, FileSeal]]:
    """Opens a file that was listed; arguments, result and errors as of `open_listed`, without the bytes."""
    with open_listed(file, seal, name, csv) as (parsed, found, _):
        yield parsed, found


@contextlib.contextmanager
def open_listed(file: str, seal: str, name: str, csv: str) -> Iterator[tuple[gate.RowFile, FileSeal, Any]]:
    """Opens a file that was listed, and compares it with its seal before it is read.

    It is compared once more afterwards, unless all its bytes are those that were compared, whatever is there then.

    Args:
      file: real path, on any Beam filesystem.
      seal: text of the seal that it was listed with.
      name: what messages call the file; says whether it is CSV.
      csv: text of the `CsvForm` of a CSV file.

    Yields:
      The file, its whole seal, and its bytes.

    Raises:
      InputError: if it is another file, or was changed.
    """
    with open_bytes(file, seal, name) as (source, found):
        parsed = gate.rows_of(source, name, refusal_of(name), csv)
        with contextlib.nullcontext() if isinstance(parsed, CsvFile) else parsed:
            yield parsed, found, source


def content_digest(file: str, seal: str, name: str) -> bytes:
    """SHA-256, 32 bytes, of all bytes of a file that was listed; arguments and errors as of `open_listed`."""
    with open_bytes(file, seal, name) as (source, _):
        return _content(source, name)


def check_content(source: Any, seal: str, name: str) -> None:
    """Compares all bytes of an open file with its seal, if that knows them.

    Args:
      source: bytes, as `open_listed` gives them.
      seal: text of the seal that the file was listed with.
      name: what messages call the file.

    Raises:
      InputError: if they are others.
    """
    expected = FileSeal.of_text(seal).content
    if expected and _content(source, name).hex() != expected:
        raise InputError(f"{name} must hold the bytes that prepare wrote, got others; run prepare again.")


def check_regular(path: str, setting: str) -> os.stat_result:
    """What a local disk says of a file; a pipe would keep a job waiting forever.

    Raises:
      InputError: if it is a pipe, a socket or a device, has a name that is no text, or cannot be read.
    """
    if is_torn(path):
        raise InputError(f"{setting} must name files and folders in UTF-8, got {path}; rename it.")
    try:
        found = os.stat(local_path(path))
    except OSError as error:
        raise InputError(f"{setting} must be readable, got {path}; check the path and the permissions.") from error
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{setting} must name regular files, got {path}, a pipe, socket or device; leave it out.")
    return found


@contextlib.contextmanager
def _opened(path: str, name: str) -> Iterator[tuple[OpenedFile, FileSeal]]:
    """A file, and its seal as it is now, or as it was when all its bytes were read."""
    try:
        if is_local(path):
            check_regular(path, name)
            # A path would be looked up among Arrow's own filesystems first, which takes longer than a small file.
            opened = OpenedFile(pa.OSFile(local_path(path)), None, fixed=False)
        else:
            opened = open_store(path)
    except (OSError, pa.ArrowException) as error:
        raise refusal_of(name).because() from error
    with opened.source as source:
        size, changed = opened.state or _state(path, source, name)
        if opened.fixed and source.seek(0, os.SEEK_END) != size:
            raise _changed(name)
        yield opened, FileSeal(size, changed, _footer_digest(source, size, name))


@contextlib.contextmanager
def open_bytes(file: str, seal: str, name: str) -> Iterator[tuple[Any, FileSeal]]:
    """The bytes of a file, compared with its seal before they are read, and afterwards if they may have changed.

    Arguments and errors are those of `open_listed`.

    Yields:
      The bytes, and the whole seal.
    """
    with _opened(file, name) as (opened, found):
        if not FileSeal.of_text(seal).covers(found):
            raise _changed(name)
        yield opened.source, found
        if not opened.fixed and _state(file, opened.source, name) != found[:2]:
            raise _changed(name)


def _content(source: Any, name: str) -> bytes:
    digest = hashlib.sha256()
    try:
        # A buffer of a whole chunk for a small file would cost more than the file.
        at_once = min(source.seek(0, os.SEEK_END) + 1, _CHUNK)
        source.seek(0)
        while chunk := source.read(at_once):
            digest.update(chunk)
    except (OSError, pa.ArrowException) as error:
        raise refusal_of(name).because() from error
    return digest.digest()


def _state(path: str, source: Any, name: str) -> StoredFile:
    """Size and time of change: of the open file on a disk, of the present object in a store."""
    try:
        if is_local(path):
            found = os.fstat(source.fileno())
            return StoredFile(found.st_size, str(found.st_mtime_ns))
        return STORE.stat(path)
    except OSError as error:
        raise refusal_of(name).because() from error


def _footer_digest(source: Any, size: int, name: str) -> str:
    """Digest of the last bytes of a file; those of a Parquet file say where everything in it is."""
    try:
        source.seek(max(size - _TAIL_BYTES, 0))
        tail = bytes(source.read(_TAIL_BYTES))
        length = int.from_bytes(tail[:4], "little") if tail[4:] == _MARK else _END_BYTES
        start = max(size - _TAIL_BYTES - length, 0)
        source.seek(start)
        footer = bytes(source.read(size - start))
        source.seek(0)
    except (OSError, pa.ArrowException) as error:
        raise refusal_of(name).because() from error
    return hashlib.blake2b(footer, digest_size=16).hexdigest()


def refusal_of(name: str) -> Refusal:
    """The refusal of a file that cannot be read."""
    if not is_csv(name):
        return _no_parquet(name)
    return Refusal(kind=InputError, rule=f"{name} must be a readable CSV file", remedy="check the file or leave it out")


def _no_parquet(name: str) -> Refusal:
    """The refusal of a file that is no Parquet file."""
    called = "" if name.endswith(PARQUET_ENDINGS) else f", and end the name of a CSV file in {', '.join(ENDINGS)}"
    rule = f"{name} must be a readable Parquet file"
    return Refusal(kind=InputError, rule=rule, remedy=f"check the file or leave it out{called}")


def _changed(name: str) -> InputError:
    return InputError(
        f"{name} must stay as it was when the job listed its files, got another content, size or time of change; "
        "run the job again when nobody writes to it."
    )
