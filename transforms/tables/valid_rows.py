"""Valid rows with their places and with columns that are no features, for jobs whose output stays private."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.tables import columns
from schemas.tables.contract import TableContract
from schemas.tables.shard import EMPTY_SHARD, ShardRef
from transforms.files.formats.csv_file import CsvFile
from transforms.tables.shard_rows import Types, open_shard, read_batches, shard_name


class ValidRows(NamedTuple):
    """Some successive rows of a file, invalid ones left out.

    Attributes:
      points: shape (n_rows, n_features), feature units, finite.
      places: int64, shape (n_rows,): positions in the file, from 0.
      others: plain columns that are no features, n_rows long.
    """

    points: NDArray[np.floating]
    places: NDArray[np.int64]
    others: pa.Table


def read_valid_rows(shard: ShardRef, contract: TableContract, others: Types | None = None) -> Iterator[ValidRows]:
    """Rows of one shard, a few thousand at a time; none for the empty shard.

    Args:
      shard: of a listing.
      contract: which features, and what becomes of invalid rows; not by client.
      others: columns to read besides.

    Raises:
      InputError: for null or non-finite features, wrong types or missing columns, naming file, row group, column.
    """
    if shard == EMPTY_SHARD:
        return
    where, start = shard_name(shard), _first_row(shard)
    others = others or {}
    for table in read_batches(shard, contract.types | {n: t for n, t in others.items() if n not in contract.columns}):
        found = {name: columns.plain(table.column(columns.find(table.schema, name, where).name)) for name in others}
        points, valid = contract.to_valid(table, where)
        kept = pa.table({name: column.filter(pa.array(valid)) for name, column in found.items()})
        yield ValidRows(points, start + np.flatnonzero(valid), kept)
        start += table.num_rows


def _first_row(shard: ShardRef) -> int:
    """Position of the shard's first row in its file."""
    with open_shard(shard) as file:
        return (
            0
            if isinstance(file, CsvFile)
            else sum(file.metadata.row_group(index).num_rows for index in range(shard.row_group))
        )
