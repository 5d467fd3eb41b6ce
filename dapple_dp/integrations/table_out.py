"""Export of a run's centers or assignments to a Delta or Iceberg table, once per run id.

The run's own files aren't changed. Rows in the table have two more columns: `run_id`, and `run_digest`, the SHA-256
of the run's `run.json`. All rows of a run are added in one commit of the table, or none of them.
"""

import contextlib
import hashlib
import importlib
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
from pydantic import Field

from dapple_dp.pipelines.run.folder import MANIFEST, check_apart
from dapple_dp.pipelines.trusted_zone.assign import ASSIGNMENTS
from dapple_dp.schemas.choices import TableFormat
from dapple_dp.schemas.errors import ConfigError, RunnerError, what_installs
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, RunManifest
from dapple_dp.schemas.settings.yaml_text import path_text
from dapple_dp.schemas.tables.columns import plain
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.files.untrusted import TableForm

RUN_ID, RUN_DIGEST = "run_id", "run_digest"


class _Named(RunManifest):
    """The manifest of a run; its id needs no quoting in a predicate."""

    run_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,512}$")]


class WrittenRows(NamedTuple):
    """Rows of a run for a table.

    Attributes:
      run_id: id of the run.
      digest: digest of its manifest.
      private: true if the rows belong in the trusted zone.
      table: the rows, with run id and digest as the first columns.
    """

    run_id: str
    digest: str
    private: bool
    table: pa.Table

    def is_there(self, digests: pa.ChunkedArray) -> bool:
        """Returns whether a table already has the rows, given the digests that it stores for the run id.

        Raises:
          ConfigError: if another run of the same name stored them.
        """
        stored = set(digests.to_pylist())
        if stored - {self.digest}:
            raise ConfigError(
                f"run_id must be unique in a table, got {self.run_id!r}, which another run there has; write to "
                "another table, or run the job again with another run_id."
            )
        return bool(stored)


def write_delta(
    run: str | os.PathLike[str], path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> int:
    """Adds the centers of a fit, or the assignments of an `assign`, to a Delta table; a second call adds nothing.

    Args:
      run: output folder of a finished job, on any Beam filesystem. Its rows are held in memory.
      path: root of the table, partitioned by `run_id`; created if it doesn't exist. Assignments are as private as their
        rows: keep their table outside of released outputs.
      storage_options: options of `deltalake`, for object stores.

    Returns:
      Number of added rows; 0 if the table already had the run.

    Raises:
      ConfigError: if the run has no such rows, the table has another run of this id, or `deltalake` is missing.
      RunnerError: if the rows can't be written, for example because another writer was faster.
    """
    deltalake = _library("deltalake", TableFormat.DELTA)
    path = path_text(path, "path")
    if "%" in path:
        raise ConfigError(f"path must not contain '%' for a Delta table, got {path}; rename the folder.")
    rows = read_rows(run)
    _check_zone(rows, path)
    options = dict(storage_options or {})
    with _writing(rows, path):
        if deltalake.DeltaTable.is_deltatable(path, options):
            own = [(RUN_ID, "=", rows.run_id)]
            known = deltalake.DeltaTable(path, storage_options=options).to_pyarrow_table(
                columns=[RUN_DIGEST], filters=own
            )
            if rows.is_there(known.column(RUN_DIGEST)):
                return 0
            # Replaces rows of the run, so that of two concurrent writers only one adds them.
            how: dict[str, Any] = {"mode": "overwrite", "predicate": f"{RUN_ID} = '{rows.run_id}'"}
        else:
            how = {"mode": "error", "partition_by": [RUN_ID]}
        deltalake.write_deltalake(path, rows.table, storage_options=options, **how)
    return int(rows.table.num_rows)


def write_iceberg(run: str | os.PathLike[str], table: Any) -> int:
    """Adds a run's rows to an Iceberg table, like `write_delta` for a Delta table.

    Args:
      run: see `write_delta`.
      table: a `pyiceberg.table.Table` from a catalog, with the columns of `read_rows(run).table`.

    Returns:
      See `write_delta`.

    Raises:
      ConfigError: see `write_delta`.
      RunnerError: see `write_delta`.
    """
    expressions = _library("pyiceberg.expressions", TableFormat.ICEBERG)
    rows = read_rows(run)
    _check_zone(rows, table.location())
    with _writing(rows, table.location()):
        own = expressions.EqualTo(RUN_ID, rows.run_id)
        table.refresh()
        if rows.is_there(table.scan(row_filter=own, selected_fields=(RUN_DIGEST,)).to_arrow().column(RUN_DIGEST)):
            return 0
        table.overwrite(rows.table, overwrite_filter=own)
    return int(rows.table.num_rows)


def read_rows(run: str | os.PathLike[str]) -> WrittenRows:
    """Reads the rows of a finished job, and checks each file against the manifest.

    Args:
      run: output folder of a fit, a decoding or an `assign`.

    Raises:
      ConfigError: if it isn't one, a file was changed, or a column has a name that the table reserves.
    """
    run = path_text(run, "run")
    rule = f"run must be the output folder of a finished fit, decode or assign, with {MANIFEST}"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="check the path")
    raw = untrusted.read_bytes(join(run, MANIFEST), refusal)
    manifest, digest = json_schema.parse_as(raw, _Named, refusal), hashlib.sha256(raw).hexdigest()
    assigned = sorted(name for name in manifest.files if name.startswith(f"{ASSIGNMENTS}/"))
    names = [CENTERS_FILE] if CENTERS_FILE in manifest.files else assigned
    if not names:
        raise refusal.because(f"neither {CENTERS_FILE} nor {ASSIGNMENTS} in {run}")
    table = pa.concat_tables([_file(run, name, manifest, refusal) for name in names])
    taken = {RUN_ID, RUN_DIGEST} & set(table.column_names)
    if taken:
        raise ConfigError(
            f"{run} has a column {taken.pop()!r}, a name that the table reserves; rename it in the source data."
        )
    first = {
        name: pa.array([value] * len(table), pa.string())
        for name, value in ((RUN_ID, manifest.run_id), (RUN_DIGEST, digest))
    }
    columns = {name: _storable(table.column(name)) for name in table.column_names}
    return WrittenRows(manifest.run_id, digest, CENTERS_FILE not in manifest.files, pa.table(first | columns))


def _file(run: str, name: str, manifest: RunManifest, refusal: Refusal) -> pa.Table:
    content = untrusted.read_bytes(join(run, name), refusal)
    if hashlib.sha256(content).hexdigest() != manifest.files[name]:
        raise ConfigError(f"{name} in {run} must be the file that the job wrote, got another; run the job again.")
    return untrusted.table_of(content, refusal, TableForm.by_size()).replace_schema_metadata(None)


def _storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Casts a column to a type that both formats support: no dictionaries, and lists of variable length."""
    column = plain(column)
    return column.cast(pa.list_(column.type.value_type)) if pa.types.is_fixed_size_list(column.type) else column


def _check_zone(rows: WrittenRows, path: str) -> None:
    """Refuses private rows in or below a released folder."""
    if rows.private:
        try:
            check_apart(path)
        except ConfigError as error:
            raise ConfigError(
                f"a table of assignments must be outside of released outputs, got {path}; choose another folder."
            ) from error


@contextlib.contextmanager
def _writing(rows: WrittenRows, path: str) -> Iterator[None]:
    """Converts any exception of a library to one sentence without values."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise RunnerError(
            f"the rows of run {rows.run_id} weren't written to the table {path} ({type(error).__name__}); check its "
            "columns, the permissions and other writers, and try again."
        ) from error


def _library(module: str, table_format: TableFormat) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"a table of format {table_format} needs a library that isn't installed; run {what_installs(table_format)}."
        ) from error
