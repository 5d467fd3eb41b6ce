"""Messages of split and mix through pipelines: made by clients, shuffled, read, summed and decoded.

Element: `MessageBatch`. Guarantee: messages of one client are not private by themselves; shuffled among those of
`min_batch` clients they tell the noisy sums of the leaves and nothing else, to within the delta of the collection. The
noise belongs to the clients, so making messages is a declared exception to the one noise stage.
"""

import dataclasses
import hashlib
import io
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from schemas.columns import find, mismatch, plain
from schemas.errors import InputError
from schemas.model import ClusterModel
from schemas.shard import EMPTY_SHARD, ShardRef
from schemas.split_parameters import SplitParameters
from schemas.table import TableContract
from transforms.assign_rows import WrittenFile
from transforms.declared_mechanism import DeclaredMechanism
from transforms.decode_reports import DecodedBatch
from transforms.encode_reports import KeyedClientFn
from transforms.numerics import split_reports
from transforms.numerics.split_and_mix import MOST_TIMES, Messages, MessageTotals
from transforms.publish import write_bytes
from transforms.read import open_parquet
from transforms.report_batches import spread_row_groups
from transforms.shuffle_reports import write_listing

SCHEMA = pa.schema([pa.field("place", pa.uint32(), nullable=False), pa.field("share", pa.uint64(), nullable=False)])
_N_GROUPS = 64
_CLIENTS_AT_ONCE = 64
_BATCH_MESSAGES = 1 << 20


class MessageBatch(NamedTuple):
    """Some messages as plain octets: places (4 each) and shares (8 each), little-endian."""

    places: bytes
    shares: bytes

    @classmethod
    def of(cls, messages: Messages) -> "MessageBatch":
        """Batch of messages."""
        return cls(messages.places.astype("<u4").tobytes(), messages.shares.astype("<u8").tobytes())

    def messages(self) -> Messages:
        """The messages as arrays."""
        places = np.frombuffer(self.places, dtype="<u4").astype(np.int64)
        return Messages(places, np.frombuffer(self.shares, dtype="<u8").astype(np.int64))


class _EncodeFn(KeyedClientFn):
    """Makes the messages of all clients of a shard."""

    def __init__(self, parameters: SplitParameters, contract: TableContract, key_uri: str):
        super().__init__(contract, key_uri)
        self._parameters = parameters

    def process(self, shard: ShardRef) -> Iterator[MessageBatch]:
        """The same shard gives the same messages again."""
        if shard == EMPTY_SHARD:
            return
        points, clients, key = self.clients_of(shard)
        for start in range(0, len(points), _CLIENTS_AT_ONCE):
            rows = slice(start, start + _CLIENTS_AT_ONCE)
            yield MessageBatch.of(split_reports.encode_clients(points[rows], clients[rows], self._parameters, key))


@dataclasses.dataclass(eq=False, kw_only=True)
class EncodeMessages(DeclaredMechanism):
    """`ShardRef`s → `MessageBatch`es, all messages of every client.

    Attributes:
      parameters: public.
      contract: by client; no client has two rows.
      key_uri: where workers find the key of coins.

    Windowing: global. Privacy: none before messages are shuffled. Cost: one pass, and `messages_per_client` messages
    of 12 octets for every client.
    """

    parameters: SplitParameters
    contract: TableContract
    key_uri: str

    def declared(self) -> SplitParameters:
        """The law of all messages of a client, shuffled."""
        return self.parameters

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Makes the messages of every shard by itself."""
        return shards | "Encode" >> beam.ParDo(_EncodeFn(self.parameters, self.contract, self.key_uri))


def _split(batch: MessageBatch) -> Iterator[tuple[int, MessageBatch]]:
    """A batch by place."""
    messages = batch.messages()
    groups = messages.places % _N_GROUPS
    for group in np.unique(groups).tolist():
        rows = groups == group
        yield group, MessageBatch.of(Messages(messages.places[rows], messages.shares[rows]))


def _write(group: tuple[int, Iterable[MessageBatch]], folder: str) -> WrittenFile:
    """Sorts all messages of some places by place and share, and writes them."""
    parts = [batch.messages() for batch in group[1]]
    messages = Messages(*(np.concatenate(columns) for columns in zip(*parts, strict=True))).shuffled()
    columns = [pa.array(messages.places, pa.uint32()), pa.array(messages.shares, pa.uint64())]
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=SCHEMA), buffer, row_group_size=_BATCH_MESSAGES, write_statistics=False)
    name = f"part-{group[0]:02d}.parquet"
    write_bytes(FileSystems.join(folder, name), buffer.getvalue())
    return WrittenFile(name, hashlib.sha256(buffer.getvalue()).hexdigest())


@dataclasses.dataclass(eq=False, kw_only=True)
class ShuffleMessages(beam.PTransform):
    """`MessageBatch`es → Parquet files of shuffled messages, and a list of them.

    Messages are in the order of place and share, which depends on nothing else.

    Attributes:
      folder: exists; files go there.
      listing: path of a JSON file with names and digests, written once all files are.

    Windowing: global. Cost: one shuffle of all messages; memory for those of a 64th of all places.
    """

    folder: str
    listing: str

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Groups by place, sorts, writes, lists."""
        return (
            batches
            | "Split" >> beam.FlatMap(_split)
            | "ByPlace" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write, self.folder)
            | "Files" >> beam.combiners.ToList()
            | "Listing" >> beam.Map(write_listing, self.listing)
        )


def _read(place: tuple, parameters: SplitParameters) -> Iterator[MessageBatch]:
    path, row_group = place
    with open_parquet(path) as file:
        table = file.read_row_group(row_group, use_threads=False)
    where = f"{path}, row group {row_group}"
    for field in SCHEMA:
        if (kind := find(table.schema, field.name, where).type) != field.type:
            raise mismatch(field.name, where, f"be {field.type}", str(kind), "write it as encode does")
    for start in range(0, table.num_rows, _BATCH_MESSAGES):
        columns = [plain(table.column(name)).slice(start, _BATCH_MESSAGES) for name in SCHEMA.names]
        if any(column.null_count for column in columns):
            raise _foreign(where)
        places, shares = (column.to_numpy() for column in columns)
        if (places >= parameters.n_places).any() or (shares >= parameters.modulus).any():
            raise _foreign(where)
        yield MessageBatch(places.astype("<u4").tobytes(), shares.astype("<u8").tobytes())


def _foreign(where: str) -> InputError:
    return InputError(
        f"messages of split_and_mix must have a place and a share of their collection, got others in {where}; leave "
        "out clients whose messages are not whole: one wrong share makes a sum a random number."
    )


@dataclasses.dataclass(eq=False, kw_only=True)
class ReadMessages(beam.PTransform):
    """Pipeline root → `MessageBatch`es of all files in a folder.

    Attributes:
      path: a Parquet file, a glob or a folder on any Beam filesystem.
      parameters: of the collection; messages of another one stop the job.
      setting: what the path is called in messages.

    Cost: one listing, one pass over the files, one shuffle of references.
    """

    path: str
    parameters: SplitParameters
    setting: str = "reports.path"

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Lists files, then row groups, then reads."""
        return spread_row_groups(root, self.path, self.setting) | "Read" >> beam.FlatMap(_read, self.parameters)


def _totals(batch: MessageBatch, parameters: SplitParameters) -> MessageTotals:
    return MessageTotals.of(batch.messages(), parameters.n_places, parameters.modulus)


class _MergeTotalsFn(beam.CombineFn):
    """Adds totals modulo the collection's prime."""

    def __init__(self, parameters: SplitParameters):
        self._parameters = parameters

    def create_accumulator(self) -> MessageTotals:
        """Nothing."""
        zeros = np.zeros(self._parameters.n_places, dtype=np.int64)
        return MessageTotals(zeros, zeros)

    def add_input(self, accumulator: MessageTotals, element: MessageTotals) -> MessageTotals:
        """Adds one."""
        return accumulator.merge(element, self._parameters.modulus)

    def merge_accumulators(self, accumulators: Iterable[MessageTotals]) -> MessageTotals:
        """Adds all."""
        total = self.create_accumulator()
        for each in accumulators:
            total = total.merge(each, self._parameters.modulus)
        return total

    def extract_output(self, accumulator: MessageTotals) -> MessageTotals:
        """As they are: the clients' noise is inside."""
        return accumulator


def _decode(totals: MessageTotals, parameters: SplitParameters, seed: int) -> DecodedBatch:
    n_clients = split_reports.n_clients_of(totals, parameters)
    promise = parameters.guarantee
    if n_clients is None or n_clients > MOST_TIMES * promise.min_batch:
        got = "others" if n_clients is None else f"those of {n_clients}"
        raise InputError(
            f"messages of split_and_mix must be all messages of at most {MOST_TIMES * promise.min_batch} clients, got "
            f"{got}; shuffle whole clients only."
        )
    if n_clients < promise.min_batch:
        return DecodedBatch(n_reports=n_clients, model=None)
    decoded = split_reports.decode_totals(totals, parameters, seed)
    centers = decoded.centers * parameters.radius
    return DecodedBatch(
        n_reports=n_clients, model=ClusterModel(centers=centers, noisy_sizes=decoded.sizes, releases=())
    )


@dataclasses.dataclass(eq=False, kw_only=True)
class DecodeMessages(beam.PTransform):
    """`MessageBatch`es → `DecodedBatch`, one element per window that has messages.

    Attributes:
      parameters: of the collection.
      seed: of k-means, public.

    Windowing: any with one final pane. Privacy: post-processing. Cost: one pass, no shuffle of messages; memory for
    two integers per place.
    """

    parameters: SplitParameters
    seed: int = 0

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Sums, then clusters the leaves."""
        return (
            batches
            | "Totals" >> beam.Map(_totals, self.parameters)
            | "Merge" >> beam.CombineGlobally(_MergeTotalsFn(self.parameters)).without_defaults()
            | "Decode" >> beam.Map(_decode, self.parameters, self.seed)
        )
