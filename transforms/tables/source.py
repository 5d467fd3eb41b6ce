"""The source of a job's rows: files at a path, or the files of a table's snapshot."""

import contextlib
import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator

from dapple_dp.schemas.errors import InputError, NoInputYetError
from dapple_dp.schemas.tables.prepared_layout import PreparedManifest
from dapple_dp.schemas.tables.snapshot import Snapshot
from dapple_dp.transforms.files.formats.csv_file import is_csv
from dapple_dp.transforms.files.stores import STORE, ListedFile, is_local, join, local_path, side_by_side
from dapple_dp.transforms.tables.file_seal import PARQUET_ENDINGS
from dapple_dp.transforms.tables.listing import FoundFile, Listing, OneListing
from dapple_dp.transforms.tables.staging_names import PARTIAL, copy_folder, parsed

_WILDCARDS = "[*?"
_HIDDEN = ("_", ".")
"""First characters of the names of files and folders that aren't data."""
_LOG = re.compile(r"/_delta_log/\d{20}\.|/metadata/[^/]*\.metadata\.json(?:\.gz)?$")
"""Pattern of files that mark the root of a Delta or Iceberg table."""


class _Gap(ListedFile):
    """A dangling link, or a folder that can't be opened: it may have held data."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The files of a job; private to the operator, but for the name of the snapshot.

    Attributes:
      path: a Parquet or CSV file, a glob, or a folder, on any Beam filesystem; for a snapshot, its table.
      partitions: filter on Hive partition folders; for a snapshot it has been applied.
      one_of: a partition column and its values that count; there may be no file for any of them.
      snapshot: the snapshot of `files`; None if they are listed by path.
      files: of the snapshot, sorted; None if they are listed by path.
      nullable: columns of the snapshot that are null in the rows of a file that lacks them, an Arrow schema as hex;
        none for files by path.
      csv: text of the `CsvForm` of CSV files.
      sampled: True if the files are a copy without some rows of clients, by its manifest.
      listed: the one listing of the job; None before it is given, see `dapple_dp.pipelines.tables.private_source`.
      listing: place of that list for workers; None before it is in the staging folder.
    """

    path: str
    partitions: dict[str, str] = dataclasses.field(default_factory=dict)
    one_of: tuple[str, tuple[str, ...]] | None = None
    snapshot: Snapshot | None = None
    files: tuple[str, ...] | None = None
    nullable: str = ""
    csv: str = ""
    sampled: bool = False
    listed: OneListing | None = None
    listing: Listing | None = None

    @property
    def may_be_empty(self) -> bool:
        """True if there may be no rows, since nobody may learn that a window is empty."""
        return self.one_of is not None

    def found(self, manifest: PreparedManifest | None = None) -> Iterator[FoundFile]:
        """Yields the present files, in any order; at least one.

        Args:
          manifest: of a folder that `prepare` wrote, which names its files.

        Raises:
          InputError: if there are none.
        """
        if self.files is not None:
            yield from side_by_side(_state, self.files)
        elif manifest is not None and not self.partitions and self.one_of is None:
            folder = self.path.rstrip("/")
            yield from side_by_side(_state, (join(folder, file.name) for file in manifest.files))
        else:
            yield from find_files(self.path, self.partitions, one_of=self.one_of)

    def list_files(self) -> list[str]:
        """Returns the paths of all files, sorted; at least one.

        Raises:
          InputError: if there are none.
        """
        return sorted({each.path for each in self.found()})


def list_files(path: str, partitions: dict[str, str], setting: str = "data.path") -> list[str]:
    """Returns `find_files` as sorted paths."""
    return sorted({file.path for file in find_files(path, partitions, setting)})


def find_files(
    path: str,
    partitions: dict[str, str],
    setting: str = "data.path",
    one_of: tuple[str, tuple[str, ...]] | None = None,
) -> Iterator[FoundFile]:
    """Yields Parquet or CSV files at `path`: a file, a glob, or a folder (at any depth); some may come twice.

    Args:
      path: on any Beam filesystem.
      partitions: only files whose innermost Hive folder of every entry's column is `column=value`; folders above
        `path` don't count.
      setting: name of the path in error messages.
      one_of: see `Source`.

    Raises:
      InputError: if there are none (and there must be some), or if they belong to a Delta or Iceberg table, since only
        its log says which of them count.
    """
    formats: set[bool] = set()
    texts: dict[str, str] = {}
    folders: set[str] = set()
    try:
        root = path if STORE.exists(path) else _fixed_part(path)
        _refuse_part_of_table(root, setting)
        for entry in _matching(path):
            if _LOG.search(entry.path):
                raise _is_table(entry.path, setting)
            below = entry.path.removeprefix(root)
            if isinstance(entry, _Gap):
                if _is_missed(entry.path, root, partitions, one_of):
                    raise _missed(entry.path)
                continue
            if _is_data(entry.path, path) and _is_wanted(below, partitions, one_of):
                formats.add(is_csv(entry.path))
                if len(formats) > 1:
                    raise _two_formats(path, setting)
                if is_csv(entry.path):
                    _refuse_packed_twin(entry.path, texts, setting)
                _refuse_copy(entry.path.removeprefix(path.rstrip("/") + "/").removeprefix(root), entry.path, setting)
                if is_local(entry.path):
                    _refuse_linked_table(entry.path, folders, setting)
                yield FoundFile(*entry)
    except OSError as error:
        raise InputError(f"{path} ({setting}) could not be read; check the path and the permissions.") from error
    if not formats and one_of is None:
        # Rows may come later; public files must exist when a job is written.
        raise (NoInputYetError if setting.startswith("data") else InputError)(
            f"No Parquet or CSV file found at {path} ({setting}); check path and partitions."
        )


def _two_formats(path: str, setting: str) -> InputError:
    """Creates the error for files in two formats, some of which may be copies of others."""
    return InputError(
        f"{setting} must name files of one format, and {path} has both Parquet and CSV, so rows might count twice; "
        "name those of one, such as *.csv."
    )


def _refuse_packed_twin(file: str, texts: dict[str, str], setting: str) -> None:
    """Refuses a CSV file that exists both compressed and not: its rows would count twice.

    Args:
      file: its path.
      texts: earlier paths, by the path of the uncompressed file; this one is added.
      setting: name of the path of the data in messages.
    """
    plain = file[:-3] if file.lower().endswith(".gz") else file
    if texts.setdefault(plain, file) != file:
        raise InputError(
            f"{setting} names {plain} both plain and packed, so its rows might count twice; remove one of the two, or "
            "name those of one ending, such as *.csv."
        )


def would_find(path: str, folder: str) -> bool:
    """Returns whether `find_files` would find the files of a run in a folder, or in one that the run keeps beside it.

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
    inside = root.rstrip("/") + "/"
    rules = [re.compile(_translated(each.strip("/"))) for each in (rest, f"{rest}/**")]
    files = (f"{folder}/part.parquet", f"{copy_folder(folder + PARTIAL + 'run')}/part.parquet")
    found = [file for file in files if file.startswith(inside) and _is_data(file, root)]
    return any(rule.match(file.removeprefix(inside)) for file in found for rule in rules)


def _refuse_copy(below: str, file: str, setting: str) -> None:
    """Refuses a file in a folder that a run keeps while it works, or has left: its rows would count twice.

    Args:
      below: the file's path below that of the data, which may be such a folder itself; a store has no folders.
      file: its path.
      setting: name of the path of the data in messages.
    """
    if any(parsed(part) for part in below.split("/")[:-1]):
        raise InputError(
            f"{setting} includes {file}, a copy of rows that a run keeps or has left; wait for the run to end, or "
            "remove it with dapple tools clean."
        )


def _refuse_part_of_table(root: str, setting: str) -> None:
    """Refuses a local path inside a table; a table below the path is found among its files."""
    folder = os.path.realpath(local_path(root)) if is_local(root) else ""
    while folder.strip("/"):
        for logs in (f"{folder}/_delta_log", f"{folder}/metadata"):
            with contextlib.suppress(OSError), os.scandir(logs) as entries:
                found = next((entry.path for entry in entries if _LOG.search(entry.path)), None)
                if found is not None:
                    raise _is_table(found, setting)
        folder = os.path.dirname(folder)


def _refuse_linked_table(file: str, folders: set[str], setting: str) -> None:
    """Refuses a file that a link takes from a table.

    Args:
      file: its path, on a local disk.
      folders: folders that were checked; the file's is added.
      setting: name of the path of the data in messages.
    """
    folder = os.path.dirname(local_path(file))
    if folder not in folders:
        folders.add(folder)
        if os.path.realpath(folder) != os.path.abspath(folder):
            _refuse_part_of_table(folder, setting)
    if os.path.islink(local_path(file)):
        _refuse_part_of_table(file, setting)


def _missed(path: str) -> InputError:
    """Creates the error for data that can't be reached."""
    if _is_folder(path):
        return InputError(f"The folder {path} can't be opened, so its rows would be left out; check its permissions.")
    return InputError(
        f"{path} is a link to a file or folder that doesn't exist; restore its target, or remove the link."
    )


def _is_table(found: str, setting: str) -> InputError:
    """Creates the error for files of a table, which may include deleted or overwritten rows."""
    return InputError(
        f"{setting} names files of the table whose log is {found}, and they may hold deleted rows; name the table "
        "itself, with a section table of format delta or iceberg."
    )


def _matching(path: str) -> Iterator[ListedFile]:
    """Yields files at a path or below it; for an object with objects below its name, those below."""
    if _is_folder(path):
        yield from _local_entries(path, lambda _: True)
        return
    below = iter(()) if is_local(path) else STORE.list(path.rstrip("/") + "/")
    first = next(below, None)
    if first is not None:
        yield first
        yield from below
    elif STORE.exists(path):
        yield ListedFile(path, *STORE.stat(path))
    else:
        yield from _matches(path)


def _is_folder(path: str) -> bool:
    """Returns whether a path is a folder of a local disk."""
    return is_local(path) and os.path.isdir(local_path(path))


def _matches(pattern: str) -> Iterator[ListedFile]:
    """Yields files that match a user's pattern; the only place where a path may be a pattern."""
    fixed = "".join(itertools.takewhile(lambda letter: letter not in _WILDCARDS, pattern))
    if fixed == pattern:
        return
    matches = re.compile(_translated(pattern)).match
    if not is_local(pattern):
        yield from (file for file in STORE.list(fixed) if matches(file.path))
        return
    leads = functools.partial(_leads_to, pattern=pattern)
    for entry in _local_entries(os.path.dirname(fixed), leads):
        if matches(entry.path) or (isinstance(entry, _Gap) and leads(entry.path)):
            yield entry


def _translated(pattern: str) -> str:
    """Returns the regular expression of a user's pattern; loads Beam only if there is a pattern."""
    from apache_beam.io.filesystem import FileSystem

    return FileSystem.translate_pattern(pattern)


def _leads_to(path: str, pattern: str) -> bool:
    """Returns whether a folder at a path could hold matches of a pattern."""
    parts = pattern.split("/")[: path.count("/") + 1]
    return "**" in "".join(parts) or re.match(_translated("/".join(parts)), path) is not None


def _local_entries(folder: str, leads: Callable[[str], bool]) -> Iterator[ListedFile]:
    """Yields files in a local folder at any depth, through links, and a `_Gap` for anything unreachable.

    Args:
      folder: start of the search.
      leads: path of a folder -> whether to search it.

    Raises:
      InputError: if a link leads back to a folder that contains it.
    """
    start = folder.rstrip("/") or folder
    waiting: list[tuple[str, tuple[str, ...]]] = []
    if start:
        waiting.append((start, (os.path.realpath(local_path(start)),)))
    while waiting:
        path, above = waiting.pop()
        try:
            with os.scandir(local_path(path)) as found:
                entries = sorted(found, key=lambda each: each.name)
        except FileNotFoundError:
            continue  # Folders may go while others are listed.
        except OSError:
            yield _Gap(path, 0, "")
            continue
        for entry in entries:
            below = f"{path.rstrip('/')}/{entry.name}"
            if not _is_folder(entry.path):
                with contextlib.suppress(FileNotFoundError):
                    yield _entry_of(below, entry)
                continue
            if not leads(below):
                continue
            real = os.path.realpath(entry.path) if entry.is_symlink() else f"{above[-1].rstrip('/')}/{entry.name}"
            if real not in above:
                waiting.append((below, (*above, real)))
            elif not entry.name.startswith(_HIDDEN):
                raise InputError(
                    f"{below} is a link to a folder that contains it, so its files would be counted again and again; "
                    "remove the link."
                )


def _entry_of(path: str, entry: os.DirEntry[str]) -> ListedFile:
    """Returns a file as Beam lists it; a dangling link may have been a file, or a folder."""
    try:
        state = entry.stat()
    except OSError:
        if not entry.is_symlink():
            raise
        return _Gap(path, 0, "")
    return ListedFile(path, state.st_size, str(state.st_mtime))


def _is_missed(path: str, root: str, partitions: dict[str, str], one_of: tuple[str, tuple[str, ...]] | None) -> bool:
    """Returns whether a dangling link, or a folder that can't be opened, would have held wanted data."""
    name, parts = os.path.basename(path), path.removeprefix(root).split("/")
    if any(part.startswith(_HIDDEN) for part in parts) or name == "lost+found":
        return False
    if not _is_folder(path) and "=" not in name and os.path.splitext(name)[1] and not _is_data(path, root):
        return False
    wanted: dict[str, tuple[str, ...]] = {column: (value,) for column, value in partitions.items()}
    wanted |= dict([] if one_of is None else [one_of])
    folders = (part.partition("=") for part in parts)
    return all(value in wanted.get(column, (value,)) for column, _, value in folders)


def _fixed_part(path: str) -> str:
    """Returns the folder of a glob above its first wildcard."""
    fixed = "".join(itertools.takewhile(lambda letter: letter not in _WILDCARDS, path))
    return os.path.dirname(fixed)


def _is_wanted(below: str, partitions: dict[str, str], one_of: tuple[str, tuple[str, ...]] | None) -> bool:
    column, values = one_of or ("", ())
    inside = one_of is None or any(_lies_in(below, column, value) for value in values)
    return inside and all(_lies_in(below, *wanted) for wanted in partitions.items())


def _lies_in(below: str, column: str, value: str) -> bool:
    """Returns whether the innermost folder `column=...` of a path has the value."""
    folders = [part for part in below.split("/")[:-1] if part.startswith(f"{column}=")]
    return bool(folders) and folders[-1] == f"{column}={value}"


def _is_data(file: str, root: str) -> bool:
    """Returns whether a file is data: not hidden, not a marker, and Parquet or CSV by name unless named in full."""
    below = file.removeprefix(root).split("/")
    hidden = any(part.startswith(_HIDDEN) for part in below if part)
    return file == root or (not hidden and (file.endswith(PARQUET_ENDINGS) or is_csv(file)))


def _state(path: str) -> FoundFile:
    try:
        found = STORE.stat(path)
    except OSError as error:
        raise InputError(
            f"{path} is missing, though the log of its table or its manifest names it; restore the file, or choose "
            "another version."
        ) from error
    return FoundFile(path, *found)
