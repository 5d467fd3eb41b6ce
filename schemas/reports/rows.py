"""Rows of reports as Parquet: what is written, and what is accepted."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.reports.parameters import ReportParameters, ReportVariant
from schemas.tables.columns import find, mismatch, plain

NONCE = "nonce"
INDEX = "index"
CODEWORD = "codeword"
REPORTS_FOLDER = "reports.parquet"
PARAMETERS_FILE = "parameters.json"


def report_schema(parameters: ReportParameters) -> pa.Schema:
    """Columns of a file of reports: `nonce` uint64 and `index` uint16, or `codeword` octets for privunit."""
    nonce = pa.field(NONCE, pa.uint64(), nullable=False)
    if parameters.variant is ReportVariant.PRIVUNIT:
        return pa.schema([nonce, pa.field(CODEWORD, pa.binary(parameters.report_bytes - 8), nullable=False)])
    return pa.schema([nonce, pa.field(INDEX, pa.uint16(), nullable=False)])


def to_table(
    nonces: NDArray[np.uint64], payload: NDArray[np.uint16] | NDArray[np.uint8], parameters: ReportParameters
) -> pa.Table:
    """Reports as a table.

    Args:
      nonces: shape (n,).
      payload: indices, shape (n,), or codewords as octets, shape (n, width / 8).
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
    table: pa.Table, parameters: ReportParameters, where: str
) -> tuple[NDArray[np.uint64], NDArray[np.uint16] | NDArray[np.uint8]]:
    """Nonces and payload of the rows that can be reports; other rows are left out.

    Reports come from devices that nobody controls: a null, a codeword that does not exist or octets of another
    length count as no report, and do not stop the others. Other columns are not looked at.

    Raises:
      SchemaMismatchError: if a column is missing or has another type.
    """
    schema = report_schema(parameters)
    for field in schema:
        found = find(table.schema, field.name, where)
        if found.type != field.type:
            raise mismatch(field.name, where, f"be {field.type}", str(found.type), "write it as encode does")
    columns = {field.name: plain(table.column(field.name)).combine_chunks() for field in schema}
    valid = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns.values()])
    usable = {name: column.filter(pa.array(valid)) for name, column in columns.items()}
    nonces = usable[NONCE].to_numpy(zero_copy_only=False)
    if parameters.variant is ReportVariant.PRIVUNIT:
        octets = b"".join(usable[CODEWORD].to_pylist())
        return nonces, np.frombuffer(octets, dtype=np.uint8).reshape(len(nonces), parameters.report_bytes - 8)
    indices = usable[INDEX].to_numpy(zero_copy_only=False)
    sizes = [choice.size for choice, _ in parameters.choices]
    known = indices < int(np.prod(sizes))
    return nonces[known], indices[known]
