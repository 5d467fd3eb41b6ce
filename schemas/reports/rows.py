"""Rows of reports as Parquet: what is written, and what is accepted."""

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
"""Column of reports of mode shuffle on their way to the shuffler: the digest of the parameters that made them."""
REPORTS_FOLDER = "reports.parquet"
PARAMETERS_FILE = "parameters.json"


def report_schema(parameters: ReportParameters) -> pa.Schema:
    """Columns of a file of reports: `nonce` uint64 and `index` uint16, or `codeword` bytes for privunit."""
    nonce = pa.field(NONCE, pa.uint64(), nullable=False)
    if parameters.variant is ReportVariant.PRIVUNIT:
        return pa.schema([nonce, pa.field(CODEWORD, pa.binary(parameters.report_bytes - 8), nullable=False)])
    return pa.schema([nonce, pa.field(INDEX, pa.uint16(), nullable=False)])


def message_columns(parameters: ReportParameters) -> PackedColumns:
    """The bytes of a report as a message of a topic: those of docs/report-format.md, without a digest."""
    if parameters.variant is ReportVariant.PRIVUNIT:
        return PackedColumns(((NONCE, "Q"), (CODEWORD, f"{parameters.report_bytes - 8}s")))
    return PackedColumns(((NONCE, "Q"), (INDEX, "H")))


def arrival_schema(parameters: ReportParameters) -> pa.Schema:
    """Columns of reports as devices send them: those of `report_schema`, and in mode shuffle a digest of 32 bytes."""
    schema = report_schema(parameters)
    if parameters.guarantee.mode is not ReportMode.SHUFFLE:
        return schema
    return schema.append(pa.field(DIGEST, pa.binary(len(parameters.digest)), nullable=False))


def to_table(
    nonces: NDArray[np.uint64], payload: NDArray[np.uint16] | NDArray[np.uint8], parameters: ReportParameters
) -> pa.Table:
    """Reports as a table.

    Args:
      nonces: shape (n,).
      payload: indices, shape (n,), or codewords as bytes, shape (n, width / 8).
      parameters: public.
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
    """Nonces and payload of the rows that can be reports; other rows are left out.

    Reports come from devices that nobody controls: a null, a codeword that does not exist or bytes of another
    length count as no report, and do not stop the others. Nor does a report that was made by other parameters: the
    blanket of a batch is that of one law. Other columns are not looked at.

    Args:
      table: rows.
      parameters: of the collection.
      where: the rows are, for messages.
      schema: of `report_schema`, or of `arrival_schema` for reports that nobody has looked at.

    Raises:
      SchemaMismatchError: if a column is missing or has another type.
    """
    for field in schema:
        found = find(table.schema, field.name, where)
        if found.type != field.type:
            raise mismatch(field.name, where, f"be {field.type}", str(found.type), "write it as encode does")
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
