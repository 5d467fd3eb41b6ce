"""The public sink: the only place where released models leave the pipeline."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import apache_beam as beam
import pyarrow as pa

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, RELEASES_FILE
from dapple_dp.transforms.files.file_bytes import releases_bytes, table_bytes, write_bytes
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.on_beam.workers import LeanFn


class ReleasedModel(Protocol):
    """Centers with the releases that they follow from."""

    @property
    def releases(self) -> Sequence[Release]:
        """All releases, in order."""

    def centers_table(self) -> pa.Table:
        """Returns a table with a row per center."""


class _WriteModelFn(LeanFn):
    """Takes the model out of a state and writes it."""

    def __init__(self, folder: str):
        self._folder = folder

    def process(self, state: Any) -> Iterator[str]:
        """Yields the paths of both files."""
        yield from write_model(state.model(), self._folder)


def write_model(model: ReleasedModel, folder: str) -> Iterator[str]:
    """Writes `releases.parquet` and `centers.parquet` into a folder; yields their paths."""
    files = {RELEASES_FILE: releases_bytes(model.releases), CENTERS_FILE: table_bytes(model.centers_table())}
    for name, content in files.items():
        path = join(folder, name)
        write_bytes(path, content)
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
        return state | "Write" >> beam.ParDo(_WriteModelFn(self.folder))
