"""Rows of one shard in the form that statistics read."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ClientBlock(NamedTuple):
    """Rows of one shard, grouped by client when the privacy unit is `client`.

    Attributes:
      points: shape (n_rows, n_features), float32 or float64, feature units, finite; or int32, quantized already.
      offsets: int64, shape (n_clients + 1,): rows offsets[i]:offsets[i + 1] are client i's; None for `record`.
      clients: ids of the clients, in their order, as the reader has them; None if not needed.
    """

    points: NDArray[Any]
    offsets: NDArray[np.int64] | None = None
    clients: Any = None

    @property
    def client_offsets(self) -> NDArray[np.int64]:
        """`offsets`; raises TypeError for record-level blocks."""
        if self.offsets is None:
            raise TypeError("client statistics must be given a block with offsets; read it with privacy unit client.")
        return self.offsets

    @property
    def n_clients(self) -> int:
        """Number of clients; raises TypeError for record-level blocks."""
        return len(self.client_offsets) - 1
