"""The nearest center of every row, written with the row's ids.

Input element: `ShardRef`. Output element: `WrittenFile`. Guarantee: none. The assignment of rows to centers is
private; the files stay in the trusted zone.
"""

import dataclasses
import hashlib
import io
import os
import secrets
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dapple_dp.schemas.settings.format_number import FORMAT, METADATA
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.schemas.trusted_zone.job_configs import CLUSTER, FILE, ROW
from dapple_dp.schemas.trusted_zone.metrics import NOT_PRIVATE_METADATA
from dapple_dp.transforms.files import new_file
from dapple_dp.transforms.files.file_bytes import WrittenFile, write_bytes, write_listing
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.files.stores import is_local, join
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn
from dapple_dp.transforms.tables.shard_rows import ValidRows, read_valid_rows

DIGEST_KEY = "dapple.model"
"""Key of every file's metadata with the SHA-256 of the model's centers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignParams:
    """The columns to write.

    Attributes:
      model: assigns rows to clusters.
      digest: of the model.
      contract: reads shards; not by client.
      id_columns: to copy; if there are none, the file and the row's position in it are written.
      numbers: of the model's clusters, in its order; empty for 0, 1, ...
    """

    model: NearestCenters
    digest: str
    contract: TableContract
    id_columns: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()


class _AssignFn(SmallBlocksFn):
    """Writes one file per shard; blocks are small, so BLAS gets one thread."""

    def __init__(self, params: AssignParams, folder: str):
        self._params = params
        self._folder = folder

    def process(self, shard: ShardRef) -> Iterator[WrittenFile]:
        if shard == EMPTY_SHARD:
            return
        params, buffer = self._params, io.BytesIO()
        others = dict.fromkeys(params.id_columns, pa.string())
        tables = (_assigned(rows, params, shard) for rows in read_valid_rows(shard, params.contract, others))
        first = next(tables)
        metadata = NOT_PRIVATE_METADATA | {DIGEST_KEY: params.digest, METADATA: str(FORMAT)}
        with pq.ParquetWriter(buffer, first.schema.with_metadata(metadata)) as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
        content = buffer.getvalue()
        name = _file_name(shard)
        _write_whole(join(self._folder, name), content)
        yield WrittenFile(name, hashlib.sha256(content).hexdigest())


def _assigned(rows: ValidRows, params: AssignParams, shard: ShardRef) -> pa.Table:
    ids = {name: rows.others.column(name) for name in params.id_columns}
    if not ids:
        ids = {FILE: pa.array([shard.path] * len(rows.places), pa.string()), ROW: pa.array(rows.places)}
    labels = params.model.labels(rows.points)
    clusters = np.array(params.numbers)[labels] if params.numbers else labels
    return pa.table(ids | {CLUSTER: pa.array(clusters.astype(np.int32))})


def _file_name(shard: ShardRef) -> str:
    """Returns a name that no other shard has; shards of one file sort by row group."""
    digest = hashlib.sha256(shard.path.encode()).hexdigest()[:16]
    return f"part-{digest}-{shard.row_group:06d}.parquet"


def _write_whole(path: str, content: bytes) -> None:
    """Writes a file so that nobody sees it incomplete; a second attempt replaces it with an equal one."""
    if not is_local(path):
        write_bytes(path, content)
        return
    folder, name = os.path.split(path)
    target = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        write_bytes(target, content)
        new_file.rename(target, path)
    except BaseException:
        if os.path.exists(target):
            os.unlink(target)
        raise


@dataclasses.dataclass(eq=False, kw_only=True)
class AssignRows(beam.PTransform):
    """`ShardRef`s → Parquet files of ids and clusters, one per shard, and a list of them.

    Rows are in the order of the input. Files depend on their shard and on the model only, so a retried bundle
    writes its files again, byte for byte.

    Attributes:
      params: the columns to write.
      folder: for the files; private; exists.
      listing: path of a JSON file with names and digests, written once all files are.

    Windowing: global. Privacy: none, the output is as private as the input. Cost: one pass over features and ids,
    one shuffle of file names.
    """

    params: AssignParams
    folder: str
    listing: str

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Assigns, writes and lists."""
        return (
            shards
            | "Assign" >> beam.ParDo(_AssignFn(self.params, self.folder))
            | "Files" >> beam.combiners.ToList()
            | "Listing" >> PrivateSink(write=write_listing, places=(self.listing,))
        )
