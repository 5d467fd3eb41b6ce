"""Clients and their labeled rows: lists the clients, locates their rows and reads them for a round.

Rows are never sent: the elements of a round are references. A worker reads the rows they point to, or keeps them
from the round before.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.clustered_fl.labeled_contract import LabeledContract, LabeledRows
from dapple_dp.schemas.clustered_fl.records import ClientRows
from dapple_dp.schemas.errors import InputError, PrivacyFlowError
from dapple_dp.schemas.tables.columns import group_by_client, plain
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bound_features
from dapple_dp.transforms.rounds import machine
from dapple_dp.transforms.tables import client_ids
from dapple_dp.transforms.tables.client_ids import IdKind
from dapple_dp.transforms.tables.shard_rows import read_columns, shard_name


class ClientPart(NamedTuple):
    """Rows of one client in one shard, without the rows; private.

    Attributes:
      client: id as text.
      kind: of the id.
      shard: of the rows.
      n_rows: number of rows.
      n_features: their number of features.
      group: public group of the client, as text; empty without groups.
      digest: of the rows, in hexadecimal.
    """

    client: str
    kind: str
    shard: ShardRef
    n_rows: int
    n_features: int
    group: str
    digest: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroup:
    """Clients whose rows are in the same shards, so that these shards are read once.

    Attributes:
      clients: (id as text, index among all clients), in the order of the indices.
      shards: sorted; a client's rows are those of the shards in this order.
    """

    clients: tuple[tuple[str, int], ...]
    shards: tuple[ShardRef, ...]


def _texts(ids: pa.Array) -> list[str]:
    """Returns canonical ids as text; bytes in hexadecimal."""
    return [each.hex() if isinstance(each, bytes) else str(each) for each in ids.to_pylist()]


def rows_at(rows: LabeledRows, own: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Returns features and labels of ascending rows; a view if the rows are contiguous."""
    if len(own) and own[-1] - own[0] + 1 == len(own):
        together = slice(int(own[0]), int(own[-1]) + 1)
        return rows.points[together], rows.labels[together]
    return rows.points[own], rows.labels[own]


def clients_of(rows: LabeledRows) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yields each client's id as text, and its rows, ascending."""
    order, offsets, unique = group_by_client(rows.ids)
    names = _texts(client_ids.canonical(pa.chunked_array([unique])))
    for name, start, stop in zip(names, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        yield name, order[start:stop]


def read_shard(shard: ShardRef, contract: LabeledContract) -> LabeledRows:
    """Reads one shard and bounds its rows before anything else uses them; raises InputError for an invalid row."""
    rows = contract.to_rows(read_columns(shard, contract.types), shard_name(shard))
    return rows._replace(points=bound_features(rows.points, contract.feature_norm))


def _inspect(shard: ShardRef, contract: LabeledContract) -> Iterator[ClientPart]:
    if shard == EMPTY_SHARD:
        return
    rows = read_shard(shard, contract)
    kind = client_ids.kind_of(client_ids.canonical(rows.ids))
    for client, own in clients_of(rows):
        group = "" if rows.groups is None else _one_group(rows.groups.take(pa.array(own)), shard, contract)
        digest = ClientRows.of(*rows_at(rows, own)).digest.hex()
        yield ClientPart(client, str(kind), shard, len(own), rows.points.shape[1], group, digest)


def _one_group(groups: pa.ChunkedArray, shard: ShardRef, contract: LabeledContract) -> str:
    distinct = plain(groups).unique()
    if len(distinct) != 1:
        raise InputError(
            f"column {contract.group!r} of {shard_name(shard)} must be the same in all rows of a client, got several "
            "values; correct the data."
        )
    return str(distinct[0].as_py())


def _write_parts(parts: list, path: str) -> None:
    rows = [part._asdict() | {"shard": dataclasses.asdict(part.shard)} for part in sorted(parts)]
    write_bytes(path, json.dumps(rows).encode())


@dataclasses.dataclass(eq=False, kw_only=True)
class InspectClients(beam.PTransform):
    """`ShardRef`s → a file in the private folder of the run: `ClientPart`s, sorted.

    Attributes:
      contract: every row is checked against it.
      path: of the file.

    Privacy: none; the file is private. Cost: one pass over the rows.
    """

    contract: LabeledContract
    path: str

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Reads, counts and collects clients."""
        parts = shards | "Inspect" >> beam.FlatMap(_inspect, self.contract)
        return parts | "Gather" >> beam.combiners.ToList() | "Write" >> beam.Map(_write_parts, self.path)


def read_parts(path: str) -> list[ClientPart]:
    """Reads the parts that `InspectClients` wrote; raises InputError for another file."""
    refusal = untrusted.staged_refusal(path)
    found = untrusted.read_json(path, list[dict[str, Any]], refusal)
    with refusal.covers():
        return [ClientPart(**row | {"shard": ShardRef(**row["shard"])}) for row in found]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """All clients of a job; private but for ids and groups.

    Attributes:
      names: ids as text, sorted; a client's index is its place here.
      kind: of the ids.
      n_rows: of each client.
      groups: public group of each client; empty texts without groups.
      n_features: of all rows.
      places: clients with the shards to read them from.
      digest: of all clients' rows, in hexadecimal.
    """

    names: tuple[str, ...]
    kind: IdKind
    n_rows: tuple[int, ...]
    groups: tuple[str, ...]
    n_features: int
    places: tuple[ClientGroup, ...]
    digest: str

    @classmethod
    def of(cls, parts: Iterable[ClientPart], contract: LabeledContract) -> "Clients":
        """Puts the parts of each client together.

        Raises:
          InputError: if ids are of several kinds, rows of several widths, or a client in several groups.
        """
        parts = sorted(parts)
        client_ids.check_one_kind({IdKind(each.kind) for each in parts}, str(contract.table.client_id))
        by_client = {name: list(own) for name, own in itertools.groupby(parts, key=lambda part: part.client)}
        _check_alike(parts, by_client, contract)
        digest = hashlib.sha256()
        for each in parts:
            digest.update(json.dumps([each.client, each.n_rows, each.group, each.digest]).encode())
        return cls(
            names=tuple(by_client),
            kind=IdKind(parts[0].kind),
            n_rows=tuple(sum(part.n_rows for part in own) for own in by_client.values()),
            groups=tuple(own[0].group for own in by_client.values()),
            n_features=parts[0].n_features,
            places=_places(by_client),
            digest=digest.hexdigest(),
        )

    def with_declared(self, n_rows: Mapping[str, int]) -> "Clients":
        """Returns all clients that declared a number of rows; those without rows are included, and send noise.

        Raises:
          InputError: for names that cannot be ids of the data's kind.
        """
        names = tuple(sorted(n_rows))
        known = dict(zip(self.names, self.groups, strict=True))
        index = {name: place for place, name in enumerate(names)}
        places = [
            dataclasses.replace(each, clients=tuple((name, index[name]) for name, _ in each.clients))
            for each in self.places
        ]
        absent = tuple((name, index[name]) for name in names if name not in known)
        if absent:
            places.append(ClientGroup(clients=absent, shards=()))
        result = dataclasses.replace(
            self,
            names=names,
            n_rows=tuple(n_rows[name] for name in names),
            groups=tuple(known.get(name, "") for name in names),
            places=tuple(places),
        )
        try:
            result.ids()
        except (ValueError, OverflowError) as error:
            raise InputError(
                f"data.public_rows must name clients by {self.kind}, as the data do, but one name is of another "
                "type; correct it."
            ) from error
        return result

    def ids(self) -> pa.Array:
        """Ids of all clients as they were stored, but for the width of integers."""
        if self.kind is IdKind.INTEGER:
            numbers = [int(name) for name in self.names]
            return pa.array(numbers, pa.uint64() if max(numbers) >= 1 << 63 else pa.int64())
        return pa.array([bytes.fromhex(name) if self.kind is IdKind.BYTES else name for name in self.names])


def _check_alike(parts: list[ClientPart], by_client: Mapping[str, list[ClientPart]], contract: LabeledContract) -> None:
    """Refuses rows of different widths, and clients in several groups."""
    first = parts[0]
    for each in parts:
        if each.n_features != first.n_features:
            raise InputError(
                f"the features of {shard_name(each.shard)} must have width {first.n_features} as in "
                f"{shard_name(first.shard)}, got {each.n_features}; correct one of the files."
            )
    if any(part.group != own[0].group for own in by_client.values() for part in own):
        raise InputError(
            f"column {contract.group!r} must be the same in all rows of a client, got several values; correct the data."
        )


def _places(by_client: Mapping[str, list[ClientPart]]) -> tuple[ClientGroup, ...]:
    """Groups clients by the shards that hold their rows."""
    found: dict[tuple[ShardRef, ...], list[tuple[str, int]]] = {}
    for index, (name, own) in enumerate(by_client.items()):
        found.setdefault(tuple(part.shard for part in own), []).append((name, index))
    return tuple(ClientGroup(clients=tuple(own), shards=shards) for shards, own in sorted(found.items()))


def read_clients(place: ClientGroup, contract: LabeledContract) -> dict[int, ClientRows]:
    """Reads the rows of the clients of a place, by index.

    Raises:
      InputError: for an invalid row.
    """
    wanted = dict(place.clients)
    pieces: dict[int, list[tuple[NDArray[Any], NDArray[np.int64]]]] = {index: [] for index in wanted.values()}
    for shard in place.shards:
        rows = read_shard(shard, contract)
        for name, own in clients_of(rows):
            if name in wanted:
                pieces[wanted[name]].append(rows_at(rows, own))
    none = (np.zeros((0, contract.table.n_features or 0), dtype=np.float32), np.zeros(0, dtype=np.int64))
    return {index: _joined(own or [none]) for index, own in pieces.items()}


def _joined(pieces: list[tuple[NDArray[Any], NDArray[np.int64]]]) -> ClientRows:
    if len(pieces) == 1:
        return ClientRows.of(*pieces[0])
    return ClientRows.of(np.concatenate([each for each, _ in pieces]), np.concatenate([each for _, each in pieces]))


@dataclasses.dataclass(eq=False, kw_only=True)
class ListClients(beam.PTransform):
    """Pipeline root → `ClientGroup`s: private references to the clients and shards that a worker reads.

    Attributes:
      places: of all clients, found by `InspectClients`.
    """

    places: tuple[ClientGroup, ...]

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Spreads the groups over workers; raises PrivacyFlowError if a client or one of its shards is listed twice."""
        clients = [index for place in self.places for _, index in place.clients]
        if len(set(clients)) < len(clients) or any(len(set(each.shards)) < len(each.shards) for each in self.places):
            raise PrivacyFlowError(
                "every client and each of its shards must be listed once, got some several times; list them again."
            )
        return root | "Places" >> beam.Create(self.places)


class RowCache:
    """Rows that a worker process keeps between rounds, up to a size; private memory of the trusted zone."""

    def __init__(self) -> None:
        self._held: dict[ClientGroup, dict[int, ClientRows]] = {}
        self._n_bytes = 0

    def rows(self, place: ClientGroup, contract: LabeledContract, most_bytes: int) -> dict[int, ClientRows]:
        """Returns the rows of a place; reads them if they are not cached, and caches them if they fit."""
        held = self._held.get(place)
        if held is not None:
            return held
        clients = read_clients(place, contract)
        size = sum(each.features.nbytes + each.labels.nbytes for each in clients.values())
        if self._n_bytes + size <= most_bytes and machine.has_room(size):
            self._held[place] = clients
            self._n_bytes += size
        return clients


def parts_path(folder: str) -> str:
    """Path of a run's client parts in its private folder."""
    return join(folder, "clients.json")
