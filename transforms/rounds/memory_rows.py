"""Rows in memory, in the same blocks as a reader would find in a file. Needs no Beam."""

import itertools
import types
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.columns import group_by_client
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.tables.shard_rows import CLIENT_ID_BYTES, Types, batch_rows

GROUP_ROWS = 1 << 16
"""Rows of a row group, and of a block if clients are grouped, not counting those of its last client."""


class Columns(NamedTuple):
    """Rows as their owner has them.

    Attributes:
      points: shape (n_rows, n_features), float32 or float64, feature units.
      clients: id of each row; None at record level.
      beside: further columns by name, n_rows long each.
    """

    points: NDArray[np.floating]
    clients: pa.ChunkedArray | None = None
    beside: Mapping[str, pa.Array] = types.MappingProxyType({})

    def table(self, contract: TableContract) -> pa.Table:
        """Returns the columns of a contract, without clients."""
        if contract.feature_list is not None:
            # A copy, since the owner may write to the array while rounds run, and all rounds must read the same rows.
            flat = pa.array(np.array(self.points, order="C").reshape(-1))
            features = {contract.feature_list: pa.FixedSizeListArray.from_arrays(flat, self.points.shape[1])}
        else:
            features = dict(zip(contract.features, map(pa.array, self.points.T), strict=True))
        return pa.table(features | dict(self.beside))

    def parts(self) -> Iterator[bytes | memoryview]:
        """Yields all that distinguishes these rows from others: types, shapes and bytes, client ids included."""
        points = np.ascontiguousarray(self.points)
        yield encode_label("dapple: rows in memory", points.dtype.str, str(points.shape))
        yield points.reshape(-1).view(np.uint8).data
        others = dict(self.beside) | ({} if self.clients is None else {"": self.clients.combine_chunks()})
        for name, column in sorted(others.items()):
            content = pa.record_batch([column], names=[name])
            yield encode_label(name, content.schema.serialize().to_pybytes(), content.serialize().to_pybytes())


class MemoryRows:
    """All rows of a run, each once per iteration: the blocks that a reader finds in a Parquet file of them.

    In such a file no client is in more than one row group.

    Args:
      rows: of the run.
      contract: reads them.

    Raises:
      InputError: for rows that break the contract, for no rows, or for more than a sum can hold.
    """

    def __init__(self, rows: Columns, contract: TableContract):
        n_rows = len(rows.points)
        if not n_rows:
            raise InputError("The data have no rows; pass at least one row.")
        lattice.check_rows(n_rows)
        self._blocks = tuple(_blocks(rows, contract))

    def __iter__(self) -> Iterator[ClientBlock]:
        return iter(self._blocks)


def _blocks(rows: Columns, contract: TableContract) -> Iterator[ClientBlock]:
    table, n_rows = rows.table(contract), len(rows.points)
    offsets = np.arange(n_rows + 1, dtype=np.int64)
    if contract.by_client and rows.clients is not None:
        order, offsets, _ = group_by_client(rows.clients)
        numbers = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        table = table.take(pa.array(order)).append_column(contract.client_id, pa.array(numbers))
    starts = np.searchsorted(offsets, np.arange(0, n_rows, GROUP_ROWS))
    for start, stop in itertools.pairwise(np.unique(np.append(offsets[starts], n_rows)).tolist()):
        size = stop - start
        n_bytes = (8 * contract.width + CLIENT_ID_BYTES) * size
        step = size if contract.by_client else batch_rows(ShardRef("", 0, size, n_bytes=n_bytes))
        for first in range(start, stop, step):
            yield contract.to_block(table.slice(first, min(step, stop - first)), "X")


class PublicRows(NamedTuple):
    """Public server rows in memory, with the interface of `ServerFiles`.

    Attributes:
      columns: of the rows.
      names: of their features in the job; a string for one column of lists.
    """

    columns: Columns
    names: str | tuple[str, ...]

    @property
    def path(self) -> str:
        """Name in messages."""
        return "server_data"

    def points(self, contract: TableContract) -> NDArray[np.float64]:
        """Returns all rows, shape (q, n_features), feature units; raises InputError if rows break the contract."""
        return contract.to_points(self.columns.table(contract), self.path).astype(np.float64)

    def rows(self, types: Types) -> pa.Table:
        """Returns these columns of all rows."""
        return pa.table({name: pa.array(self.columns.points[:, self.names.index(name)]) for name in types})
