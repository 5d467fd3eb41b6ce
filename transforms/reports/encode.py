"""Encodes the rows of clients as reports, as devices would send them.

Input element: `ShardRef`. Output element: `ReportBatch`. Guarantee: the law of each client's report satisfies
local_epsilon for every row. This transform is a declared exception to the one noise stage: the
randomness of a report belongs to the client.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

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

_CLIENTS_AT_ONCE = 4096


class _EncodeFn(SmallBlocksFn, HeldKeyFn):
    """Reads one row per client and encodes it with coins that follow from the key."""

    def __init__(self, parameters: ReportParameters, contract: TableContract, key_uri: str):
        super().__init__(KeyFile(key_uri))
        self._parameters = parameters
        self._contract = contract

    def process(self, shard: ShardRef) -> Iterator[ReportBatch]:
        """Yields batches of the reports of a shard's clients; the same shard gives the same reports again."""
        if shard == EMPTY_SHARD:
            return
        key = self._held_key()
        points, clients = self._clients_of(shard)
        for start in range(0, len(points), _CLIENTS_AT_ONCE):
            rows = slice(start, start + _CLIENTS_AT_ONCE)
            reports = keyed_reports(points[rows], clients[rows], self._parameters, key)
            yield ReportBatch.of(reports, self._parameters)

    def _clients_of(self, shard: ShardRef) -> tuple[NDArray[np.floating], list[bytes]]:
        points, ids = self._contract.to_rows(read_columns(shard, self._contract.types), shard_name(shard))
        raw = client_ids.bytes_of(client_ids.canonical(ids))
        if len(set(raw)) < len(raw):
            raise InputError(f"{shard_name(shard)} must hold one row per client, got several; group the rows first.")
        return points, raw


def keyed_reports(
    points: NDArray[np.floating], clients: list[bytes], parameters: ReportParameters, key: bytes
) -> report_encoder.Reports:
    """Encodes reports whose nonces and coins follow from a key, the client and the collection.

    Coins also depend on the point: a client whose point has changed in between sends a report that is independent
    of the first one, not one that reveals the difference.

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
    """Returns 32 bytes that only the key's holder can predict; `person` has at most 16 bytes, the collection 16."""
    length = len(client).to_bytes(8, "little")
    return hashlib.blake2b(collection + length + client + point, key=key, digest_size=32, person=person).digest()


@dataclasses.dataclass(eq=False, kw_only=True)
class EncodeReports(DeclaredMechanism):
    """`ShardRef`s → `ReportBatch`es, one report per client.

    Attributes:
      parameters: of the collection, public; the law of everything that a client sends.
      contract: by client; no client has two rows.
      key_uri: place of the key of coins, for workers.

    Windowing: global. Privacy: local_epsilon per client, for replacing the client's row. Cost: one pass.
    """

    parameters: ReportParameters
    contract: TableContract
    key_uri: str

    def declared(self) -> Any:
        """Returns the parameters of the reports, which state the law of their noise."""
        return self.parameters

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Encodes every shard separately."""
        return shards | "Encode" >> beam.ParDo(_EncodeFn(self.parameters, self.contract, self.key_uri))
