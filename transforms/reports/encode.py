"""Reports of the clients of a lake, as devices would send them.

Input element: `ShardRef`. Output element: `ReportBatch`. Guarantee: the law of each client's report satisfies
local_epsilon, whatever the client's row is. This transform is a declared exception to the one noise stage: the
randomness of a report belongs to the client.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.reports.parameters import ReportParameters
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.numerics.reports import encoder as report_encoder
from dapple_dp.transforms.numerics.reports.coins import KeyedCoins
from dapple_dp.transforms.on_beam.steps import DeclaredMechanism
from dapple_dp.transforms.on_beam.workers import HeldKeyFn
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.reports.batches import ReportBatch
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn
from dapple_dp.transforms.tables import client_ids
from dapple_dp.transforms.tables.shard_rows import read_columns, shard_name


class KeyedClientFn(SmallBlocksFn, HeldKeyFn):
    """Reads one row per client and encodes it with coins that follow from the key."""

    clients_at_once = 4096

    def __init__(self, parameters: Any, contract: TableContract, key_uri: str):
        super().__init__(KeyFile(key_uri))
        self._parameters = parameters
        self._contract = contract

    def process(self, shard: ShardRef) -> Iterator[Any]:
        """Batches of what the clients of a shard send; the same shard gives the same again."""
        if shard == EMPTY_SHARD:
            return
        key = self._held_key()
        points, clients = self._clients_of(shard)
        for start in range(0, len(points), self.clients_at_once):
            rows = slice(start, start + self.clients_at_once)
            yield self._encoded(points[rows], clients[rows], key)

    def _encoded(self, points: NDArray[np.floating], clients: list[bytes], key: bytes) -> Any:
        raise NotImplementedError

    def _clients_of(self, shard: ShardRef) -> tuple[NDArray[np.floating], list[bytes]]:
        points, ids = self._contract.to_rows(read_columns(shard, self._contract.types), shard_name(shard))
        raw = client_ids.bytes_of(client_ids.canonical(ids))
        if len(set(raw)) < len(raw):
            raise InputError(f"{shard_name(shard)} must hold one row per client, got several; group the rows first.")
        return points, raw


class _EncodeFn(KeyedClientFn):
    def _encoded(self, points: NDArray[np.floating], clients: list[bytes], key: bytes) -> ReportBatch:
        reports = keyed_reports(points, clients, self._parameters, key)
        return ReportBatch.of(reports, self._parameters)


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
    """32 bytes that only the key's holder can predict; `person` has at most 16 bytes, the collection always 16."""
    length = len(client).to_bytes(8, "little")
    return hashlib.blake2b(collection + length + client + point, key=key, digest_size=32, person=person).digest()


@dataclasses.dataclass(eq=False, kw_only=True)
class EncodeClients(DeclaredMechanism):
    """`ShardRef`s → batches of what clients send.

    Attributes:
      parameters: of the collection, public; the law of all that a client sends.
      contract: by client; no client has two rows.
      key_uri: where workers find the key of coins.

    Windowing: global. Cost: one pass.
    """

    parameters: Any
    contract: TableContract
    key_uri: str
    _encodes: ClassVar[type[KeyedClientFn]]

    def declared(self) -> Any:
        """The parameters of the reports, which state the law of their noise."""
        return self.parameters

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Encodes every shard on its own."""
        return shards | "Encode" >> beam.ParDo(self._encodes(self.parameters, self.contract, self.key_uri))


class EncodeReports(EncodeClients):
    """`ShardRef`s → `ReportBatch`es, one report per client, under its `ReportParameters`.

    Privacy: local_epsilon per client, for replacing the client's row.
    """

    _encodes = _EncodeFn
