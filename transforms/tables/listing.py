"""Lists the files of a job once: on the launcher's disk first, then in a file that all graphs of the job read.

Workers find rows by it, and the digests of all bytes. A listing is private, like the names of files. Even for many
files, neither a graph nor the launcher's memory holds their names: a graph knows only the place of the
listing and its digest.
"""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.data_section import CsvForm
from dapple_dp.schemas.tables.prepared_layout import PreparedManifest
from dapple_dp.transforms.files.formats.csv_file import is_csv
from dapple_dp.transforms.files.stores import STORE, is_local, local_path
from dapple_dp.transforms.tables.file_seal import FileSeal, check_regular, content_digest, seal_of

_READERS = 8
_AT_ONCE = 512
_CHUNK = 1 << 20
_CACHE_KIB = 1 << 16
"""Kibibytes of a long list that the launcher holds in memory at most."""


class FoundFile(NamedTuple):
    """A file that was found, before it is listed.

    Attributes:
      path: as spelled; folders in it may name partitions.
      size: bytes, from a filesystem that isn't a local disk.
      changed: time of the last change, from such a filesystem.
    """

    path: str
    size: int = 0
    changed: str = ""


class ListedFile(NamedTuple):
    """A file of a listing.

    Attributes:
      path: as spelled, for messages and for the folders in it.
      file: the real path that is opened, without links, so that links may be moved later.
      seal: text of its `FileSeal`.
      csv: text of the `CsvForm` of a CSV file.
    """

    path: str
    file: str
    seal: str
    csv: str = ""


class Listing(NamedTuple):
    """Reference to a job's listing, for graphs.

    Attributes:
      path: of the file that holds the listing, in the private staging folder.
      digest: SHA-256 of that file, 64 hex digits.
    """

    path: str
    digest: str


class FileList:
    """Files of a job, ordered by path, each under one name; on a disk if they are many.

    Args:
      setting: that named them, for messages.
      manifest: of a folder that `prepare` wrote; None for others.
      csv: text of the `CsvForm` of its CSV files.
    """

    def __init__(self, setting: str, manifest: PreparedManifest | None = None, csv: str = ""):
        import sqlite3

        self.manifest = manifest
        self._csv = csv
        self._setting = setting
        # A database without a name is a temporary file of SQLite: in memory while it is small, and deleted with it.
        self._rows = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._rows.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._rows.execute("CREATE TABLE files (path BLOB PRIMARY KEY, file BLOB, seal TEXT, real TEXT UNIQUE)")

    @classmethod
    def of(
        cls, found: Iterable[FoundFile], setting: str, manifest: PreparedManifest | None = None, csv: str = ""
    ) -> "FileList":
        """Lists files; the seals of those on a local disk have the digests of their footers.

        Args:
          found: in any order.
          setting: that named them, for messages.
          manifest: of the folder, if `prepare` wrote it.
          csv: text of the `CsvForm` of CSV files.

        Raises:
          InputError: if one isn't a regular file, or two are the same file under two names.
        """
        files = cls(setting, manifest, csv)
        contents = {} if manifest is None else {each.name: each.sha256 for each in manifest.files}
        files._rows.execute("BEGIN")
        rest = iter(found)
        with concurrent.futures.ThreadPoolExecutor(_READERS) as pool:
            while chunk := list(itertools.islice(rest, _AT_ONCE)):
                looked = [_looked_at(each, setting) for each in chunk]
                each = pool.map if len(looked) > 2 * _READERS else map
                for (path, *_), (real, file, _), seal in zip(chunk, looked, each(_sealed, looked), strict=True):
                    whole = seal._replace(content=contents.get(os.path.basename(path), ""))
                    files._add(ListedFile(path, file, whole.text), real)
        files._rows.execute("COMMIT")
        return files

    @property
    def sampled(self) -> bool:
        """True if the manifest says that rows of clients were left out."""
        return self.manifest is not None and self.manifest.max_rows_per_client is not None

    def check_csv(self) -> None:
        """Refuses settings for CSV files if no file is one; call it on the files of the settings' section."""
        says = self._csv and dataclasses.replace(CsvForm.of_text(self._csv), lenient=False).text
        if says and len(self) and not any(is_csv(each.path) for each in self):
            raise InputError(
                f"{self._setting.removesuffix('.path')}.csv is set, but {self.first.path} and the other files are not "
                "CSV; remove the section, or name other files."
            )

    def _add(self, listed: ListedFile, real: str) -> None:
        """Adds a file that was looked at."""
        import sqlite3

        row = (os.fsencode(listed.path), os.fsencode(listed.file), listed.seal, real)
        try:
            self._rows.execute("INSERT INTO files VALUES (?, ?, ?, ?)", row)
        except sqlite3.IntegrityError:
            self._refuse_second_name(listed.path, real)

    def _refuse_second_name(self, path: str, real: str) -> None:
        """Refuses a file that is listed already, unless it is listed under the same name."""
        (other,) = self._rows.execute("SELECT path FROM files WHERE real = ?", (real,)).fetchone() or (b"",)
        if not other:
            raise InputError(f"{path} was changed while the job listed its files; run it again.")
        if os.fsdecode(other) != path:
            raise InputError(
                f"{self._setting} names one file twice, as {path} and {os.fsdecode(other)}, so its rows would count "
                "twice; remove one of the names."
            )

    def __iter__(self) -> Iterator[ListedFile]:
        """Yields all files, by path."""
        return self._ordered("path")

    def by_file(self) -> Iterator[ListedFile]:
        """Yields all files, by their real paths followed by a tab, byte by byte; sorted on a disk if they are many."""
        return self._ordered("CAST(file || x'09' AS BLOB)")

    def _ordered(self, key: str) -> Iterator[ListedFile]:
        for path, file, seal in self._rows.execute(f"SELECT path, file, seal FROM files ORDER BY {key}"):
            yield ListedFile(os.fsdecode(path), os.fsdecode(file), seal, self._csv)

    def __len__(self) -> int:
        return int(self._rows.execute("SELECT count(*) FROM files").fetchone()[0])

    @property
    def first(self) -> ListedFile:
        """The first file, which must exist."""
        return next(iter(self))

    def common(self, paths: Iterable[str]) -> tuple[str, str] | None:
        """Returns a path and the listed file that it is another name of; None if there is none."""
        for path in paths:
            row = self._rows.execute("SELECT path FROM files WHERE real = ?", (_identity(path)[0],)).fetchone()
            if row is not None:
                return path, os.fsdecode(row[0])
        return None

    def copied(self, found: Iterable[FoundFile]) -> tuple[str, str] | None:
        """Returns a file and a listed file with the same bytes; None if there is none.

        All bytes are read only if two files have the same size and footer.
        """
        others: dict[int, list[ListedFile]] = {}
        for path, file, seal in _looked_at_all(found):
            others.setdefault(seal.size, []).append(ListedFile(path, file, seal.text))
        for each in self if others else ():
            for other in others.get(FileSeal.of_text(each.seal).size, ()):
                if seal_of(other.file).footer == seal_of(each.file).footer and _bytes(other) == _bytes(each):
                    return other.path, each.path
        return None

    def write(self, path: str) -> Listing:
        """Writes the listing for the graphs of a job, a line per file."""
        return write_listing(self, path)


class OneListing:
    """The files of a job: listed at the first request, after the job was charged, and never again.

    Args:
      find: lists them.
    """

    def __init__(self, find: Callable[[], FileList]):
        self._find = find
        self._checks: list[Callable[[FileList], None]] = []
        self._files: FileList | None = None

    def check(self, check: Callable[[FileList], None]) -> None:
        """Registers a check of the list; runs it at once if the list exists."""
        self._checks.append(check)
        if self._files is not None:
            check(self._files)

    @property
    def files(self) -> FileList:
        """The list; raises the errors of finding and checking it."""
        if self._files is None:
            files = self._find()
            for check in self._checks:
                check(files)
            self._files = files
        return self._files


def write_listing(files: Iterable[ListedFile], path: str) -> Listing:
    """Writes a listing of these files, a line each."""
    digest = hashlib.sha256()
    with STORE.create(path) as target:
        for file in files:
            line = json.dumps(list(file)).encode() + b"\n"
            digest.update(line)
            target.write(line)
    return Listing(path, digest.hexdigest())


def read_listing(listing: Listing) -> Iterator[ListedFile]:
    """Yields the files of a job, on a worker.

    Raises:
      InputError: at the end, if the listing isn't the one that the launcher wrote.
    """
    digest = hashlib.sha256()
    try:
        with STORE.open(listing.path) as file:
            for line in _lines(file, digest):
                yield ListedFile(*json.loads(line))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _other_listing() from error
    if digest.hexdigest() != listing.digest:
        raise _other_listing()


def _lines(file: object, digest: "hashlib._Hash") -> Iterator[bytes]:
    """Yields the lines of a file, and adds them to the digest."""
    rest = b""
    while chunk := file.read(_CHUNK):  # type: ignore[attr-defined]
        digest.update(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        raise ValueError("a line without a line feed")


def _other_listing() -> InputError:
    return InputError(
        "The list of input files in the staging folder is missing or was changed; use a folder that the workers and "
        "the launcher share, and run the job again."
    )


def _looked_at(found: FoundFile, setting: str) -> tuple[str, str, FileSeal]:
    """Returns a file's identity, its real path, and its seal without the footer."""
    if not is_local(found.path):
        return _identity(found.path)[0], found.path, FileSeal(found.size, found.changed)
    state = check_regular(found.path, setting)
    file = os.path.realpath(local_path(found.path))
    return f"{state.st_dev} {state.st_ino}", file, FileSeal(state.st_size, str(state.st_mtime_ns))


def _looked_at_all(found: Iterable[FoundFile]) -> Iterator[tuple[str, str, FileSeal]]:
    """Yields path, real path and seal of non-empty files; skips those that are gone, which others refuse."""
    for each in found:
        with contextlib.suppress(InputError, OSError):
            _, file, seal = _looked_at(each, each.path)
            if seal.size:
                yield each.path, file, seal


def _bytes(listed: ListedFile) -> bytes:
    """Returns the SHA-256 of all bytes of a file."""
    return content_digest(listed.file, listed.seal, listed.path)


def _identity(path: str) -> tuple[str, bool]:
    """Returns a file's identity, and whether it exists."""
    if not is_local(path):
        return posixpath.normpath(path), True
    try:
        state = os.stat(local_path(path))
    except OSError:
        return "", False
    return f"{state.st_dev} {state.st_ino}", True


def _sealed(looked: tuple[str, str, FileSeal]) -> FileSeal:
    """Returns the seal of a file that was looked at, with its footer if that costs next to nothing."""
    _, file, seal = looked
    return seal_of(file) if is_local(file) else seal
