"""Batches of reports in a pipeline: read, grouped by nonce so that none counts twice, and spilled to files if useful.

Element: `ReportBatch`. Reports are private on their own, so nothing here needs a noise stage.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.trigger import AfterWatermark, DefaultTrigger
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.parameters import ReportParameters, ReportVariant
from dapple_dp.schemas.reports.rows import arrival_schema, from_table, report_schema
from dapple_dp.transforms.files import row_spill
from dapple_dp.transforms.files.row_spill import Spilled
from dapple_dp.transforms.numerics.reports.encoder import Reports
from dapple_dp.transforms.tables.file_seal import open_parquet
from dapple_dp.transforms.tables.shard_rows import read_row_group
from dapple_dp.transforms.tables.source import list_files

FEW_GROUPS, MANY_GROUPS = 64, 1024
"""Groups of reports by the highest bits of their nonce; one group is in memory at a time."""
_BATCH_REPORTS = 1 << 18


class ReportBatch(NamedTuple):
    """Some reports as plain bytes: nonces, and indices or codewords, little-endian, without padding."""

    nonces: bytes
    payload: bytes

    @classmethod
    def of(cls, reports: Reports, parameters: ReportParameters) -> "ReportBatch":
        """Creates a batch of reports."""
        sent = reports.codewords if parameters.variant is ReportVariant.PRIVUNIT else reports.indices.astype("<u2")
        return cls(reports.nonces.astype("<u8").tobytes(), np.ascontiguousarray(sent).tobytes())

    def reports(self, parameters: ReportParameters) -> Reports:
        """Returns the reports as arrays."""
        nonces = np.frombuffer(self.nonces, dtype="<u8").astype(np.uint64)
        if parameters.variant is ReportVariant.PRIVUNIT:
            codewords = np.frombuffer(self.payload, dtype=np.uint8).reshape(len(nonces), parameters.report_bytes - 8)
            return Reports(nonces, np.zeros(len(nonces), dtype=np.uint16), codewords)
        indices = np.frombuffer(self.payload, dtype="<u2").astype(np.uint16)
        return Reports(nonces, indices, np.zeros((len(nonces), 0), dtype=np.uint8))


Piece = ReportBatch | tuple[Spilled, Spilled]
Group = tuple[int, Iterable[Piece]]


def _list_row_groups(path: str) -> Iterator[tuple[str, int]]:
    with open_parquet(path) as file:
        yield from ((path, index) for index in range(file.num_row_groups))


def _read(place: tuple, parameters: ReportParameters) -> Iterator[ReportBatch]:
    return _batches(place, parameters, report_schema(parameters))


def _read_arrivals(place: tuple, parameters: ReportParameters) -> Iterator[ReportBatch]:
    return _batches(place, parameters, arrival_schema(parameters))


def _batches(place: tuple, parameters: ReportParameters, schema: pa.Schema) -> Iterator[ReportBatch]:
    """Yields the valid reports of a row group, many at a time."""
    path, row_group = place
    where = f"{path}, row group {row_group}"
    with open_parquet(path) as file:
        from_table(file.schema_arrow.empty_table(), parameters, where, schema)
        table = read_row_group(file, row_group, where, schema.names)
    for start in range(0, table.num_rows, _BATCH_REPORTS):
        nonces, payload = from_table(table.slice(start, _BATCH_REPORTS), parameters, where, schema)
        yield ReportBatch(nonces.astype("<u8").tobytes(), np.ascontiguousarray(payload).tobytes())


@dataclasses.dataclass(eq=False, kw_only=True)
class ReadRowGroups(beam.PTransform):
    """Pipeline root → batches of all files at a path, in any order.

    Attributes:
      path: a Parquet file, a glob or a folder on any Beam filesystem.
      parameters: of the collection.
      setting: name of the path in messages.

    Cost: one listing, one pass over the files, one shuffle of references.
    """

    path: str
    parameters: ReportParameters
    setting: str = "reports.path"
    _reads: ClassVar[Callable[..., Iterator[tuple]]]

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Lists files, then row groups, then reads."""
        return (
            root
            | "Path" >> beam.Create([self.path], reshuffle=False)
            | "ListFiles" >> beam.FlatMap(list_files, {}, self.setting)
            | "ListRowGroups" >> beam.FlatMap(_list_row_groups)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(self._reads, self.parameters)
        )


class ReadReports(ReadRowGroups):
    """Pipeline root → `ReportBatch`es of all files in a folder; rows that can't be reports are left out."""

    _reads = staticmethod(_read)


class ReadArrivals(ReadRowGroups):
    """Pipeline root → `ReportBatch`es as devices sent them; in mode shuffle without those of other parameters."""

    _reads = staticmethod(_read_arrivals)


def _split(
    batch: ReportBatch, parameters: ReportParameters, spill_folder: str | None, n_groups: int
) -> Iterator[tuple[int, Piece]]:
    """Yields the reports of a batch by group of nonces."""
    reports = batch.reports(parameters)
    groups = (reports.nonces >> np.uint64(64 - (n_groups - 1).bit_length())).astype(np.int64)
    order = np.argsort(groups, kind="stable")
    bounds = np.searchsorted(groups[order], np.arange(n_groups + 1))
    filled = np.flatnonzero(np.diff(bounds)).tolist()
    parts = [reports.take(order[bounds[index] : bounds[index + 1]]) for index in filled]
    pieces = [ReportBatch.of(part, parameters) for part in parts]
    if spill_folder is None:
        yield from zip(filled, pieces, strict=True)
        return
    origin = hashlib.sha256(batch.nonces + batch.payload).hexdigest()
    places = row_spill.spill(spill_folder, origin, (raw for piece in pieces for raw in piece))
    for index, nonces, payload in zip(filled, places[::2], places[1::2], strict=True):
        yield index, (nonces, payload)


def distinct_reports(group: Group, parameters: ReportParameters) -> Reports:
    """Returns the reports of a group, sorted by nonce; of those with one nonce, the one with the least payload."""
    pieces = [piece if isinstance(piece, ReportBatch) else _loaded(piece) for piece in group[1]]
    parts = [piece.reports(parameters) for piece in pieces]
    reports = Reports(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    keys = [*reports.codewords.T[::-1], reports.indices, reports.nonces]
    ordered = reports.take(np.lexsort(keys))
    first = np.ones(len(ordered.nonces), dtype=np.bool_)
    first[1:] = ordered.nonces[1:] != ordered.nonces[:-1]
    return ordered.take(np.flatnonzero(first))


def _loaded(places: tuple[Spilled, Spilled]) -> ReportBatch:
    return ReportBatch(*(row_spill.load(place) for place in places))


def check_one_pane(batches: beam.PCollection) -> None:
    """Refuses windows that fire more than once, since later panes repeat reports or hold only late ones.

    Raises:
      ConfigError: unless windows fire once, when the watermark has passed their end, and late reports are dropped.
    """
    windowing = batches.windowing
    trigger = windowing.triggerfn
    bare = isinstance(trigger, AfterWatermark) and not (trigger.early or trigger.late)
    once = bare or isinstance(trigger, DefaultTrigger)
    if not once or windowing.allowed_lateness.micros:
        raise ConfigError(
            "a window of reports must have one pane, and this trigger or lateness allows more; window them again by "
            "beam.WindowInto with the default trigger and without allowed_lateness."
        )


def check_apart(batches: beam.PCollection) -> None:
    """Refuses windows that may share reports, if a guarantee needs a whole batch.

    The releases of two of them together would isolate the reports that only one has, and these are fewer.

    Raises:
      ConfigError: unless every report is in one window.
    """
    if not isinstance(batches.windowing.windowfn, (GlobalWindows, FixedWindows, Sessions)):
        raise ConfigError(
            "windows of shuffled reports must be fixed windows or sessions, which don't overlap; window them again by "
            "beam.window.FixedWindows."
        )


def check_one_window(batches: beam.PCollection) -> None:
    """Refuses several windows if files are written, since those of one would replace those of another.

    Raises:
      ConfigError: unless all reports are in the global window.
    """
    if not isinstance(batches.windowing.windowfn, GlobalWindows):
        raise ConfigError(
            "reports must be shuffled in the global window; shuffle the reports of each window in a separate job."
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class GroupReports(beam.PTransform):
    """`ReportBatch`es → `Group`s: all reports whose nonces have the same highest bits.

    Attributes:
      parameters: of the collection.
      spill_folder: a private folder on a disk that all workers share, for runners that shuffle in
        memory; None to pass reports through the runner. The caller must remove spilled files.
      n_groups: a power of two; at most as many workers have work.

    Windowing: any with one final pane; reports of different windows stay apart. Cost: one shuffle of all reports, or of
    their places.
    """

    parameters: ReportParameters
    spill_folder: str | None = None
    n_groups: int = FEW_GROUPS

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Splits batches and groups reports.

        Raises:
          ConfigError: if a window could have more than one pane.
        """
        check_one_pane(batches)
        split = beam.FlatMap(_split, self.parameters, self.spill_folder, self.n_groups)
        return batches | "Split" >> split | "Group" >> beam.GroupByKey()
