"""References to pieces of the input; they travel through the pipeline instead of rows."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ShardRef:
    """Successive row groups of one Parquet file; one row group, unless a client lies in several.

    Attributes:
      path: file on any Beam filesystem.
      row_group: index of the first one in the file, from 0.
      n_rows: rows by the file's footer, all row groups together. Private to the operator: never in an output.
      n_row_groups: how many, >= 1.
      n_bytes: about the size of features and client ids in memory. Private like `n_rows`.
    """

    path: str
    row_group: int
    n_rows: int
    n_row_groups: int = 1
    n_bytes: int = 0

    @property
    def row_groups(self) -> list[int]:
        """Indices of the row groups."""
        return list(range(self.row_group, self.row_group + self.n_row_groups))


EMPTY_SHARD = ShardRef("", 0, 0)
"""A public shard without rows: part of every listing, so that a statistic of no data is zero and not absent."""
