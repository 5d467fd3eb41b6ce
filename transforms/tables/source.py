"""Where the rows of a job lie: files at a path, or the files that the snapshot of a table names."""

import dataclasses
import glob

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from schemas.errors import InputError
from schemas.tables.snapshot import Snapshot


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The files of a job; private to the operator, but for the name of the snapshot.

    Attributes:
      path: a Parquet file, a glob, or a folder, on any Beam filesystem; for a snapshot, where its table is.
      partitions: filter on Hive partition folders; for a snapshot it has been applied.
      snapshot: what `files` are the files of; None if they are listed by path.
      files: of the snapshot, sorted; None if they are listed by path, whenever they are needed.
    """

    path: str
    partitions: dict[str, str] = dataclasses.field(default_factory=dict)
    snapshot: Snapshot | None = None
    files: tuple[str, ...] | None = None

    def list_files(self) -> list[str]:
        """Paths of all files, sorted; at least one.

        Raises:
          InputError: if there are none.
        """
        return list_files(self.path, self.partitions) if self.files is None else list(self.files)


def list_files(path: str, partitions: dict[str, str], setting: str = "data.path") -> list[str]:
    """Parquet files at `path`: a file, a glob, or a folder (searched to any depth), sorted.

    Args:
      path: on any Beam filesystem.
      partitions: only files below Hive folders `column=value` for every entry.
      setting: what the path is called in error messages.

    Raises:
      InputError: if there are none.
    """
    literal = glob.escape(path) if FileSystems.exists(path) else path
    patterns = [literal, literal.rstrip("/") + "/**"]
    try:
        found = {entry.path for result in FileSystems.match(patterns) for entry in result.metadata_list}
    except BeamIOError as error:
        raise InputError(f"{setting} must be readable, got {path}; check the path and the permissions.") from error
    if any(entry.startswith(path.rstrip("/") + "/") for entry in found):
        found -= {path, path.rstrip("/")}
    wanted = {f"{column}={value}" for column, value in partitions.items()}
    files = sorted(file for file in found if _is_data(file, path) and wanted <= set(file.split("/")))
    if not files:
        raise InputError(f"{setting} must match at least one Parquet file, got {path}; check path and partitions.")
    return files


def _is_data(file: str, root: str) -> bool:
    """Whether a matched file is data: not hidden, not a marker, and Parquet by name unless named in full."""
    below = file.removeprefix(root).split("/")
    hidden = any(part.startswith(("_", ".")) for part in below if part)
    return file == root or (not hidden and file.endswith((".parquet", ".parq", ".pq")))
