"""The client list of an epoch: a private file with the windows in which each client counted, and the rows that remain.

Ids are stored as digests under the epoch's salt, so that nobody can choose ids to merge two clients. The salt is in
the same file, so the file is as private as the ids. It is written for a window before noise is drawn, and read by all
readers of the window's rows.
"""

import dataclasses
import functools
import hashlib
import json
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.tables.participation import Participation
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.formats.arrays_file import arrays_to_bytes
from dapple_dp.transforms.numerics.tables.participation import LONG_AGO, Counted
from dapple_dp.transforms.tables import client_ids, hive

SALT_BYTES = 32
_DIGEST_BYTES = 16


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientList:
    """The clients that counted in an epoch, up to one of its windows.

    Attributes:
      facts: identity of the file: name of the epoch, number of the window, contract.
      salt: of the digests; 32 secret bytes.
      kind: of the ids, an `IdKind`; empty before the first id.
      counted: clients and windows.
    """

    facts: dict[str, Any]
    salt: bytes
    kind: str
    counted: Counted

    def to_bytes(self) -> bytes:
        """Returns the content of the file, for `from_bytes`."""
        return arrays_to_bytes(
            {
                "facts": np.frombuffer(json.dumps(self.facts, sort_keys=True).encode(), dtype=np.uint8),
                "salt": np.frombuffer(self.salt, dtype=np.uint8),
                "kind": np.frombuffer(self.kind.encode(), dtype=np.uint8),
                "digests": self.counted.digests,
                "windows": self.counted.windows.astype(np.int32),
                "times": self.counted.times.astype(np.int32),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, facts: dict[str, Any], refusal: Refusal) -> Self:
        """Inverse of `to_bytes`.

        Args:
          content: of the file.
          facts: facts that it must have.
          refusal: for another file.
        """
        arrays = untrusted.arrays_of(content, refusal)
        with refusal.covers():
            if json_schema.parse_as(arrays["facts"].tobytes(), dict[str, Any], refusal) != facts:
                raise MalformedError("that of another window")
            counted = Counted(arrays["digests"], arrays["windows"].astype(np.int64), arrays["times"].astype(np.int64))
            salt = arrays["salt"].tobytes()
            if len(salt) != SALT_BYTES or not _is_whole(counted):
                raise MalformedError("other arrays")
            return cls(facts=facts, salt=salt, kind=arrays["kind"].tobytes().decode(), counted=counted)


def _is_whole(counted: Counted) -> bool:
    """Returns whether arrays belong together."""
    digests, windows, times = counted
    shapes = digests.ndim == 1 and digests.dtype == np.dtype("S32") and digests.shape == windows.shape == times.shape
    return bool(shapes and (windows >= LONG_AGO).all() and (times >= 1).all())


def salted_digests(ids: pa.Array, salt: bytes) -> NDArray[np.bytes_]:
    """Returns digests of canonical ids without nulls under a salt, shape (n,), 32 hex digits; kinds never collide."""
    found = [
        hashlib.blake2b(each, digest_size=_DIGEST_BYTES, key=salt).hexdigest() for each in client_ids.bytes_of(ids)
    ]
    return np.array(found, dtype="S32")


def distinct_digests(column: pa.ChunkedArray, salt: bytes) -> tuple[str, NDArray[np.bytes_]]:
    """Returns the kind and the distinct digests of the clients in a column."""
    ids = pc.unique(client_ids.canonical(column.drop_null()))
    return str(client_ids.kind_of(ids)), salted_digests(ids, salt)


def counted_block(block: ClientBlock, path: str, participation: Participation) -> ClientBlock:
    """Returns the rows of those clients of a block that count in its window.

    Args:
      block: rows of one file, with the ids of their clients.
      path: of the file, in the folder of a window.
      participation: has the place of the client list.

    Raises:
      PrivacyFlowError: if the rows have no client ids, or belong to no window.
      InputError: if the client list isn't the one that was written for this run.
    """
    date = hive.folder_value(path, participation.column) if hive.has_folder(path, participation.column) else None
    if block.clients is None or date not in participation.dates:
        raise PrivacyFlowError(
            f"{path} must hold rows of the clients that count in a window of the epoch, and it holds others; nothing "
            "was released."
        )
    client_list = _read(participation.path, participation.digest)
    window = participation.index - participation.dates.index(date)
    ids = client_ids.canonical(pa.chunked_array([block.clients]))
    return _only(block, np.isin(salted_digests(ids, client_list.salt), client_list.counted.of(window)))


def _only(block: ClientBlock, keeps: NDArray[np.bool_]) -> ClientBlock:
    sizes = np.diff(block.client_offsets)
    offsets = np.concatenate([[0], np.cumsum(sizes[keeps])]).astype(np.int64)
    clients = None if block.clients is None else block.clients.filter(pa.array(keeps))
    return ClientBlock(block.points[np.repeat(keeps, sizes)], offsets, clients)


@functools.lru_cache(maxsize=2)
def _read(path: str, digest: str) -> ClientList:
    refusal = untrusted.staged_refusal(path)
    content = untrusted.read_bytes(path, refusal)
    if hashlib.sha256(content).hexdigest() != digest:
        raise refusal.because("another one")
    facts = json_schema.parse_as(untrusted.arrays_of(content, refusal)["facts"].tobytes(), dict[str, Any], refusal)
    return ClientList.from_bytes(content, facts, refusal)
