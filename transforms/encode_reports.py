"""Reports of the clients of a lake, as devices would send them.

Input element: `ShardRef`. Output element: `ReportBatch`. Guarantee: the law of each client's report satisfies
local_epsilon, whatever the client's row is. This transform is a declared exception to the one noise stage: the
randomness of a report belongs to the client.
"""

import dataclasses
import hashlib
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from schemas.errors import InputError
from schemas.report_parameters import ReportParameters
from schemas.shard import EMPTY_SHARD, ShardRef
from schemas.table import TableContract
from transforms import client_ids
from transforms.held_key import HeldKeyFn
from transforms.numerics import report_encoder
from transforms.numerics.report_coins import KeyedCoins
from transforms.read import read_columns, shard_name
from transforms.report_batches import ReportBatch

_CLIENTS_AT_ONCE = 4096


class KeyedClientFn(HeldKeyFn):
    """Reads one row per client, whose coins follow from the key."""

    def __init__(self, contract: TableContract, key_uri: str):
        super().__init__(key_uri)
        self._contract = contract

    def setup(self) -> None:
        """Reads the key on the worker; blocks are small, so BLAS gets one thread."""
        super().setup()
        threadpool_limits(limits=1)

    def clients_of(self, shard: ShardRef) -> tuple[NDArray[np.floating], list[bytes], bytes]:
        """Points and ids of the clients of a shard, and the key."""
        key = self._held_key()
        points, ids = self._contract.to_rows(read_columns(shard, list(self._contract.columns)), shard_name(shard))
        octets = _octets_of(client_ids.canonical(ids))
        if len(set(octets)) < len(octets):
            raise InputError(f"{shard_name(shard)} must hold one row per client, got several; group the rows first.")
        return points, octets, key


class _EncodeFn(KeyedClientFn):
    """Makes the reports of all clients of a shard."""

    def __init__(self, parameters: ReportParameters, contract: TableContract, key_uri: str):
        super().__init__(contract, key_uri)
        self._parameters = parameters

    def process(self, shard: ShardRef) -> Iterator[ReportBatch]:
        """The same shard gives the same reports again."""
        if shard == EMPTY_SHARD:
            return
        points, octets, key = self.clients_of(shard)
        for start in range(0, len(points), _CLIENTS_AT_ONCE):
            rows = slice(start, start + _CLIENTS_AT_ONCE)
            reports = keyed_reports(points[rows], octets[rows], self._parameters, key)
            yield ReportBatch.of(reports, self._parameters)


def keyed_reports(
    points: NDArray[np.floating], clients: list[bytes], parameters: ReportParameters, key: bytes
) -> report_encoder.Reports:
    """Reports whose nonces and coins follow from a key, the client and the collection.

    Coins follow from the point, too: a client whose point has changed in between sends a report that is independent
    of the first one, not one that shows the difference.

    Args:
      points: shape (n, n_features).
      clients: ids, distinct.
      parameters: their public key names the collection.
      key: 32 secret bytes.
    """
    exact = np.ascontiguousarray(points, dtype="<f8")
    nonces = [_digest(key, b"report-nonce", parameters.key, client, b"")[:8] for client in clients]
    seeds = [
        _digest(key, b"report-coins", parameters.key, client, row.tobytes())
        for client, row in zip(clients, exact, strict=True)
    ]
    words = np.frombuffer(b"".join(nonces), dtype="<u8").astype(np.uint64)
    return report_encoder.encode(points, parameters, words, KeyedCoins(seeds))


def _digest(key: bytes, person: bytes, collection: bytes, client: bytes, point: bytes) -> bytes:
    """32 octets that only the key's holder can predict; `person` has at most 16 bytes, the collection always 16."""
    length = len(client).to_bytes(8, "little")
    return hashlib.blake2b(collection + length + client + point, key=key, digest_size=32, person=person).digest()


def _octets_of(ids: pa.Array) -> list[bytes]:
    """Canonical ids as octets, those of different kinds never equal."""
    kind = str(client_ids.kind_of(ids)).encode()
    if pa.types.is_integer(ids.type):
        return [kind + str(value).encode() for value in ids.to_pylist()]
    return [kind + (value.encode() if isinstance(value, str) else value) for value in ids.to_pylist()]


@dataclasses.dataclass(eq=False, kw_only=True)
class EncodeReports(beam.PTransform):
    """`ShardRef`s → `ReportBatch`es, one report per client.

    Attributes:
      parameters: public.
      contract: by client; no client has two rows.
      key_uri: where workers find the key of nonces and coins.

    Windowing: global. Privacy: local_epsilon per client, for replacing the client's row. Cost: one pass.
    """

    parameters: ReportParameters
    contract: TableContract
    key_uri: str

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Encodes every shard by itself."""
        return shards | "Encode" >> beam.ParDo(_EncodeFn(self.parameters, self.contract, self.key_uri))
