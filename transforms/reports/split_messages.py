"""Messages of split and mix through pipelines: made by clients, shuffled, read, summed and decoded.

Element: `MessageBatch`. Guarantee: messages of one client are not private on their own; shuffled among those of
`min_batch` clients they reveal the noisy sums of the leaves and nothing else, to within the delta of the collection.
The noise belongs to the clients, so making messages is a declared exception to the one noise stage.
"""

import dataclasses
import io
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.reports.split_parameters import SplitParameters
from dapple_dp.schemas.tables.columns import find, mismatch, plain
from dapple_dp.transforms.files.file_bytes import WrittenFile, write_listing
from dapple_dp.transforms.numerics.reports import split_reports
from dapple_dp.transforms.numerics.reports.split_and_mix import MOST_TIMES, Messages, MessageTotals
from dapple_dp.transforms.reports.batches import ReadRowGroups, check_apart, check_one_pane, check_one_window
from dapple_dp.transforms.reports.decode import DecodedBatch
from dapple_dp.transforms.reports.encode import EncodeClients, KeyedClientFn
from dapple_dp.transforms.reports.shuffle import write_part
from dapple_dp.transforms.tables.file_seal import open_parquet
from dapple_dp.transforms.tables.shard_rows import read_row_group

SCHEMA = pa.schema([pa.field("place", pa.uint32(), nullable=False), pa.field("share", pa.uint64(), nullable=False)])
UPLOAD = "upload"
"""Column of the name by which messages of a device show which upload they are of, so that none counts twice."""
UPLOAD_SCHEMA = pa.schema([pa.field(UPLOAD, pa.uint64(), nullable=False), *SCHEMA])
_N_GROUPS, _N_UPLOAD_GROUPS = 64, 1024
_BATCH_MESSAGES = 1 << 20


class MessageBatch(NamedTuple):
    """Some messages as plain bytes: places (4 each) and shares (8 each), little-endian."""

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


_Piece = tuple[bytes, MessageBatch]
"""Names of uploads, 8 bytes each, and their messages."""


class _EncodeFn(KeyedClientFn):
    clients_at_once = 64

    def _encoded(self, points: NDArray[np.floating], clients: list[bytes], key: bytes) -> MessageBatch:
        return MessageBatch.of(split_reports.encode_clients(points, clients, self._parameters, key))


class EncodeMessages(EncodeClients):
    """`ShardRef`s → `MessageBatch`es, all messages of every client, under its `SplitParameters`.

    Privacy: none before messages are shuffled. Cost: `messages_per_client` messages per client, of 12 bytes here.
    """

    _encodes = _EncodeFn


def _split(batch: MessageBatch) -> Iterator[tuple[int, MessageBatch]]:
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
    return write_part(group[0], buffer.getvalue(), folder)


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
        check_one_pane(batches)
        check_one_window(batches)
        return (
            batches
            | "Split" >> beam.FlatMap(_split)
            | "ByPlace" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write, self.folder)
            | "Files" >> beam.combiners.ToList()
            | "Listing" >> beam.Map(write_listing, self.listing)
        )


def _read(place: tuple, parameters: SplitParameters) -> Iterator[MessageBatch]:
    for _, batch in read_messages(place, parameters, SCHEMA):
        yield batch


def read_messages(
    place: tuple, parameters: SplitParameters, schema: pa.Schema
) -> Iterator[tuple[pa.Table, MessageBatch]]:
    """Messages of a row group, a good many at a time, beside the columns they were read from.

    Args:
      place: path and number of the row group.
      parameters: of the collection.
      schema: columns that must be there; `SCHEMA` and others.

    Raises:
      InputError: for messages of another collection.
    """
    path, row_group = place
    where = f"{path}, row group {row_group}"
    with open_parquet(path) as file:
        for field in schema:
            if (kind := find(file.schema_arrow, field.name, where).type) != field.type:
                raise mismatch(field.name, where, f"be {field.type}", str(kind), "write it as encode does")
        table = read_row_group(file, row_group, where, schema.names)
    for start in range(0, table.num_rows, _BATCH_MESSAGES):
        names = schema.names
        rows = pa.table({name: plain(table.column(name)).slice(start, _BATCH_MESSAGES) for name in names})
        if any(rows.column(name).null_count for name in names):
            raise _foreign(where)
        places, shares = (rows.column(name).to_numpy() for name in SCHEMA.names)
        if (places >= parameters.n_places).any() or (shares >= parameters.modulus).any():
            raise _foreign(where)
        yield rows, MessageBatch(places.astype("<u4").tobytes(), shares.astype("<u8").tobytes())


def _foreign(where: str) -> InputError:
    return InputError(
        f"messages of split_and_mix must have a place and a share of their collection, got others in {where}; leave "
        "out clients whose messages are not whole: one wrong share makes a sum a random number."
    )


class ReadMessages(ReadRowGroups):
    """Pipeline root → `MessageBatch`es of all files in a folder; messages of another collection stop the job."""

    _reads = staticmethod(_read)


def _totals(batch: MessageBatch, parameters: SplitParameters) -> MessageTotals:
    return MessageTotals.of(batch.messages(), parameters.n_places, parameters.modulus)


class _MergeTotalsFn(beam.CombineFn):
    """Adds totals modulo the collection's prime."""

    def __init__(self, parameters: SplitParameters):
        self._parameters = parameters

    def create_accumulator(self) -> MessageTotals:
        zeros = np.zeros(self._parameters.n_places, dtype=np.int64)
        return MessageTotals(zeros, zeros)

    def add_input(self, accumulator: MessageTotals, element: MessageTotals) -> MessageTotals:
        return accumulator.merge(element, self._parameters.modulus)

    def merge_accumulators(self, accumulators: Iterable[MessageTotals]) -> MessageTotals:
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
    if not promise.is_met_by(n_clients):
        return DecodedBatch(n_reports=n_clients, model=None)
    decoded = split_reports.decode_totals(totals, parameters, seed)
    return DecodedBatch.of(n_clients, decoded, parameters.radius)


@dataclasses.dataclass(eq=False, kw_only=True)
class DecodeMessages(beam.PTransform):
    """`MessageBatch`es → `DecodedBatch`, one element per window that has messages.

    Attributes:
      parameters: of the collection.
      seed: of k-means, public.

    Windowing: any with one final pane and without overlap. Privacy: post-processing. Cost: one pass, no shuffle of
    messages; memory for two integers per place.
    """

    parameters: SplitParameters
    seed: int = 0

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Sums, then clusters the leaves."""
        check_one_pane(batches)
        check_apart(batches)
        return (
            batches
            | "Totals" >> beam.Map(_totals, self.parameters)
            | "Merge" >> beam.CombineGlobally(_MergeTotalsFn(self.parameters)).without_defaults()
            | "Decode" >> beam.Map(_decode, self.parameters, self.seed)
        )


def _read_pieces(place: tuple, parameters: SplitParameters) -> Iterator[tuple[int, _Piece]]:
    """Messages of a row group by the group of their upload."""
    for rows, batch in read_messages(place, parameters, UPLOAD_SCHEMA):
        uploads, messages = rows.column(UPLOAD).to_numpy().astype("<u8"), batch.messages()
        groups = uploads % np.uint64(_N_UPLOAD_GROUPS)
        for group in np.unique(groups).tolist():
            own = groups == group
            yield group, (uploads[own].tobytes(), MessageBatch.of(Messages(*(each[own] for each in messages))))


def _distinct(group: tuple[int, Iterable[_Piece]], parameters: SplitParameters) -> Iterator[MessageBatch]:
    """One copy of every whole upload of a group; the names of uploads end here."""
    pieces = list(group[1])
    uploads = np.frombuffer(b"".join(names for names, _ in pieces), dtype="<u8")
    batches = [batch.messages() for _, batch in pieces]
    messages = Messages(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))
    order = np.lexsort((messages.shares, messages.places, uploads))
    starts = np.flatnonzero(np.diff(uploads[order], prepend=uploads[order[:1]] + np.uint64(1)))
    for rows in np.split(order, starts[1:]):
        upload = Messages(messages.places[rows], messages.shares[rows])
        if (kept := one_copy(upload, parameters)) is not None:
            yield MessageBatch.of(Messages(*(each[kept] for each in upload)))


def one_copy(upload: Messages, parameters: SplitParameters) -> NDArray[np.int64] | None:
    """Rows of one copy of an upload; None if it is not whole, or its copies differ.

    Args:
      upload: all messages of one name, sorted by place and share.
      parameters: of the collection.
    """
    n_copies, rest = divmod(len(upload.places), parameters.messages_per_client)
    if rest or not n_copies:
        return None
    copies = [each.reshape(-1, n_copies) for each in upload]
    places = np.repeat(np.arange(parameters.n_places), parameters.n_messages)
    same = all((each == each[:, :1]).all() for each in copies)
    return np.arange(0, len(upload.places), n_copies) if same and (copies[0][:, 0] == places).all() else None


class _ReadPieces(ReadRowGroups):
    """Pipeline root → pieces by group of uploads."""

    _reads = staticmethod(_read_pieces)


class ReadUploads(ReadRowGroups):
    """Pipeline root → `MessageBatch`es of all files in a folder, each client's once, as they arrive from devices.

    A device that tries again sends its upload again. Of the messages of one upload one copy stays; an upload that is
    not whole, or of which there are two that differ, is left out.

    Privacy: anyone who reads uploads is the shuffler, which is trusted to forget them. Cost: one shuffle of all
      messages,
    20 bytes each; memory for those of a 1,024th of all clients.
    """

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Reads, groups by upload, keeps one copy."""
        pieces = root | "Pieces" >> _ReadPieces(path=self.path, parameters=self.parameters, setting=self.setting)
        return pieces | "ByUpload" >> beam.GroupByKey() | "Distinct" >> beam.FlatMap(_distinct, self.parameters)
