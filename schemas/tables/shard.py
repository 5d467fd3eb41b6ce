"""References to pieces of the input; they travel through the pipeline instead of rows."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ShardRef:
    """Successive row groups of one Parquet file; one row group, unless a client is in several.

    Attributes:
      path: file on any Beam filesystem.
      row_group: index of the first one in the file, from 0.
      n_rows: rows by the file's footer, all row groups together. Private to the operator: never in an output.
      n_row_groups: how many, >= 1.
      n_bytes: about the size of features and client ids in memory. Private like `n_rows`.
      file: the real file that is opened; `path` is its name in messages and has the folders of its partitions.
      seal: text of the `FileSeal` that every opening is compared with; no file has the empty one.
      widest: bytes that texts of one row can have at most, as far as a few bytes of the file can repeat them.
      csv: text of the `CsvForm` of a CSV file.
      absent: columns of the table that the file lacks since they were added later, null in its rows; an Arrow schema as
        hex, or none.
    """

    path: str
    row_group: int
    n_rows: int
    n_row_groups: int = 1
    n_bytes: int = 0
    file: str = ""
    seal: str = ""
    widest: int = 0
    csv: str = ""
    absent: str = ""

    @property
    def row_groups(self) -> list[int]:
        """Indices of the row groups."""
        return list(range(self.row_group, self.row_group + self.n_row_groups))


EMPTY_SHARD = ShardRef("", 0, 0)
"""A public shard without rows: part of every listing, so that a statistic of no data is zero and not absent."""
