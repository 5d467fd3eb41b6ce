"""The seal of a file: compared at every opening, so that a job reads the files that it has listed.

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
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.formats.csv_file import ENDINGS, CsvFile, is_csv
from dapple_dp.transforms.files.stores import STORE, OpenedFile, StoredFile, is_local, local_path, open_store

if TYPE_CHECKING:
    from dapple_dp.transforms.files.formats.packed_rows import RowsFile

PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
_CHUNK = 1 << 22
_TAIL_BYTES = 8
"""Length of the footer, and the magic bytes of a Parquet file."""
_MARK = b"PAR1"
_END_BYTES = 1 << 16
"""Most bytes at the end of another file that are digested in place of a footer."""


class FileSeal(NamedTuple):
    """Facts about a file that need no reading of its rows.

    Attributes:
      size: bytes.
      changed: time of the last change, from the filesystem; empty if it gives none.
      footer: digest of the Parquet footer, or of the end of another file; empty in the listing of an object store,
        since it would cost a request per file.
      content: SHA-256 of all bytes, from the manifest of a prepared folder; empty for other files.
    """

    size: int
    changed: str
    footer: str = ""
    content: str = ""

    @property
    def text(self) -> str:
        """The seal as text, for shards."""
        return f"{self.size} {self.changed} {self.footer}" + (f" {self.content}" if self.content else "")

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Parses `text`; an invalid text gives a seal that no file has."""
        size, _, rest = text.partition(" ")
        changed, _, rest = rest.partition(" ")
        footer, _, content = rest.partition(" ")
        return cls(int(size) if size.isdecimal() else -1, changed, footer, content)

    def covers(self, found: "FileSeal") -> bool:
        """Returns whether a file that was found is the one that was listed."""
        same_footer = not self.footer or self.footer == found.footer
        return (self.size, self.changed) == (found.size, found.changed) and same_footer


def seal_of(path: str) -> FileSeal:
    """Computes the full seal of a file.

    Raises:
      InputError: if it isn't a regular file, or can't be read.
    """
    with _opened(path, path) as (_, seal):
        return seal


@contextlib.contextmanager
def open_parquet(path: str) -> "Iterator[RowsFile]":
    """Opens a Parquet file that need not be listed, on any Beam filesystem.

    Raises:
      InputError: if it isn't a regular file, or isn't Parquet.
    """
    with _opened(path, path) as (opened, _), untrusted.parquet_of(opened.source, _no_parquet(path)) as file:
        yield file


@contextlib.contextmanager
def open_sealed(file: str, seal: str, name: str, csv: str = "") -> Iterator[tuple[untrusted.RowFile, FileSeal]]:
    """Opens a file that was listed; as `open_listed`, without the bytes."""
    with open_listed(file, seal, name, csv) as (parsed, found, _):
        yield parsed, found


@contextlib.contextmanager
def open_listed(file: str, seal: str, name: str, csv: str) -> Iterator[tuple[untrusted.RowFile, FileSeal, Any]]:
    """Opens a file that was listed, and compares it with its seal before it is read.

    It is compared once more afterwards, unless all of its bytes were in memory for the first comparison.

    Args:
      file: real path, on any Beam filesystem.
      seal: text of the seal that it was listed with.
      name: name in messages; its ending shows whether the file is CSV.
      csv: text of the `CsvForm` of a CSV file.

    Yields:
      The file, its whole seal, and its bytes.

    Raises:
      InputError: if it is another file, or has changed.
    """
    with open_bytes(file, seal, name) as (source, found):
        parsed = untrusted.rows_of(source, name, refusal_of(name), csv)
        with contextlib.nullcontext() if isinstance(parsed, CsvFile) else parsed:
            yield parsed, found, source


def content_digest(file: str, seal: str, name: str) -> bytes:
    """Returns the SHA-256, 32 bytes, of all bytes of a listed file; arguments and errors as in `open_listed`."""
    with open_bytes(file, seal, name) as (source, _):
        return _content(source, name)


def check_content(source: Any, seal: str, name: str) -> None:
    """Compares all bytes of an open file with its seal, if the seal has their digest.

    Args:
      source: bytes, as `open_listed` gives them.
      seal: text of the seal that the file was listed with.
      name: name of the file in messages.

    Raises:
      InputError: if they differ.
    """
    expected = FileSeal.of_text(seal).content
    if expected and _content(source, name).hex() != expected:
        raise InputError(f"{name} was changed after prepare wrote it; run prepare again.")


def check_regular(path: str, setting: str) -> os.stat_result:
    """Returns the state of a file on a local disk; refuses a pipe, for which a job would wait forever.

    Raises:
      InputError: if it is a pipe, a socket or a device, has a name that isn't UTF-8, or can't be read.
    """
    if is_torn(path):
        raise InputError(f"{setting} must name files and folders in UTF-8, got {path}; rename it.")
    try:
        result = os.stat(local_path(path))
    except OSError as error:
        place = path if path == setting else f"{path} ({setting})"
        raise InputError(f"{place} could not be read; check the path and the permissions.") from error
    if not stat.S_ISREG(result.st_mode):
        raise InputError(f"{setting} must name regular files, and {path} is a pipe, socket or device; leave it out.")
    return result


@contextlib.contextmanager
def _opened(path: str, name: str) -> Iterator[tuple[OpenedFile, FileSeal]]:
    """Opens a file; yields it with its seal, as of now or of the time when all its bytes were read."""
    try:
        if is_local(path):
            check_regular(path, name)
            # Given a path, Arrow would search its filesystems first, which takes longer than a small file.
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
    """Opens the bytes of a file and compares them with its seal, and again afterwards if they may have changed.

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
    """Returns size and time of change: of the open file on a disk, of the present object on a store."""
    try:
        if is_local(path):
            found = os.fstat(source.fileno())
            return StoredFile(found.st_size, str(found.st_mtime_ns))
        return STORE.stat(path)
    except OSError as error:
        raise refusal_of(name).because() from error


def _footer_digest(source: Any, size: int, name: str) -> str:
    """Returns a digest of the last bytes of a file; in a Parquet file they locate all of its content."""
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
    """Creates the refusal of a file that can't be read."""
    if not is_csv(name):
        return _no_parquet(name)
    return Refusal(kind=InputError, rule=f"{name} must be a readable CSV file", remedy="check the file or leave it out")


def _no_parquet(name: str) -> Refusal:
    """Creates the refusal of a file that isn't Parquet."""
    called = "" if name.endswith(PARQUET_ENDINGS) else f", and end the name of a CSV file in {', '.join(ENDINGS)}"
    rule = f"{name} must be a readable Parquet file"
    return Refusal(kind=InputError, rule=rule, remedy=f"check the file or leave it out{called}")


def _changed(name: str) -> InputError:
    return InputError(
        f"{name} was changed after the job listed it (content, size or modification time); run the job again when "
        "nobody writes to it."
    )
