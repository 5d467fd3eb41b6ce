"""Where the rows of a job are: files at a path, or the files that the snapshot of a table names."""

import dataclasses
import glob
import itertools
import os
import re
from collections.abc import Iterator

from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.filesystems import FileSystems

from schemas.errors import InputError, NoInputYetError
from schemas.tables.prepared_layout import PreparedManifest
from schemas.tables.snapshot import Snapshot
from transforms.files.formats.csv_file import is_csv
from transforms.files.stores import is_local, side_by_side
from transforms.tables.file_seal import PARQUET_ENDINGS, local_path
from transforms.tables.listing import FoundFile, Listing, OneListing

_WILDCARDS = "[*?"
_STAGING = re.compile(r"\.partial-[A-Za-z0-9_-][A-Za-z0-9._-]*$")
"""What distinguishes the folder of a run's private files."""
_LOG = re.compile(r"/_delta_log/\d{20}\.|/metadata/[^/]*\.metadata\.json(?:\.gz)?$")
"""What distinguishes the root of a Delta or Iceberg table."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The files of a job; private to the operator, but for the name of the snapshot.

    Attributes:
      path: a Parquet or CSV file, a glob, or a folder, on any Beam filesystem; for a snapshot, where its table is.
      partitions: filter on Hive partition folders; for a snapshot it has been applied.
      one_of: a partition column and the values that count of it; there may be no file of any.
      snapshot: what `files` are the files of; None if they are listed by path.
      files: of the snapshot, sorted; None if they are listed by path.
      listed: the one listing of the job; None before it is given, see `pipelines.tables.private_source`.
      listing: where workers find that list; None before it is in the staging folder.
    """

    path: str
    partitions: dict[str, str] = dataclasses.field(default_factory=dict)
    one_of: tuple[str, tuple[str, ...]] | None = None
    snapshot: Snapshot | None = None
    files: tuple[str, ...] | None = None
    listed: OneListing | None = None
    listing: Listing | None = None

    @property
    def may_be_empty(self) -> bool:
        """Whether there may be no rows: nobody may learn that a window has none."""
        return self.one_of is not None

    def found(self, manifest: PreparedManifest | None = None) -> Iterator[FoundFile]:
        """The files as they are there now, in any order; at least one.

        Args:
          manifest: of a folder that `prepare` wrote, whose files are the ones it names.

        Raises:
          InputError: if there are none.
        """
        if self.files is not None:
            yield from side_by_side(_state, self.files)
        elif manifest is not None and not self.partitions and self.one_of is None:
            folder = self.path.rstrip("/")
            yield from side_by_side(_state, (FileSystems.join(folder, each.name) for each in manifest.files))
        else:
            yield from find_files(self.path, self.partitions, one_of=self.one_of)

    def list_files(self) -> list[str]:
        """Paths of all files, sorted; at least one.

        Raises:
          InputError: if there are none.
        """
        return sorted({each.path for each in self.found()})


def list_files(path: str, partitions: dict[str, str], setting: str = "data.path") -> list[str]:
    """`find_files` as sorted paths."""
    return sorted({each.path for each in find_files(path, partitions, setting)})


def find_files(
    path: str,
    partitions: dict[str, str],
    setting: str = "data.path",
    one_of: tuple[str, tuple[str, ...]] | None = None,
) -> Iterator[FoundFile]:
    """Parquet or CSV files at `path`: a file, a glob, or a folder (searched to any depth); some may come twice.

    Args:
      path: on any Beam filesystem.
      partitions: only files whose innermost Hive folder of every entry's column is `column=value`; folders above
        `path` do not count.
      setting: what the path is called in error messages.
      one_of: see `Source`.

    Raises:
      InputError: if there are none (and need be one), or if they are files of a Delta or Iceberg table, of which only
        its log says which count.
    """
    formats: set[bool] = set()
    texts: dict[str, str] = {}
    try:
        root = path if FileSystems.exists(path) else _fixed_part(path)
        _refuse_part_of_table(root, setting)
        for entry in _matching(path):
            if _LOG.search(entry.path):
                raise _is_table(entry.path, setting)
            below = entry.path.removeprefix(root)
            if _is_data(entry.path, path) and _is_wanted(below, partitions, one_of):
                formats.add(is_csv(entry.path))
                if len(formats) > 1:
                    raise _two_formats(path, setting)
                if is_csv(entry.path):
                    _refuse_packed_twin(entry.path, texts, setting)
                _refuse_copy(entry.path.removeprefix(path.rstrip("/") + "/").removeprefix(root), entry.path, setting)
                if is_local(entry.path) and os.path.islink(local_path(entry.path)):
                    _refuse_part_of_table(entry.path, setting)
                yield FoundFile(entry.path, entry.size_in_bytes, str(entry.last_updated_in_seconds or ""))
    except (OSError, BeamIOError) as error:
        raise InputError(f"{setting} must be readable, got {path}; check the path and the permissions.") from error
    if not formats and one_of is None:
        # Rows may come later; what is public is there when a job is written.
        raise (NoInputYetError if setting.startswith("data") else InputError)(
            f"{setting} must match at least one Parquet or CSV file, got {path}; check path and partitions."
        )


def _two_formats(path: str, setting: str) -> InputError:
    """The error for files of which some may be the rows of others once more."""
    return InputError(
        f"{setting} must name files of one format, got Parquet and CSV at {path}, so that rows might count twice; name "
        "those of one, such as *.csv."
    )


def _refuse_packed_twin(file: str, texts: dict[str, str], setting: str) -> None:
    """Stops at a CSV file that is there packed and unpacked: its rows would count twice.

    Args:
      file: its path.
      texts: paths of those before, by the path of the unpacked file; gets this one.
      setting: what the path of the data is called.
    """
    plain = file[:-3] if file.lower().endswith(".gz") else file
    if texts.setdefault(plain, file) != file:
        raise InputError(
            f"{setting} must hold every CSV file once, got {plain} and the same name packed, so that rows might count "
            "twice; remove one of the two, or name those of one ending, such as *.csv."
        )


def would_find(path: str, folder: str) -> bool:
    """Whether `find_files` would find what a run writes in a folder, or in one beside it that the run keeps.

    Args:
      path: of the data, as for `find_files`.
      folder: on any Beam filesystem.
    """
    if is_local(path) != is_local(folder):
        return False
    path, folder = local_path(path), local_path(folder)
    literal = not any(letter in path for letter in _WILDCARDS) or (is_local(path) and os.path.exists(path))
    root = path if literal else _fixed_part(path)
    rest = path[len(root) :].strip("/")
    if is_local(path):
        root, folder = os.path.realpath(root), os.path.realpath(folder)
    system, inside = FileSystems.get_filesystem(path), root.rstrip("/") + "/"
    rules = [re.compile(system.translate_pattern(each.strip("/"))) for each in (rest, f"{rest}/**")]
    files = (f"{folder}/part.parquet", f"{folder}.partial-run.clients/part.parquet")
    found = [file for file in files if file.startswith(inside) and _is_data(file, root)]
    return any(rule.match(file.removeprefix(inside)) for file in found for rule in rules)


def _refuse_copy(below: str, file: str, setting: str) -> None:
    """Stops at a file of a folder that a run keeps while it works, or has left: its rows would count twice.

    Args:
      below: the file's path below that of the data, which may be such a folder itself; a store knows no folders.
      file: its path.
      setting: what the path of the data is called.
    """
    if any(_STAGING.search(part) for part in below.split("/")[:-1]):
        raise InputError(
            f"{setting} must hold no copies of rows that a run keeps or has left, got {file}; wait for the run to end, "
            "or remove what it left by dapple clean."
        )


def _refuse_part_of_table(root: str, setting: str) -> None:
    """Stops where a local path is in a table; a table that is below the path is found among its files."""
    folder = os.path.realpath(local_path(root)) if is_local(root) else ""
    while folder.strip("/"):
        logs = (*glob.iglob(f"{glob.escape(folder)}/_delta_log/*"), *glob.iglob(f"{glob.escape(folder)}/metadata/*"))
        for found in filter(_LOG.search, logs):
            raise _is_table(found, setting)
        folder = os.path.dirname(folder)


def _is_table(found: str, setting: str) -> InputError:
    """The error for files of a table: those of rows that were deleted or overwritten may still be among them."""
    return InputError(
        f"{setting} must name files of no table, got those of the table whose log is {found}; its folder may hold rows "
        "that were deleted, so give the table itself, with a section table of format delta or iceberg."
    )


def _matching(path: str) -> Iterator[FileMetadata]:
    """Files at a path or below it; of an object with objects below its name, those below."""
    literal = glob.escape(path) if FileSystems.exists(path) else path
    below = _matches(literal.rstrip("/") + "/**")
    inside = path.rstrip("/") + "/"
    first = next((entry for entry in below if entry.path.startswith(inside)), None)
    if first is not None:
        yield first
        yield from below
    for entry in _matches(literal):
        if entry.path.rstrip("/") != path.rstrip("/") or not (first or _is_folder(entry.path)):
            yield entry


def _is_folder(path: str) -> bool:
    """Whether a path is a folder of a local disk; Beam's `match` finds it like a file."""
    return is_local(path) and os.path.isdir(local_path(path))


def _matches(pattern: str) -> Iterator[FileMetadata]:
    """Files that match a pattern, one after the other: what Beam's `match` gives as a list, of a million if need be."""
    system = FileSystems.get_filesystem(pattern)
    fixed = re.match("^[^[*?]*", pattern)[0]  # type: ignore[index]
    if fixed == pattern:
        yield from (entry for entry in system.match([pattern])[0].metadata_list)
        return
    if system.has_dirs():
        fixed = system._url_dirname(fixed)
    yield from system.match_files(system._list(fixed), pattern)


def _fixed_part(path: str) -> str:
    """The folder of a glob above its first wildcard."""
    fixed = "".join(itertools.takewhile(lambda letter: letter not in _WILDCARDS, path))
    return os.path.dirname(fixed)


def _is_wanted(below: str, partitions: dict[str, str], one_of: tuple[str, tuple[str, ...]] | None) -> bool:
    column, values = one_of or ("", ())
    inside = one_of is None or any(_lies_in(below, column, value) for value in values)
    return inside and all(_lies_in(below, *wanted) for wanted in partitions.items())


def _lies_in(below: str, column: str, value: str) -> bool:
    """Whether the innermost folder `column=...` of a path is that of the value."""
    folders = [part for part in below.split("/")[:-1] if part.startswith(f"{column}=")]
    return bool(folders) and folders[-1] == f"{column}={value}"


def _is_data(file: str, root: str) -> bool:
    """Whether a matched file is data: not hidden, not a marker, and Parquet or CSV by name unless named in full."""
    below = file.removeprefix(root).split("/")
    hidden = any(part.startswith(("_", ".")) for part in below if part)
    return file == root or (not hidden and (file.endswith(PARQUET_ENDINGS) or is_csv(file)))


def _state(path: str) -> FoundFile:
    try:
        found = FileSystems.get_filesystem(path).metadata(path)
    except (OSError, BeamIOError) as error:
        raise InputError(
            f"{path} must be there, as the log of its table or its manifest names it, got nothing; restore the file, "
            "or choose another version."
        ) from error
    return FoundFile(path, found.size_in_bytes, str(found.last_updated_in_seconds or ""))
