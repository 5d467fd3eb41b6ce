"""Rows of reports in Parquet: the columns that are written, and the rows that are accepted."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.arrivals.topic import PackedColumns
from dapple_dp.schemas.choices import ReportMode
from dapple_dp.schemas.reports.parameters import ReportParameters, ReportVariant
from dapple_dp.schemas.tables.columns import find, mismatch, plain

NONCE = "nonce"
INDEX = "index"
CODEWORD = "codeword"
DIGEST = "parameters"
"""Column in mode shuffle on the way to the shuffler: the digest of the parameters that made the report."""
REPORTS_FOLDER = "reports.parquet"
PARAMETERS_FILE = "parameters.json"


def report_schema(parameters: ReportParameters) -> pa.Schema:
    """Returns the columns of a file of reports: `nonce` uint64 and `index` uint16, or `codeword` for privunit."""
    nonce = pa.field(NONCE, pa.uint64(), nullable=False)
    if parameters.variant is ReportVariant.PRIVUNIT:
        return pa.schema([nonce, pa.field(CODEWORD, pa.binary(parameters.report_bytes - 8), nullable=False)])
    return pa.schema([nonce, pa.field(INDEX, pa.uint16(), nullable=False)])


def message_columns(parameters: ReportParameters) -> PackedColumns:
    """Returns the layout of a report as a message, as in transforms/numerics/reports/FORMAT.md, without a digest."""
    if parameters.variant is ReportVariant.PRIVUNIT:
        return PackedColumns(((NONCE, "Q"), (CODEWORD, f"{parameters.report_bytes - 8}s")))
    return PackedColumns(((NONCE, "Q"), (INDEX, "H")))


def arrival_schema(parameters: ReportParameters) -> pa.Schema:
    """Returns the columns of reports from devices: `report_schema`, and in mode shuffle a digest of 32 bytes."""
    schema = report_schema(parameters)
    if parameters.guarantee.mode is not ReportMode.SHUFFLE:
        return schema
    return schema.append(pa.field(DIGEST, pa.binary(len(parameters.digest)), nullable=False))


def to_table(
    nonces: NDArray[np.uint64], payload: NDArray[np.uint16] | NDArray[np.uint8], parameters: ReportParameters
) -> pa.Table:
    """Returns reports as a table.

    Args:
      nonces: shape (n,).
      payload: indices, shape (n,), or codewords as bytes, shape (n, width / 8).
      parameters: public parameters of the reports.
    """
    schema = report_schema(parameters)
    if parameters.variant is ReportVariant.PRIVUNIT:
        flat = pa.py_buffer(np.ascontiguousarray(payload).tobytes())
        column = pa.FixedSizeBinaryArray.from_buffers(schema.field(CODEWORD).type, len(nonces), [None, flat])
    else:
        column = pa.array(payload, pa.uint16())
    return pa.table([pa.array(nonces, pa.uint64()), column], schema=schema)


def from_table(
    table: pa.Table, parameters: ReportParameters, where: str, schema: pa.Schema
) -> tuple[NDArray[np.uint64], NDArray[np.uint16] | NDArray[np.uint8]]:
    """Returns nonces and payload of all valid rows; other rows are skipped.

    Reports come from untrusted devices: a null, a codeword that doesn't exist or bytes of another length are no
    report, and don't stop the others. A report made with other parameters isn't counted either, since shuffling hides
    a report only among reports of the same distribution. Other columns are ignored.

    Args:
      table: rows of reports.
      parameters: parameters of the collection.
      where: name of the rows in messages.
      schema: `report_schema`, or `arrival_schema` for reports straight from devices.

    Raises:
      SchemaMismatchError: if a column is missing or has another type.
    """
    for field in schema:
        column = find(table.schema, field.name, where)
        if column.type != field.type:
            raise mismatch(field.name, where, f"be {field.type}", str(column.type), "write it as encode does")
    columns = {field.name: plain(table.column(field.name)).combine_chunks() for field in schema}
    valid = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns.values()])
    if DIGEST in columns:
        own = pc.equal(columns[DIGEST], pa.scalar(parameters.digest, schema.field(DIGEST).type))
        valid &= own.fill_null(False).to_numpy(zero_copy_only=False)
    usable = {name: column.filter(pa.array(valid)) for name, column in columns.items()}
    nonces = usable[NONCE].to_numpy(zero_copy_only=False)
    if parameters.variant is ReportVariant.PRIVUNIT:
        raw = b"".join(usable[CODEWORD].to_pylist())
        return nonces, np.frombuffer(raw, dtype=np.uint8).reshape(len(nonces), parameters.report_bytes - 8)
    indices = usable[INDEX].to_numpy(zero_copy_only=False)
    sizes = [choice.size for choice, _ in parameters.choices]
    known = indices < int(np.prod(sizes))
    return nonces[known], indices[known]
