"""Computes the inputs of PipelineDP's noise: a vector of exact sums, and elements for what it does row by row.

Input element: `ShardRef`. Outputs are exact and private, and only the noise may read them. A unit's contribution
is bounded here: a row counts once, a client with at most `plan.unit_rows` rows.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, TaggedOutput
from numpy.typing import NDArray

from dapple_dp.schemas.profile.plan import ProfilePlan, histogram_path, percentile_path
from dapple_dp.schemas.tables.columns import group_by_client
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.files import row_spill
from dapple_dp.transforms.files.row_spill import Spilled
from dapple_dp.transforms.numerics import cluster_profile
from dapple_dp.transforms.numerics.tables import partition
from dapple_dp.transforms.numerics.tables.row_sampling import bounded_rows
from dapple_dp.transforms.on_beam.exact_sums import SumStatistics
from dapple_dp.transforms.on_beam.workers import HeldKeyFn
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.profile.rows import (
    CLIENT,
    CLUSTER,
    RANK,
    ProfileParams,
    category,
    exact_sums,
    number,
    read_profile_rows,
)
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn
from dapple_dp.transforms.tables import client_ids
from dapple_dp.transforms.tables.group_clients import NumberOfShards
from dapple_dp.transforms.tables.shard_rows import shard_name

SUMS = "sums"
Piece = tuple[str, int, bytes | Spilled]
"""Path and row group the rows come from, and the rows as an Arrow stream or the place of one."""


def _percentile_tags(params: ProfileParams) -> list[str]:
    """Returns the paths of events that PipelineDP processes row by row; each is the tag of an output."""
    return [percentile_path(name) for name, column in params.plan.numeric.items() if column.percentiles]


def _value_tags(params: ProfileParams) -> list[str]:
    """Returns the paths of histograms without a public vocabulary; each is the tag of an output."""
    return [histogram_path(name) for name, column in params.plan.categorical.items() if column.values is None]


def row_elements(rows: pa.Table, params: ProfileParams) -> Iterator[TaggedOutput]:
    """Yields (cluster, number) of each row, for each column with percentiles."""
    labels = rows.column(CLUSTER).to_pylist()
    for index, (name, column) in enumerate(params.plan.numeric.items()):
        if column.percentiles:
            for element in zip(labels, rows.column(number(index)).to_pylist(), strict=True):
                yield TaggedOutput(percentile_path(name), element)


def value_counts(rows: pa.Table, params: ProfileParams, clients: NDArray[np.int64] | None) -> Iterator[TaggedOutput]:
    """Yields ((cluster, text), rows or distinct clients) for each column without a public vocabulary."""
    labels = rows.column(CLUSTER).to_numpy()
    for index, (name, listed) in enumerate(params.plan.categorical.items()):
        if listed.values is None:
            encoded = rows.column(category(index)).combine_chunks().dictionary_encode()
            texts = encoded.dictionary.to_pylist()
            cells = labels * len(texts) + encoded.indices.to_numpy()
            found, counts = cluster_profile.occupied_cells(cells, params.plan.n_clusters * len(texts), clients)
            for cell, count in zip(found.tolist(), counts.tolist(), strict=True):
                cluster, value = divmod(cell, len(texts))
                yield TaggedOutput(histogram_path(name), ((cluster, texts[value]), count))


class _KeyedFn(SmallBlocksFn, HeldKeyFn):
    """Holds the run key on the worker, where units are sampled; blocks are small, so BLAS gets one thread."""

    def __init__(self, params: ProfileParams, key_uri: str):
        super().__init__(KeyFile(key_uri))
        self._params = params

    def _stream(self, purpose: str, *parts: str | int) -> KeyStream:
        return KeyStream(self._held_key(), encode_label(f"profile {purpose}", *parts))


class _MeasureRowsFn(_KeyedFn):
    """Computes sums and elements of shards; every row is a unit."""

    def process(self, shard: ShardRef) -> Iterator[Any]:
        """Yields one vector per shard; rows are sampled by coins of their shard, so a retry samples the same."""
        params, total = self._params, np.zeros(self._params.plan.size, dtype=np.int64)
        coins = self._stream("rows", shard.path, shard.row_group)
        for rows in read_profile_rows(shard, params):
            total += exact_sums(rows, params, None)
            yield from value_counts(rows, params, None)
            if _percentile_tags(params):
                kept = cluster_profile.sampled_rows(coins, rows.num_rows, params.plan.rate)
                yield from row_elements(rows.filter(pa.array(kept)), params)
        yield total


class _SplitFn(_KeyedFn):
    """Splits shards into (number, piece): rows by the hash of their client, no more of a client than may count."""

    def __init__(self, params: ProfileParams, key_uri: str, spill_folder: str | None):
        super().__init__(params, key_uri)
        self._spill_folder = spill_folder

    def process(self, shard: ShardRef, n_shards: int) -> Iterator[tuple[int, Piece | None]]:
        """Yields the pieces of one shard; for the empty shard only a placeholder."""
        if shard == EMPTY_SHARD:
            yield 0, None
            return
        rows = pa.concat_tables(read_profile_rows(shard, self._params)).combine_chunks()
        ranks = self._stream("ranks", shard.path, shard.row_group).uint64(rows.num_rows)
        rows = bounded(rows.append_column(RANK, pa.array(ranks)), self._params.plan.unit_rows)
        owners = partition.shard_of(client_ids.digests(client_ids.canonical(rows.column(CLIENT))), n_shards)
        rows = rows.take(pa.array(np.argsort(owners, kind="stable")))
        bounds = np.searchsorted(np.sort(owners), np.arange(n_shards + 1))
        filled = np.flatnonzero(np.diff(bounds)).tolist()
        streams = (_encode(rows.slice(bounds[index], bounds[index + 1] - bounds[index])) for index in filled)
        pieces: Iterable[bytes | Spilled] = streams
        if self._spill_folder is not None:
            pieces = row_spill.spill(self._spill_folder, shard_name(shard), streams)
        for index, piece in zip(filled, pieces, strict=True):
            yield index, (shard.path, shard.row_group, piece)


class _MeasureClientsFn(_KeyedFn):
    """Computes sums and elements of (number, pieces); all rows of a client have one number."""

    def process(self, element: tuple[int, Iterable[Piece | None]]) -> Iterator[Any]:
        """Yields one vector; clients are sampled by a keyed hash of their id."""
        params, pieces = self._params, sorted(piece for piece in element[1] if piece is not None)
        if not pieces:
            yield np.zeros(params.plan.size, dtype=np.int64)
            return
        rows = bounded(_join(pieces, str(params.contract.client_id)), params.plan.unit_rows)
        clients, digests = clients_of(rows)
        yield exact_sums(rows, params, clients)
        yield from value_counts(rows, params, clients)
        if _percentile_tags(params):
            secret = int(self._stream("clients").uint64(1)[0])
            kept = cluster_profile.sampled_clients(digests, secret, params.plan.rate)[clients]
            yield from row_elements(rows.filter(pa.array(kept)), params)


def clients_of(rows: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Returns the index of each row's client, and digests of the ids, for every type of the ids' column."""
    order, offsets, unique = group_by_client(pa.chunked_array([client_ids.canonical(rows.column(CLIENT))]))
    clients = np.empty(len(order), dtype=np.int64)
    clients[order] = np.repeat(np.arange(len(unique)), np.diff(offsets))
    return clients, client_ids.digests(unique)


def bounded(rows: pa.Table, max_rows: int) -> pa.Table:
    """Returns at most this many rows of each client."""
    kept = bounded_rows(clients_of(rows)[0], rows.column(RANK).to_numpy(), max_rows)
    return rows if len(kept) == rows.num_rows else rows.take(pa.array(kept))


def _encode(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def _join(pieces: list[Piece], client_id: str) -> pa.Table:
    """Concatenates the rows of all pieces, in the order of the input."""
    tables = [
        pa.ipc.open_stream(row_spill.load(piece) if isinstance(piece, Spilled) else piece).read_all()
        for _, _, piece in pieces
    ]
    ids = client_ids.concatenate([client_ids.canonical(rows.column(CLIENT)) for rows in tables], client_id)
    joined = pa.concat_tables([rows.drop_columns([CLIENT]) for rows in tables])
    return joined.append_column(CLIENT, ids).combine_chunks()


@dataclasses.dataclass(eq=False, kw_only=True)
class MeasureClusters(beam.PTransform):
    """`ShardRef`s → a dict of PCollections: `SUMS`, one int64 vector, and the elements of each tag.

    `_percentile_tags` have (cluster, number) of the sampled units' rows, `_value_tags` have ((cluster, text),
    count), one per pair that occurs.

    Attributes:
      params: the statistics to compute.
      key_uri: place of the key that ranks and samples rows, for workers.
      spill_folder: a folder that all workers share, for runners that shuffle in memory; or None.

    Windowing: global. Privacy: none, all outputs are exact; `params.plan` has their sensitivities. Cost: one
    pass over the columns in use; by client, one shuffle of the rows that count.
    """

    params: ProfileParams
    key_uri: str
    spill_folder: str | None = None

    def measured(self) -> ProfilePlan:
        """Returns the plan whose sensitivities the outputs have."""
        return self.params.plan

    def expand(self, shards: beam.PCollection) -> Any:
        """Reads, bounds and adds up."""
        values = _value_tags(self.params)
        tags = _percentile_tags(self.params) + values
        measured = self._measured(shards, tags)
        found = {tag: measured[tag] for tag in tags}
        found |= {tag: found[tag] | f"Count {tag}" >> beam.CombinePerKey(sum) for tag in values}
        return found | {SUMS: measured[SUMS] | "Sums" >> SumStatistics(size=self.params.plan.size)}

    def _measured(self, shards: beam.PCollection, tags: list[str]) -> Any:
        """Returns vectors under `SUMS`, elements under their tags."""
        if not self.params.plan.by_client:
            measure = beam.ParDo(_MeasureRowsFn(self.params, self.key_uri))
            return shards | "MeasureRows" >> measure.with_outputs(*tags, main=SUMS)
        n_shards = AsSingleton(shards | "NumberOfShards" >> NumberOfShards())
        split = _SplitFn(self.params, self.key_uri, self.spill_folder)
        measure = beam.ParDo(_MeasureClientsFn(self.params, self.key_uri))
        return (
            shards
            | "Split" >> beam.ParDo(split, n_shards)
            | "Group" >> beam.GroupByKey()
            | "MeasureClients" >> measure.with_outputs(*tags, main=SUMS)
        )
