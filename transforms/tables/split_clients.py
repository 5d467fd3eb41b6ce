"""Passes over the client ids: check that each client is in one shard, and list the clients of an epoch's windows.

Input element: `ShardRef`. The outputs are as private as the input.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.numerics.tables import partition
from dapple_dp.transforms.numerics.tables.participation import Rule
from dapple_dp.transforms.on_beam.workers import LeanFn
from dapple_dp.transforms.tables import client_ids, hive
from dapple_dp.transforms.tables.client_ids import IdKind
from dapple_dp.transforms.tables.counted_clients import ClientList, distinct_digests
from dapple_dp.transforms.tables.shard_rows import read_columns

_BUCKETS = 1024
"""Keys of the shuffle, and so the most workers that compare clients."""
_MOST_DIGESTS = 1 << 20


class _DigestsFn(LeanFn):
    """Computes digests of the clients of shards, collected over a bundle so that tiny files cost little."""

    def __init__(self, client_id: str, column: str | None = None):
        self._client_id = client_id
        self._column = column

    def start_bundle(self) -> None:
        self._kinds: set[IdKind] = set()
        self._digests: list[np.ndarray] = []
        self._collected = 0

    def process(self, shard: ShardRef) -> Iterator[tuple[int, np.ndarray]]:
        if shard == EMPTY_SHARD:
            return
        ids = client_ids.canonical(
            read_columns(shard, {self._client_id: pa.string()}).column(self._client_id).drop_null()
        )
        if len(ids):
            self._kinds.add(client_ids.kind_of(ids))
        digests = client_ids.digests(pc.unique(ids))
        if self._column is not None:
            window = pa.array([hive.folder_value(shard.path, self._column)], pa.large_string())
            digests = partition.mix(digests ^ client_ids.digests(window))
        self._digests.append(digests)
        self._collected += len(digests)
        if self._collected > _MOST_DIGESTS:
            yield from self.rest()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for element in self.rest():
            yield WindowedValue(element, GlobalWindow().max_timestamp(), (GlobalWindow(),))

    def rest(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yields digests by bucket, and the kinds of ids in a separate bucket."""
        digests = np.concatenate([np.zeros(0, dtype=np.uint64), *self._digests])
        self._digests, self._collected = [], 0
        buckets = (digests % np.uint64(_BUCKETS)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        found, starts = np.unique(buckets[order], return_index=True)
        parts = np.split(digests[order], starts)[1:]
        yield from zip(found.tolist(), parts, strict=True)
        yield _BUCKETS, np.array(sorted(self._kinds))


def _repeats(bucket: tuple[int, Iterable[np.ndarray]], client_id: str) -> Iterator[bool]:
    """Yields whether a client of this bucket is in several shards."""
    index, parts = bucket
    found = np.concatenate(list(parts))
    if index == _BUCKETS:
        client_ids.check_one_kind({IdKind(kind) for kind in found.tolist()}, client_id)
        return
    yield len(np.unique(found)) < len(found)


def any_split(shards: Iterable[ShardRef], client_id: str) -> bool:
    """Returns the result of `FindSplitClients`, computed in this process."""
    digests, buckets = _DigestsFn(client_id), collections.defaultdict(list)
    digests.start_bundle()
    parts = (part for shard in shards for part in digests.process(shard))
    for index, part in itertools.chain(parts, digests.rest()):
        buckets[index].append(part)
    # All of them must be checked, since one of the buckets refuses ids of several kinds.
    return any([split for bucket in buckets.items() for split in _repeats(bucket, client_id)])


@dataclasses.dataclass(eq=False, kw_only=True)
class FindSplitClients(beam.PTransform):
    """`ShardRef`s → one bool, True if a client id occurs in more than one shard; stops at ids of several kinds.

    Ids are compared by 64-bit digests, so that a split client is never missed. Two of a million clients seem to be
    one with probability 3e-8, which costs a needless shuffle and nothing else.

    Attributes:
      client_id: column of the client ids, or Hive partition column.
      column: Hive partition column of the windows of an epoch, if clients are separate in each window; or None.

    Windowing: global. Privacy: none, the output is private. Cost: one pass over that column, one shuffle of
    eight bytes per client and shard.
    """

    client_id: str
    column: str | None = None

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Groups digests and looks for repeats."""
        return (
            shards
            | "Digests" >> beam.ParDo(_DigestsFn(self.client_id, self.column))
            | "Group" >> beam.GroupByKey()
            | "Repeats" >> beam.FlatMap(_repeats, self.client_id)
            | "Any" >> beam.CombineGlobally(any)
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientListParams:
    """Parameters of the client list of a window.

    Attributes:
      client_id: column of the client ids.
      column: Hive partition column of the windows.
      date: of the window.
      window: its number.
      rule: limit on how often a client counts.
      before: path of the previous window's client list; private.
      facts: of that list.
      path: of the client list to write; private.
      to: facts of the list to write.
    """

    client_id: str
    column: str
    date: str
    window: int
    rule: Rule
    before: str
    facts: dict[str, Any]
    path: str
    to: dict[str, Any]

    def list_before(self) -> ClientList:
        """Reads the client list of the previous window, on a worker."""
        refusal = untrusted.staged_refusal(self.before)
        return ClientList.from_bytes(untrusted.read_bytes(self.before, refusal), self.facts, refusal)


class _PresentFn(LeanFn):
    """Yields digests of the clients of a shard in the window; nothing for other shards."""

    def __init__(self, params: ClientListParams):
        self._params = params

    def setup(self) -> None:
        self._salt = self._params.list_before().salt

    def process(self, shard: ShardRef) -> Iterator[tuple[int, tuple[str, np.ndarray]]]:
        """Yields the kind of the ids, and digests; those of the empty shard have no kind."""
        params = self._params
        if shard == EMPTY_SHARD:
            yield 0, ("", np.zeros(0, dtype="S32"))
        elif hive.folder_value(shard.path, params.column) == params.date:
            column = read_columns(shard, {params.client_id: pa.string()}).column(params.client_id)
            yield 0, distinct_digests(column, self._salt)


def _write_client_list(grouped: tuple[int, Iterable[tuple[str, np.ndarray]]], params: ClientListParams) -> None:
    """Writes the client list after the window; raises InputError for ids of several kinds in any windows."""
    before, found = params.list_before(), list(grouped[1])
    kinds = {IdKind(kind) for kind in {before.kind, *(kind for kind, _ in found)} if kind}
    client_ids.check_one_kind(kinds, params.client_id)
    present = np.concatenate([digests for _, digests in found])
    client_list = ClientList(
        facts=params.to,
        salt=before.salt,
        kind=next(iter(kinds), ""),
        counted=before.counted.with_window(present, params.window, params.rule),
    )
    write_bytes(params.path, client_list.to_bytes())


@dataclasses.dataclass(eq=False, kw_only=True)
class CallRoll(beam.PTransform):
    """`ShardRef`s → a private file of the clients that count in a window; stops at ids of another kind than before.

    Whether a client counts depends on its own history: its entry in the previous list, and its rows in the window.

    Attributes:
      params: of the window.

    Windowing: global. Privacy: none, the file is private. Cost: one pass over the ids of the window, one shuffle of 32
    bytes per client and shard; one worker holds the list.
    """

    params: ClientListParams

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Collects digests and writes the file."""
        present = shards | "Present" >> beam.ParDo(_PresentFn(self.params)) | "Together" >> beam.GroupByKey()
        return present | "ClientList" >> beam.Map(_write_client_list, self.params)
