"""References to pieces of the input; they travel through the pipeline instead of rows."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ShardRef:
    """One row group of one Parquet file.

    Attributes:
      path: file on any Beam filesystem.
      row_group: index in the file, from 0.
      n_rows: rows by the file's footer. Private to the operator: never in an output.
    """

    path: str
    row_group: int
    n_rows: int


EMPTY_SHARD = ShardRef("", 0, 0)
"""A public shard without rows: part of every listing, so that a statistic of no data is zero and not absent."""
