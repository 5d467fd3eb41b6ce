"""Groups rows by client: the one pass that shuffles rows, into files in which no client crosses a row group.

Input element: `ShardRef`. Output element: `PreparedFile`. All data here are private and stay in the trusted
zone; nothing is noised and nothing is released.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsSingleton
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.columns import group_by_client
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.prepared_layout import MANIFEST_FILE, PreparedFile, PreparedManifest
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.schemas.tables.snapshot import Snapshot
from dapple_dp.transforms.files import row_spill
from dapple_dp.transforms.files.file_bytes import make_folder, write_bytes
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.files.row_spill import Spilled
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.numerics.tables import partition, row_sampling
from dapple_dp.transforms.on_beam.workers import HeldKeyFn
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.tables import client_ids, hive
from dapple_dp.transforms.tables.prepared_files import write_prepared
from dapple_dp.transforms.tables.shard_rows import read_batches, shard_name

SHARD_BYTES = 1 << 26
"""Approximate bytes of one output file's rows in memory."""
_ID, _POINT = "id", "point"
Piece = tuple[str, int, int, bytes | Spilled]
"""Path, row group and part that the rows come from, and the rows as an Arrow stream or the place of one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Limit on the rows of a client; `key_uri` is the place of the key that samples them, for workers."""

    max_rows: int
    key_uri: str


def _size(shard: ShardRef) -> int:
    return shard.n_bytes


def _shards_for(n_bytes: int) -> int:
    return min(max(1, -(-n_bytes // SHARD_BYTES)), partition.MAX_SHARDS)


class Windows(NamedTuple):
    """Windows of an epoch; a client is grouped separately in each.

    Attributes:
      column: Hive partition column.
      dates: of the windows.
    """

    column: str
    dates: tuple[str, ...]

    def place(self, path: str) -> int:
        """Returns the index of the window that a file belongs to."""
        return self.dates.index(str(hive.folder_value(path, self.column)))


def _split(
    shard: ShardRef, n_shards: int, contract: TableContract, spill_folder: str | None, windows: Windows | None
) -> Iterator[tuple[int, Piece]]:
    """Yields rows of one row group by shard of their client; a part without valid rows gives an empty piece."""
    if shard == EMPTY_SHARD:
        return
    first = 0 if windows is None else windows.place(shard.path) * n_shards
    for number, table in enumerate(_parts(shard, contract)):
        origin = f"{shard_name(shard)}, part {number}"
        for index, piece in _split_part(contract.to_rows(table, shard_name(shard)), n_shards, origin, spill_folder):
            yield first + index, (shard.path, shard.row_group, number, piece)


def _parts(shard: ShardRef, contract: TableContract) -> Iterator[pa.Table]:
    """Yields the rows of a row group, about `SHARD_BYTES` at a time, since it may be larger than the memory."""
    waiting: list[pa.Table] = []
    for table in read_batches(shard, contract.types):
        waiting.append(table)
        if sum(each.nbytes for each in waiting) >= SHARD_BYTES:
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


def _split_part(
    rows: tuple[NDArray[np.floating], pa.ChunkedArray], n_shards: int, origin: str, spill_folder: str | None
) -> Iterator[tuple[int, bytes | Spilled]]:
    """Yields rows by shard of their client; `origin` names the file that they go through."""
    points, column = rows
    ids = client_ids.canonical(column)
    shards = partition.shard_of(client_ids.digests(ids), n_shards)
    order = np.argsort(shards, kind="stable")
    if n_shards > 1:
        points, ids = points.take(order, axis=0), ids.take(pa.array(order))
    bounds = np.searchsorted(shards[order], np.arange(n_shards + 1))
    filled = np.flatnonzero(np.diff(bounds)).tolist() or [0]
    streams = (
        _encode(ids[bounds[index] : bounds[index + 1]], points[bounds[index] : bounds[index + 1]]) for index in filled
    )
    pieces: Iterable[bytes | Spilled] = streams
    if spill_folder is not None:
        pieces = row_spill.spill(spill_folder, origin, streams)
    yield from zip(filled, pieces, strict=True)


def _encode(ids: pa.Array, points: NDArray[np.floating]) -> bytes:
    flat = pa.array(points.reshape(-1))
    listed = pa.FixedSizeListArray.from_arrays(flat, points.shape[1])
    batch = pa.record_batch([ids, listed], names=[_ID, _POINT])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _decode(piece: bytes | Spilled) -> tuple[pa.Array, NDArray[np.floating]]:
    """Returns client ids and points, views of the piece."""
    batch = pa.ipc.open_stream(row_spill.load(piece) if isinstance(piece, Spilled) else piece).read_next_batch()
    listed = batch.column(_POINT)
    return batch.column(_ID), listed.flatten().to_numpy().reshape(len(listed), listed.type.list_size)


class _WriteShardFn(HeldKeyFn):
    """Joins the pieces of one shard in the order of the input, groups clients and writes the file."""

    def __init__(self, folder: str, contract: TableContract, sampling: SamplingParams | None, windows: Windows | None):
        super().__init__(KeyFile(sampling.key_uri if sampling else ""))
        self._folder = folder
        self._windows = windows
        self._contract = contract
        self._sampling = sampling

    def setup(self) -> None:
        if self._sampling is not None:
            super().setup()

    def process(self, element: tuple[int, Iterable[Piece]]) -> Iterator[PreparedFile]:
        index, pieces = element[0], list(element[1])
        ids, points = _join(sorted(pieces, key=lambda piece: piece[:3]), str(self._contract.client_id))
        order, offsets = _by_client(ids)
        if self._sampling is not None:
            clients = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            digests = client_ids.digests(ids.take(pa.array(order[offsets[:-1]])))
            kept = row_sampling.sample_rows(points[order], clients, digests, self._sampling.max_rows, self._held_key())
            order = order[kept]
            offsets = np.searchsorted(clients[kept], np.arange(len(offsets))).astype(np.int64)
        name = f"shard-{index:07d}.parquet"
        ids, points = ids.take(pa.array(order)), points.take(order, axis=0)
        yield write_prepared(self._folder_of(pieces), name, ids, points, offsets, self._contract)

    def _folder_of(self, pieces: Iterable[Piece]) -> str:
        """Returns the folder of the file: with windows, that of the window of its pieces."""
        if self._windows is None:
            return self._folder
        column, dates = self._windows
        (place,) = {self._windows.place(path) for path, *_ in pieces}
        folder = join(self._folder, f"{column}={dates[place]}")
        make_folder(folder)
        return folder


def _join(pieces: list[Piece], client_id: str) -> tuple[pa.Array, NDArray[np.floating]]:
    decoded = [_decode(piece) for *_, piece in pieces]
    widths = {points.shape[1]: path for (_, points), (path, *_) in zip(decoded, pieces, strict=True)}
    if len(widths) > 1:
        (first, path), (other, where) = sorted(widths.items())[:2]
        raise InputError(
            f"the features of {where} must have width {first} as in {path}, got {other}; correct one of the files."
        )
    ids = client_ids.concatenate([ids for ids, _ in decoded], client_id)
    return ids, np.concatenate([points for _, points in decoded])


def _by_client(ids: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the stable order of rows by client id, and the offsets of the clients in that order."""
    order, offsets, unique = group_by_client(pa.chunked_array([ids]))
    ranks = pc.array_sort_indices(unique).to_numpy().astype(np.int64)
    sizes = np.diff(offsets)[ranks]
    sorted_offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    positions = np.arange(len(ids)) + np.repeat(offsets[:-1][ranks] - sorted_offsets[:-1], sizes)
    return order[positions], sorted_offsets


def group_clients(
    shards: Sequence[ShardRef],
    contract: TableContract,
    folder: str,
    n_shards: int | None = None,
    sampling: SamplingParams | None = None,
) -> list[PreparedFile]:
    """Writes the files of `GroupClients` in this process; all rows are in memory at once."""
    n_files = n_shards or _shards_for(sum(map(_size, shards)))
    groups: dict[int, list[Piece]] = collections.defaultdict(list)
    for shard in shards:
        for index, piece in _split(shard, n_files, contract, None, None):
            groups[index].append(piece)
    write = _WriteShardFn(folder, contract.encoded(), sampling, None)
    write.setup()
    try:
        return [file for group in groups.items() for file in write.process(group)]
    finally:
        write.teardown()


@dataclasses.dataclass(eq=False, kw_only=True)
class NumberOfShards(beam.PTransform):
    """`ShardRef`s → the number of shards that rows are split into by client, one element.

    Attributes:
      n_shards: the number; None for about `SHARD_BYTES` of rows in a shard.
    """

    n_shards: int | None = None

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Adds up sizes by the files' footers; the number goes to no output."""
        if self.n_shards is not None:
            return shards.pipeline | "Given" >> beam.Create([self.n_shards], reshuffle=False)
        sizes = shards | "Sizes" >> beam.Map(_size)
        return sizes | "Total" >> beam.CombineGlobally(sum).without_defaults() | "ShardsFor" >> beam.Map(_shards_for)


@dataclasses.dataclass(eq=False, kw_only=True)
class GroupClients(beam.PTransform):
    """`ShardRef`s → `PreparedFile`s of a client-sharded data set, written to a private folder.

    Rows are in the files sorted by client, rows of a client in the order of the input. Files do not depend on
    bundling or on the order of arrival, and a retried bundle writes its file again, byte for byte.

    Attributes:
      contract: by client; sets the columns to read and the treatment of invalid rows.
      folder: for the files; exists.
      n_shards: most files; None for about `SHARD_BYTES` of rows in a file.
      sampling: limit on the rows of a client, or None.
      windows: of an epoch, each with a separate folder; None to group all rows of a client together.
      spill: True to pass rows through files in `folder`, which all workers share, and to shuffle only their
        places; the caller removes the files. For runners that shuffle in memory.

    Windowing: global. Privacy: none, the output is as private as the input. Cost: one pass over the needed
    columns, one shuffle of all rows; a worker holds one shard, which holds its largest client whole.
    """

    contract: TableContract
    folder: str
    n_shards: int | None = None
    sampling: SamplingParams | None = None
    windows: Windows | None = None
    spill: bool = False

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Splits row groups by client, groups and writes."""
        n_shards = AsSingleton(shards | "NumberOfShards" >> NumberOfShards(n_shards=self.n_shards))
        spill = self.folder if self.spill else None
        return (
            shards
            | "Split" >> beam.FlatMap(_split, n_shards, self.contract, spill, self.windows)
            | "Group" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_WriteShardFn(self.folder, self.contract.encoded(), self.sampling, self.windows))
        )


def write_manifest(
    files: list[PreparedFile], folder: str, contract: TableContract, max_rows: int | None, snapshot: Snapshot | None
) -> None:
    """Writes `manifest.json` of grouped files; arguments as in `WriteManifest`."""
    manifest = PreparedManifest(
        client_id=str(contract.client_id),
        features=contract.feature_list or contract.features,
        max_rows_per_client=max_rows,
        files=tuple(sorted(files)),
        snapshot=snapshot,
    )
    write_bytes(join(folder, MANIFEST_FILE), manifest.to_json().encode())


@dataclasses.dataclass(eq=False, kw_only=True)
class WriteManifest(beam.PTransform):
    """All `PreparedFile`s → `manifest.json` in the same folder, written once all files are.

    Attributes:
      contract: names of the columns.
      folder: of the files.
      max_rows: the applied limit on the rows of a client, or None.
      snapshot: of the table that the rows were taken from, or None.
    """

    contract: TableContract
    folder: str
    max_rows: int | None = None
    snapshot: Snapshot | None = None

    def expand(self, files: beam.PCollection) -> beam.PCollection:
        """Collects the list and writes it."""
        places = (self.folder, self.contract, self.max_rows, self.snapshot)
        sink = PrivateSink(write=write_manifest, places=places)
        return files | "Files" >> beam.combiners.ToList() | "Write" >> sink
