"""Rows of one shard as statistics read them, and how rows are grouped by client."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.tables.columns import plain


class ClientBlock(NamedTuple):
    """Rows of one shard, grouped by client when the privacy unit is `client`.

    Attributes:
      points: shape (n_rows, n_features), float32 or float64, feature units, finite; or int32, rows that were quantized
        already, for statistics whose frame takes these.
      offsets: int64, shape (n_clients + 1,): rows offsets[i]:offsets[i + 1] are client i's; None when the
        privacy unit is `record`.
      clients: ids of the clients, in their order, as the file stores them; None where nobody asks for them.
    """

    points: NDArray[Any]
    offsets: NDArray[np.int64] | None = None
    clients: pa.Array | None = None

    @property
    def client_offsets(self) -> NDArray[np.int64]:
        """`offsets`; raises TypeError for record-level blocks."""
        if self.offsets is None:
            raise TypeError("client statistics must be given a block with offsets; read it with privacy unit client.")
        return self.offsets

    @property
    def n_clients(self) -> int:
        """Number of clients in the block; raises TypeError for record-level blocks."""
        return len(self.client_offsets) - 1


def group_by_client(ids: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
    """Stable grouping of rows by client.

    Args:
      ids: shape (n_rows,), integers, strings or bytes without nulls; dictionary-encoded or not.

    Returns:
      `order`, int64, shape (n_rows,): rows sorted by client, stably; `offsets`, int64, shape (n_clients + 1,):
      order[offsets[i]:offsets[i + 1]] are the rows of client i; `unique`, length n_clients: the clients' ids, in
      the order in which they first appear.

    Raises:
      ValueError: if an id is null.

    Example:
      >>> group_by_client(pa.chunked_array([["b", "a"], ["b"]]))[0].tolist()
      [0, 2, 1]
    """
    column = plain(ids)
    if column.null_count:
        raise ValueError("ids must have no nulls, got some; drop those rows first.")
    encoded = column.combine_chunks().dictionary_encode()
    clients = encoded.indices.to_numpy()
    counts = np.bincount(clients, minlength=len(encoded.dictionary))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return np.argsort(clients, kind="stable").astype(np.int64, copy=False), offsets, encoded.dictionary
