"""Input contract of labeled rows: that of a table, with a column of classes."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.columns import find, is_text, mismatch, plain, plain_type
from dapple_dp.schemas.tables.contract import TableContract


class LabeledRows(NamedTuple):
    """Rows of one shard, in its order.

    Attributes:
      points: shape (n_rows, n_features), float32 or float64, finite.
      labels: int64, shape (n_rows,), in [0, n_classes).
      ids: client of each row, without nulls.
      groups: public group of each row's client; None if the contract has no such column.
    """

    points: NDArray[np.floating]
    labels: NDArray[np.int64]
    ids: pa.ChunkedArray
    groups: pa.ChunkedArray | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LabeledContract:
    """Columns of a table of labeled rows.

    Attributes:
      table: contract for features and client ids, with unit client.
      label: column of class numbers.
      n_classes: public number of classes.
      group: column with a public group of the client, integers or strings; or None.
      feature_norm: L2 norm, >= 1, to which longer rows are shortened; None for the default.
    """

    table: TableContract
    label: str
    n_classes: int
    group: str | None = None
    feature_norm: float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        return (*self.table.columns, self.label, *([] if self.group is None else [self.group]))

    @property
    def types(self) -> dict[str, pa.DataType]:
        """`columns`, with the types by which files without types are read."""
        others = {name: pa.string() for name in self.columns}
        return others | self.table.types | {self.label: pa.int64()}

    def check_schema(self, schema: pa.Schema, where: str) -> None:
        """Validates names and types; other columns are ignored.

        Raises:
          SchemaMismatchError: if a column is missing, ambiguous or of another type.
        """
        self.table.check_schema(schema, where)
        label = plain_type(find(schema, self.label, where).type)
        if not pa.types.is_integer(label):
            raise mismatch(self.label, where, "hold integer classes", str(label), "cast it")
        if self.group is not None:
            group = plain_type(find(schema, self.group, where).type)
            if not (pa.types.is_integer(group) or is_text(group)):
                raise mismatch(self.group, where, "hold integers or strings", str(group), "cast it")

    def to_rows(self, table: pa.Table, where: str) -> LabeledRows:
        """Returns the valid rows of a table.

        Args:
          table: has at least the columns of the contract.
          where: name of the table in messages.

        Raises:
          SchemaMismatchError: if the table breaks the contract.
          InputError: if there is an invalid row and invalid rows are not dropped.
        """
        self.check_schema(table.schema, where)
        points, finite = self.table.features_only().to_valid(table, where)
        labels, labeled = self._labels(table)
        named = self._named(table)
        valid = finite & labeled & named
        if self.table.on_invalid_rows is InvalidRows.FAIL and not valid.all():
            raise self._invalid(where, labeled=bool(labeled.all()))
        names = [str(self.table.client_id), *([] if self.group is None else [self.group])]
        kept = table.select(names)
        if not valid.all():
            points, labels, kept = points[valid[finite]], labels[valid], kept.filter(pa.array(valid))
        groups = None if self.group is None else plain(kept.column(self.group))
        return LabeledRows(points, labels, kept.column(str(self.table.client_id)), groups)

    def _labels(self, table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the classes, 0 for invalid ones, and a mask of the valid ones."""
        column = plain(table.column(self.label))
        inside = pc.and_(pc.greater_equal(column, 0), pc.less(column, self.n_classes))
        labeled = pc.fill_null(inside, False).combine_chunks().to_numpy(zero_copy_only=False)
        known = pc.if_else(pa.chunked_array([pa.array(labeled)]), column, 0)
        return known.cast(pa.int64()).to_numpy(), labeled

    def _named(self, table: pa.Table) -> NDArray[np.bool_]:
        names = [table.column(str(self.table.client_id))]
        if self.group is not None:
            names.append(table.column(self.group))
        known = [pc.is_valid(plain(name)).to_numpy() for name in names]
        return np.logical_and.reduce(known)

    def _invalid(self, where: str, *, labeled: bool) -> InputError:
        """Builds the error for an invalid row; names the column."""
        named = str(self.table.client_id) if self.group is None else f"{self.table.client_id}' or '{self.group}"
        name, rule = named, "name a client in every row" if self.group is None else "name a client and its group"
        if not labeled:
            name, rule = self.label, f"hold integers from 0 to {self.n_classes - 1} only"
        return InputError(
            f"column '{name}' of {where} must {rule}, got a null or another value; correct the data or data.classes, "
            "or set data.on_invalid_rows to drop."
        )
