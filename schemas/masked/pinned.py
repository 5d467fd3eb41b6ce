"""What a party with pairwise masks pins for a round: its senders, and their statistics."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.errors import ProtocolError

PINNED_SCHEMA = pa.schema(
    [pa.field("sender", pa.binary(), nullable=False), pa.field("values", pa.large_binary(), nullable=False)]
)


def pinned_to_table(batches: Sequence[tuple[Sequence[bytes], NDArray[np.int64]]]) -> pa.Table:
    """One row per sender: its name, and octets of its statistic.

    Args:
      batches: (names, int64 of shape (n_names, size)).
    """
    names = [name for batch in batches for name in batch[0]]
    values = [row.tobytes() for batch in batches for row in batch[1].astype("<i8")]
    return pa.table([pa.array(c, f.type) for c, f in zip((names, values), PINNED_SCHEMA, strict=True)], PINNED_SCHEMA)


def pinned_from_table(table: pa.Table, size: int) -> tuple[list[bytes], NDArray[np.int64]]:
    """Names of senders, and int64 of shape (n_names, size).

    Raises:
      ProtocolError: if it is another table, or statistics are of another size.
    """
    values: list[bytes] = table.column("values").to_pylist() if table.schema.equals(PINNED_SCHEMA) else [b""]
    if {len(each) for each in values} - {8 * size}:
        raise ProtocolError(f"pinned statistics must have {size} words, got others; open a new run.")
    statistics = np.frombuffer(b"".join(values), dtype="<i8").astype(np.int64).reshape(len(values), size)
    return table.column("sender").to_pylist(), statistics
