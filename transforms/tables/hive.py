"""Columns whose values are in the names of Hive partition folders: `.../client=7/part-0.parquet`."""

import urllib.parse

import pyarrow as pa

from dapple_dp.schemas.errors import InputError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for the folder of rows without a value."""


def has_folder(path: str, column: str) -> bool:
    """Returns whether a file is below a folder `column=value`."""
    return any(part.startswith(f"{column}=") for part in path.split("/")[:-1])


def folder_value(path: str, column: str) -> str | None:
    """Returns the value of the innermost folder `column=value`; None if Hive marks it as missing.

    Example:
      >>> folder_value("lake/client=a%20b/part-0.parquet", "client")
      'a b'
    """
    values = [part.partition("=")[2] for part in path.split("/")[:-1] if part.startswith(f"{column}=")]
    return None if values[-1] == NULL_FOLDER else urllib.parse.unquote(values[-1])


def with_field(schema: pa.Schema, path: str, column: str | None, kind: pa.DataType | None = None) -> pa.Schema:
    """Returns the schema with `column`, by default a string, if the file lacks it and is below such a folder."""
    if column is None or not has_folder(path, column) or column in schema.names:
        return schema
    return schema.append(pa.field(column, kind or pa.string()))


def with_column(table: pa.Table, path: str, column: str, kind: pa.DataType) -> pa.Table:
    """Returns the table with `column`, the same value in every row; the file is below such a folder.

    Raises:
      InputError: if the value isn't of the type.
    """
    try:
        value = pa.scalar(folder_value(path, column), pa.string()).cast(kind)
    except pa.ArrowException:
        pass
    else:
        return table.append_column(column, pa.repeat(value, table.num_rows))
    raise InputError(f"column {column!r} of {path} is in the name of a folder and must be {kind}; rename the folder.")
