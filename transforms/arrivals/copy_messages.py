"""Messages of recorded offsets, copied to private Parquet files that a job then reads like any others."""

import dataclasses
import hashlib
import os
import secrets
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from schemas.arrivals.messages import table_of
from schemas.arrivals.offsets import Chunk, RecordPlace, WindowOffsets
from schemas.arrivals.topic import MessageColumns, PackedColumns
from schemas.errors import InputError
from schemas.settings import json_schema
from schemas.settings.refusal import Refusal
from transforms.arrivals.consume import TopicClient, messages
from transforms.files import gate
from transforms.files.octets import table_bytes, write_bytes
from transforms.files.private_sink import PrivateSink
from transforms.tables.file_seal import is_local, local_path


def record_refusal(path: str) -> Refusal:
    """What the user is told of a record that is not as the job wrote it."""
    rule = f"{path} must be the record of offsets that this job wrote"
    return Refusal(kind=InputError, rule=rule, remedy="restore it, or begin anew under another name")


def chunks_of(place: RecordPlace) -> Iterator[tuple[str, Chunk]]:
    """Parts of a window and the folder of their copies, in a worker; a graph must hold no offsets.

    Raises:
      InputError: if the record is not that of the launcher.
    """
    refusal = record_refusal(place.path)
    content = gate.read_octets(place.path, refusal)
    if hashlib.sha256(content).hexdigest() != place.digest:
        raise refusal.because("another one")
    record = json_schema.parsed(content, WindowOffsets, refusal)
    yield from ((place.folder, chunk) for chunk in record.chunks())


def copy_chunk(element: tuple[str, Chunk], client: TopicClient, columns: MessageColumns | PackedColumns) -> None:
    """Writes the messages of a part as one file; a second attempt replaces it by its equal.

    Args:
      element: folder and part.
      client: of the topic.
      columns: what is taken from each message.
    """
    folder, chunk = element
    table = table_of(messages(client, chunk.partition, chunk.first, chunk.end), columns)
    path = FileSystems.join(folder, chunk.file)
    if not is_local(path):
        write_bytes(path, table_bytes(table))
        return
    # A disk shows a file from its first octet, and another attempt may be at the same one.
    part = FileSystems.join(folder, f".{chunk.file}.{secrets.token_hex(8)}")
    write_bytes(part, table_bytes(table))
    os.replace(local_path(part), local_path(path))


@dataclasses.dataclass(eq=False, kw_only=True)
class CopyMessages(beam.PTransform):
    """Pipeline root → private files with the messages of windows.

    Attributes:
      places: of the records of the windows.
      client: of the topic.
      columns: what is taken from each message.

    Privacy: none, the files are as private as the messages. Cost: every message is read once; a worker holds one
    part of a window.
    """

    places: tuple[RecordPlace, ...]
    client: TopicClient
    columns: MessageColumns | PackedColumns

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Reads records, spreads their parts, copies."""
        return (
            root
            | "Records" >> beam.Create(self.places, reshuffle=False)
            | "Chunks" >> beam.FlatMap(chunks_of)
            | "Spread" >> beam.Reshuffle()
            | "Copy" >> PrivateSink(write=copy_chunk, places=(self.client, self.columns))
        )
