"""The public sink: released models leave the pipeline here and nowhere else."""

import dataclasses
import io
import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from schemas.model import ClusterModel
from schemas.release import releases_to_table

CENTERS_FILE = "centers.parquet"
RELEASES_FILE = "releases.parquet"
RELEASED_FILES = (CENTERS_FILE, RELEASES_FILE)


def write_bytes(path: str, content: bytes) -> None:
    """Writes a whole file on any Beam filesystem."""
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(content)


def make_folder(path: str) -> None:
    """Makes a folder, on a local disk for its owner only; one that is there is no error."""
    if FileSystems.get_scheme(path) in (None, "file"):
        os.makedirs(path, mode=0o700, exist_ok=True)
    elif not FileSystems.exists(path):
        FileSystems.mkdirs(path)


def read_bytes(path: str) -> bytes:
    """Reads a whole file on any Beam filesystem."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return bytes(file.read())


def table_bytes(table: pa.Table) -> bytes:
    """A table as a Parquet file; equal tables give equal bytes."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def table_from_bytes(content: bytes) -> pa.Table:
    """A Parquet file as a table.

    Arrow reads a Python file by threads that may outlive the call, and a process that ends just then aborts. So the
    octets are handed over, and no thread is started.

    Raises:
      pyarrow.ArrowException: if it is no Parquet file.
    """
    return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False).read(use_threads=False)


def _model(state: Any) -> ClusterModel:
    return state.model()


def _write_model(model: ClusterModel, folder: str) -> Iterator[str]:
    tables = {RELEASES_FILE: releases_to_table(list(model.releases)), CENTERS_FILE: model.centers_table()}
    for name, table in tables.items():
        path = FileSystems.join(folder, name)
        write_bytes(path, table_bytes(table))
        yield path


@dataclasses.dataclass(eq=False, kw_only=True)
class PublishModel(beam.PTransform):
    """One state of a protocol after its last round → the files `releases.parquet` and `centers.parquet` in a folder.

    A retried bundle writes the same bytes again, so the files do not depend on the number of attempts.

    Attributes:
      folder: on any Beam filesystem; exists.
    """

    folder: str

    def expand(self, state: beam.PCollection) -> beam.PCollection:
        """Takes the model out of the state and writes it."""
        return state | "Model" >> beam.Map(_model) | "Write" >> beam.FlatMap(_write_model, self.folder)
