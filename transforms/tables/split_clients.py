"""Whether every client lies whole in one shard already, so that rows can stay where they are.

Input element: `ShardRef`. Output element: one bool, private like the input.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow.compute as pc
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from schemas.tables.shard import EMPTY_SHARD, ShardRef
from transforms.tables import client_ids
from transforms.tables.client_ids import IdKind
from transforms.tables.read import read_columns

_BUCKETS = 1024
"""Keys of the shuffle, and so the most workers that compare clients."""
_MOST_DIGESTS = 1 << 20


class _DigestsFn(beam.DoFn):
    """Digests of the clients of each shard, collected over a bundle so that tiny files cost little."""

    def __init__(self, client_id: str):
        self._client_id = client_id

    def start_bundle(self) -> None:
        """Nothing collected yet."""
        self._kinds: set[IdKind] = set()
        self._digests: list[np.ndarray] = []
        self._collected = 0

    def process(self, shard: ShardRef) -> Iterator[tuple[int, np.ndarray]]:
        """Collects the distinct clients of one shard."""
        if shard == EMPTY_SHARD:
            return
        ids = client_ids.canonical(read_columns(shard, [self._client_id]).column(self._client_id).drop_null())
        self._kinds.add(client_ids.kind_of(ids))
        digests = client_ids.digests(pc.unique(ids))
        self._digests.append(digests)
        self._collected += len(digests)
        if self._collected > _MOST_DIGESTS:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Hands over what is left."""
        for element in self._flush():
            yield WindowedValue(element, GlobalWindow().max_timestamp(), (GlobalWindow(),))

    def _flush(self) -> Iterator[tuple[int, np.ndarray]]:
        """Digests by bucket; the kinds of ids in a bucket of their own."""
        digests = np.concatenate([np.zeros(0, dtype=np.uint64), *self._digests])
        self._digests, self._collected = [], 0
        buckets = (digests % np.uint64(_BUCKETS)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        found, starts = np.unique(buckets[order], return_index=True)
        parts = np.split(digests[order], starts)[1:]
        yield from zip(found.tolist(), parts, strict=True)
        yield _BUCKETS, np.array(sorted(self._kinds))


def _repeats(bucket: tuple[int, Iterable[np.ndarray]], client_id: str) -> Iterator[bool]:
    """Whether a client of this bucket lies in several shards."""
    index, parts = bucket
    found = np.concatenate(list(parts))
    if index == _BUCKETS:
        client_ids.check_one_kind({IdKind(kind) for kind in found.tolist()}, client_id)
        return
    yield len(np.unique(found)) < len(found)


@dataclasses.dataclass(eq=False, kw_only=True)
class FindSplitClients(beam.PTransform):
    """`ShardRef`s → one bool: whether a client id occurs in more than one shard; stops at ids of several kinds.

    Ids are compared by 64-bit digests, so that a split client is never missed; two of a million clients seem to be
    one, which costs a needless shuffle and nothing else, with probability 3e-8.

    Attributes:
      client_id: column of the client ids, or Hive partition column.

    Windowing: global. Privacy: none, the output is private. Cost: one pass over that column, one shuffle of
    eight bytes per client and shard.
    """

    client_id: str

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Groups digests and looks for repeats."""
        return (
            shards
            | "Digests" >> beam.ParDo(_DigestsFn(self.client_id))
            | "Group" >> beam.GroupByKey()
            | "Repeats" >> beam.FlatMap(_repeats, self.client_id)
            | "Any" >> beam.CombineGlobally(any)
        )
