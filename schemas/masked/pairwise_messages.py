"""Additional messages of clients with pairwise masks: keys, sealed letters, and shares for unmasking.

The aggregator forwards keys, which are public, and letters, which are sealed to the neighbor's key.
Only the clients' role gets shares: all of them together reveal the sum of those present, and no more.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ProtocolError

PINNED_SCHEMA = pa.schema(
    [pa.field("sender", pa.binary(), nullable=False), pa.field("values", pa.large_binary(), nullable=False)]
)
LETTER_BYTES = 120
"""Length of a letter: salt, the shares of key and seed, and an authentication tag."""


class Leg(enum.StrEnum):
    """Steps of a round with pairwise masks, by the messages that it waits for."""

    KEYS = "keys"
    LETTERS = "letters"
    MESSAGES = "messages"
    SHARES = "shares"


class SenderKeys(NamedTuple):
    """Public keys of one sender: its pseudonym in the round, one key for masks, one for letters."""

    sender: bytes
    mask: bytes
    letters: bytes


class Letter(NamedTuple):
    """Sealed shares of one sender for one of its neighbors, both numbered in the order of pseudonyms."""

    sender: int
    receiver: int
    sealed: bytes


class HandedOut(NamedTuple):
    """Share that a neighbor reveals: of the owner's seed if it is present, else of its key; 4 bytes per limb."""

    owner: int
    holder: int
    present: bool
    share: bytes


Sent = TypeVar("Sent", SenderKeys, Letter, HandedOut)
_TYPES = {bytes: pa.binary(), int: pa.int64(), bool: pa.bool_()}


def schema_of(kind: type[Sent]) -> pa.Schema:
    """Returns the columns of a file of such messages."""
    types = {"round": pa.string()} | {name: _TYPES[type_] for name, type_ in kind.__annotations__.items()}
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in types.items()])


def sent_to_table(rows: Sequence[Sent], kind: type[Sent], path: str) -> pa.Table:
    """Returns one row per message, after the path of the round.

    Args:
      rows: messages of one kind.
      kind: their class.
      path: path of the round.
    """
    return pa.Table.from_pylist([{"round": path} | row._asdict() for row in rows], schema=schema_of(kind))


def sent_from_table(table: pa.Table, kind: type[Sent], path: str) -> list[Sent]:
    """Inverse of `sent_to_table`.

    Raises:
      ProtocolError: if the rows aren't messages of this kind and round.
    """
    rows = table.to_pylist() if table.schema.equals(schema_of(kind)) else [{"round": ""}]
    if any(row.pop("round") != path for row in rows):
        raise ProtocolError(f"files of round {path} must hold what its clients sent, got others; remove them.")
    return [kind(**row) for row in rows]


def pinned_to_table(batches: Sequence[tuple[Sequence[bytes], NDArray[np.int64]]]) -> pa.Table:
    """Returns one row per sender: its name, and the bytes of its statistic.

    Args:
      batches: (names, int64 of shape (n_names, size)).
    """
    names = [name for batch in batches for name in batch[0]]
    values = [row.tobytes() for batch in batches for row in batch[1].astype("<i8")]
    return pa.table([pa.array(c, f.type) for c, f in zip((names, values), PINNED_SCHEMA, strict=True)], PINNED_SCHEMA)


def pinned_from_table(table: pa.Table, size: int) -> tuple[list[bytes], NDArray[np.int64]]:
    """Returns the names of senders, and their statistics, int64 of shape (n_names, size).

    Raises:
      ProtocolError: if the table has other columns, or statistics of another size.
    """
    values: list[bytes] = table.column("values").to_pylist() if table.schema.equals(PINNED_SCHEMA) else [b""]
    if {len(value) for value in values} - {8 * size}:
        raise ProtocolError(f"pinned statistics must have {size} words, got another number; open a new run.")
    statistics = np.frombuffer(b"".join(values), dtype="<i8").astype(np.int64).reshape(len(values), size)
    return table.column("sender").to_pylist(), statistics
