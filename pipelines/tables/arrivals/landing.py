"""Private copies of a topic's messages as input of a fit: exactly those of the recorded offsets, on any runner.

The copies of a window are at `FOLDER/COLUMN=DATE/part-*.parquet`; they are deleted once they are no longer needed. They
are a function of the records, so copies of a killed attempt are removed and made again.
"""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.run.folder import absolute
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.tables.arrivals.broker import Broker
from dapple_dp.pipelines.tables.arrivals.records import RECORDS, Records
from dapple_dp.schemas.arrivals.offsets import RecordPlace, WindowOffsets
from dapple_dp.schemas.arrivals.topic import MessageColumns, PackedColumns
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.transforms.arrivals.consume import CopyMessages, TopicClient
from dapple_dp.transforms.files.claims import alone_at
from dapple_dp.transforms.files.file_bytes import make_folder
from dapple_dp.transforms.files.stores import STORE, is_local, join, local_path

_COPY = r"\.?part-\d{5}-\d{7}\.parquet(?:\.[0-9a-f]{16})?"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Place for copies of an epoch's messages.

    Attributes:
      records: records of the epoch's windows.
      columns: columns to extract from each message.
      column: name of the date in folder names.
      setting: name of the folder's setting, for messages.
      options: Beam options.
    """

    records: Records
    columns: MessageColumns | PackedColumns
    column: str
    setting: str
    options: PipelineOptions

    @property
    def _root(self) -> str:
        return absolute(self.records.folder).rstrip("/")

    def check(self, output: str) -> None:
        """Refuses a folder with other files, which would be removed or count as rows.

        Args:
          output: output folder of the job, which must contain nothing private.

        Raises:
          ConfigError: with the name of the folder.
        """
        private, released = (f"{_resolved(each)}/" for each in (self._root, output))
        if private.startswith(released) or released.startswith(private):
            raise ConfigError(f"{self.setting} must be apart from --output, got {self._root}; choose a private folder.")
        for path in _files_in(self._root):
            below = path.removeprefix(f"{self._root}/")
            if not below.startswith(f"{RECORDS}/") and not self._is_copy(below):
                raise ConfigError(
                    f"{self.setting} must be a folder for copies of messages alone, which are deleted when windows are "
                    f"released, and {self._root} holds something else; choose another one."
                )

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Locks the folder for this job; raises ConfigError if another job uses it."""
        return alone_at(join(self._root, RECORDS), self.records.epoch, self.setting, self._root)

    def copy(self, dates: Sequence[str]) -> None:
        """Copies the messages of windows that were cut.

        Raises:
          InputError: if the broker has dropped messages or doesn't answer, or workers write elsewhere.
        """
        for date in dates:
            make_folder(self._copies(date))
        places = tuple(self.records.place(date, self._copies(date)) for date in dates)
        add = functools.partial(_build, places=places, client=self.records.client, columns=self.columns)
        run_graph(add, self.options, TRUSTED_ZONE)
        for date in dates:
            found = {os.path.basename(path) for path in _files_in(self._copies(date))}
            if not {chunk.file for chunk in self.records.kept(date).chunks()} <= found:
                raise InputError(
                    f"{self.setting} must be a folder that workers and launcher share, got one without the copies that "
                    "workers made; choose another place."
                )

    def remove(self, dates: Sequence[str] = ()) -> None:
        """Removes the copies of the given windows, by default of all."""
        if dates:
            _remove([path for date in dates for path in _files_in(self._copies(date))])
        else:
            _remove(self._all())

    def clear(self) -> None:
        """Removes copies of a killed call, unless another job works here, which removes its own."""
        if self._all():
            with contextlib.suppress(ConfigError), self.alone():
                self.remove()

    def _all(self) -> list[str]:
        """Paths of the copies of all windows."""
        return [path for path in _files_in(self._root) if self._is_copy(path.removeprefix(f"{self._root}/"))]

    def _copies(self, date: str) -> str:
        return join(self._root, f"{self.column}={date}")

    def _is_copy(self, below: str) -> bool:
        """Returns whether a relative path is that of a copy, complete or not."""
        return re.fullmatch(rf"{re.escape(self.column)}=\d{{4}}-\d\d-\d\d/{_COPY}", below) is not None


def check_kept(client: TopicClient, broker: Broker, records: Sequence[WindowOffsets]) -> None:
    """Refuses windows of which the broker has dropped messages; the error doesn't say how many.

    Args:
      client: client of the topic.
      broker: broker of the topic.
      records: records of the windows.

    Raises:
      InputError: if messages were dropped.
    """
    kept = broker.bounds(max((len(record.ranges) for record in records), default=0))
    for record in records:
        for each in record.ranges:
            low, high = kept[each.partition]
            if each.first < each.end and not low <= each.first <= each.end <= high:
                raise client.gone()


def _build(
    root: beam.Pipeline, places: tuple[RecordPlace, ...], client: TopicClient, columns: MessageColumns | PackedColumns
) -> None:
    _ = root | "CopyMessages" >> CopyMessages(places=places, client=client, columns=columns)


def _resolved(path: str) -> str:
    """Resolves links and trailing slashes of a path; store paths have no links."""
    return os.path.realpath(local_path(path)) if is_local(path) else path.rstrip("/")


def _files_in(folder: str) -> Iterator[str]:
    if is_local(folder):
        for place, _, names in os.walk(local_path(folder)):
            yield from (os.path.join(place, name) for name in names)
        return
    with contextlib.suppress(OSError):
        yield from (file.path for file in STORE.list(f"{folder}/"))


def _remove(paths: Sequence[str]) -> None:
    """Removes files, and local folders that are then empty."""
    STORE.delete(*paths)
    for folder in {os.path.dirname(path) for path in paths if is_local(path)}:
        with contextlib.suppress(OSError):
            os.rmdir(local_path(folder))
