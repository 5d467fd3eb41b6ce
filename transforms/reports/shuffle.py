"""The shuffler: rewrites reports without order, ids or times.

Input element: `ReportBatch`. Output element: `WrittenFile`. Guarantee: the files hold nonces and payloads, sorted by
nonce; nonces are uniform and independent of the client, so the order is a uniformly random one.
"""

import dataclasses
import hashlib
import io

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from dapple_dp.schemas.reports.parameters import ReportParameters, ReportVariant
from dapple_dp.schemas.reports.rows import to_table
from dapple_dp.transforms.files.file_bytes import WrittenFile, write_bytes, write_listing
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.reports.batches import (
    FEW_GROUPS,
    MANY_GROUPS,
    GroupReports,
    check_one_pane,
    check_one_window,
    distinct_reports,
)

_MANY_REPORTS = 100_000_000
"""Number of reports from which on a collection gets many files."""


def _write(group: tuple, parameters: ReportParameters, folder: str) -> WrittenFile:
    """Writes the file of a group; a second attempt writes the same bytes."""
    reports = distinct_reports(group, parameters)
    payload = reports.codewords if parameters.variant is ReportVariant.PRIVUNIT else reports.indices
    name, content = f"part-{group[0]:02d}.parquet", _file_of(to_table(reports.nonces, payload, parameters))
    write_bytes(join(folder, name), content)
    return WrittenFile(name, hashlib.sha256(content).hexdigest())


def n_files(min_batch: int) -> int:
    """Returns the number of files of a collection, which depends only on a public number: more for many reports."""
    return FEW_GROUPS if min_batch < _MANY_REPORTS else MANY_GROUPS


def _file_of(table: pa.Table) -> bytes:
    """Writes a table of random bytes as a Parquet file: they don't compress, and no part can be skipped."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="none", use_dictionary=False, write_statistics=False)
    return buffer.getvalue()


@dataclasses.dataclass(eq=False, kw_only=True)
class ShuffleReports(beam.PTransform):
    """`ReportBatch`es → Parquet files of shuffled reports, and a list of them.

    Of reports with the same nonce, one stays. A retried bundle writes its file again, byte for byte.

    Attributes:
      parameters: of the collection.
      folder: exists; files go there.
      listing: path of a JSON file with names and digests, written once all files are.
      spill_folder: see `GroupReports`.

    Windowing: global. Cost: one shuffle of all reports.
    """

    parameters: ReportParameters
    folder: str
    listing: str
    spill_folder: str | None = None

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Groups by nonce, sorts, writes and lists."""
        check_one_pane(batches)
        check_one_window(batches)
        many = n_files(self.parameters.guarantee.min_batch)
        grouped = GroupReports(parameters=self.parameters, spill_folder=self.spill_folder, n_groups=many)
        return (
            batches
            | "ByNonce" >> grouped
            | "Write" >> beam.Map(_write, self.parameters, self.folder)
            | "Files" >> beam.combiners.ToList()
            | "Listing" >> beam.Map(write_listing, self.listing)
        )
