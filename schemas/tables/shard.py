"""References to parts of the input, which pass through the pipeline instead of rows."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ShardRef:
    """Consecutive row groups of one Parquet file; just one, unless a client spans several.

    Attributes:
      path: file on any Beam filesystem.
      row_group: index of the first row group in the file, from 0.
      n_rows: rows in all these row groups, by the file's footer. Private to the operator: never in an output.
      n_row_groups: number of row groups, >= 1.
      n_bytes: approximate size of features and client ids in memory. Private like `n_rows`.
      file: path of the file to open; `path` is its name in messages and contains the folders of its partitions.
      seal: text of the `FileSeal` that the file is compared with whenever it is opened; empty for no file.
      widest: upper bound on the bytes of one row's texts, which a small compressed file can repeat many times.
      csv: text of the `CsvForm`, for a CSV file.
      absent: columns that were added to the table after the file was written, null in its rows; an Arrow schema as
        hex, or empty.
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
"""A public shard without rows, part of every listing: a statistic of no data is then zero instead of absent."""
