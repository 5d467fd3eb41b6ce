"""Conversion of messages to rows; a message is a JSON object or a fixed number of bytes.

A broken message becomes a row of nulls, which the job drops or refuses like other invalid rows.
"""

import math
import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from dapple_dp.schemas.arrivals.topic import MessageColumns, PackedColumns
from dapple_dp.schemas.settings import json_text
from dapple_dp.schemas.settings.refusal import MalformedError


def table_of(messages: Iterable[bytes | None], columns: MessageColumns | PackedColumns) -> pa.Table:
    """Returns a row for every message, in their order; equal messages give an equal table.

    A message is broken if it is missing, too long, not a JSON object, or has a column missing or of another type. If
    messages have a fixed size, a message of another size is broken. Its row is null in every column.

    Args:
      messages: values of the messages.
      columns: the columns to read from each.
    """
    if isinstance(columns, PackedColumns):
        layout, fields = struct.Struct(f"<{''.join(kind for _, kind in columns.fields)}"), _packed_schema(columns)
        rows = [layout.unpack(raw) if raw is not None and len(raw) == layout.size else None for raw in messages]
    else:
        rows, fields = [_row(message, columns) for message in messages], _schema(columns)
    broken = (None,) * len(fields)
    values = zip(*(broken if row is None else row for row in rows), strict=True) if rows else [()] * len(fields)
    arrays = [pa.array(column, type=field.type) for field, column in zip(fields, values, strict=True)]
    return pa.Table.from_arrays(arrays, schema=fields)


def _schema(columns: MessageColumns) -> pa.Schema:
    """Returns names and types of the columns, features first."""
    fields = [pa.field(name, pa.float64()) for name in columns.numbers]
    fields += [pa.field(columns.list, pa.list_(pa.float64()))] if columns.list else []
    fields += [pa.field(columns.client_id, pa.string())] if columns.client_id else []
    return pa.schema(fields)


def _packed_schema(columns: PackedColumns) -> pa.Schema:
    numbers = {"Q": pa.uint64(), "H": pa.uint16()}
    return pa.schema([(name, numbers.get(kind) or pa.binary(struct.calcsize(kind))) for name, kind in columns.fields])


def _row(message: bytes | None, columns: MessageColumns) -> tuple[Any, ...] | None:
    """Returns the columns of one message; None if it is broken."""
    try:
        record = json_text.parse(message or b"", columns.most_bytes)
        values: list[Any] = [_number(record[name]) for name in columns.numbers]
        if columns.list:
            values.append([_number(number) for number in _listed(record[columns.list])])
        if columns.client_id:
            values.append(_name(record[columns.client_id]))
    except (MalformedError, KeyError, TypeError, IndexError, OverflowError):
        return None
    return tuple(values)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    result = float(value)
    if not math.isfinite(result):
        raise OverflowError("no finite number")
    return result


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return value


def _name(value: object) -> str:
    """Validates a client's name and returns it as text; integers are written in digits."""
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise TypeError("no name")
    return str(value)
