"""Turns noised numbers into the released table by post-processing with public settings, and writes its file."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.profile.plan import (
    CLIENTS,
    COUNT,
    PROFILE_FILE,
    PROFILE_SCHEMA,
    UNITS_PER_HALF_RANGE,
    ProfilePlan,
    Statistic,
    histogram_path,
    mean_path,
    percentile_path,
)
from dapple_dp.transforms.files.file_bytes import table_bytes, write_bytes
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.profile.pipeline_dp_noise import Noised

_Row = tuple[int, str | None, str, str | None, float, float | None]


def profile_table(plan: ProfilePlan, noised: Iterable[Noised], numbers: tuple[int, ...] = ()) -> pa.Table:
    """Returns the released table; rows by column and statistic, then cluster, then value.

    Args:
      plan: of the run.
      noised: all of it, in any order.
      numbers: of the model's clusters, in its order; empty for 0, 1, ...

    Returns:
      A table of `PROFILE_SCHEMA`. Counts may be negative if noise outweighs them. A mean is the noisy sum over the
      noisy count, inside its bounds, and its noise stddev holds to first order. Percentiles come without one.
    """
    by_path: dict[str, list[Noised]] = {}
    for each in sorted(noised):
        by_path.setdefault(each.path, []).append(each)
    rows = [*_sizes(plan, by_path), *_numeric(plan, by_path), *_categorical(plan, by_path)]
    rows = [(numbers[row[0]], *row[1:]) for row in rows] if numbers else rows
    names = PROFILE_SCHEMA.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=PROFILE_SCHEMA)


def _sums(plan: ProfilePlan, by_path: dict[str, list[Noised]], path: str) -> NDArray[np.float64]:
    return np.array(by_path[path][0].values).reshape(plan.event(path).shape or ())


def _sizes(plan: ProfilePlan, by_path: dict[str, list[Noised]]) -> Iterator[_Row]:
    released = {event.path for event in plan.events}
    for path, statistic in ((COUNT, Statistic.COUNT), (CLIENTS, Statistic.CLIENTS)):
        if path not in released:
            continue
        for cluster, size in enumerate(_sums(plan, by_path, path).tolist()):
            yield cluster, None, statistic, None, size, plan.event(path).noise_stddev


def _numeric(plan: ProfilePlan, by_path: dict[str, list[Noised]]) -> Iterator[_Row]:
    for name, column in plan.numeric.items():
        for cluster, (mean, stddev) in enumerate(_means(plan, by_path, name)):
            yield cluster, name, Statistic.MEAN, None, mean, stddev
        for each in by_path.get(percentile_path(name), ()):
            values = np.maximum.accumulate(np.clip(each.values, column.lower, column.upper)).tolist()
            for percentile, value in zip(column.percentiles, values, strict=True):
                yield int(each.key[0]), name, Statistic.PERCENTILE, f"{percentile:g}", value, None


def _means(plan: ProfilePlan, by_path: dict[str, list[Noised]], name: str) -> Iterator[tuple[float, float]]:
    column, event = plan.numeric[name], plan.event(mean_path(name))
    half = column.upper / 2.0 - column.lower / 2.0
    unit, middle = half / UNITS_PER_HALF_RANGE, column.lower + half
    counts = np.maximum(_sums(plan, by_path, COUNT), 1.0).tolist()
    for total, count in zip(_sums(plan, by_path, event.path).tolist(), counts, strict=True):
        offset = min(max(total / count * unit, -half), half)
        stddev = math.hypot(event.noise_stddev * unit, offset * plan.event(COUNT).noise_stddev) / count
        yield min(max(middle + offset, column.lower), column.upper), stddev


def _categorical(plan: ProfilePlan, by_path: dict[str, list[Noised]]) -> Iterator[_Row]:
    statistic = plan.sized_by
    for name, listed in plan.categorical.items():
        path = histogram_path(name)
        stddev = plan.event(path).noise_stddev
        if listed.texts is None:
            for each in by_path.get(path, ()):
                yield int(each.key[0]), name, statistic, str(each.key[1]), each.values[0], stddev
            continue
        for cluster, counts in enumerate(_sums(plan, by_path, path).tolist()):
            for text, number in zip(listed.texts, counts, strict=True):
                yield cluster, name, statistic, text, number, stddev


def _write(noised: list[Any], plan: ProfilePlan, folder: str, numbers: tuple[int, ...]) -> None:
    write_bytes(join(folder, PROFILE_FILE), table_bytes(profile_table(plan, noised, numbers)))


@dataclasses.dataclass(eq=False, kw_only=True)
class PublishProfile(beam.PTransform):
    """`Noised` → the file `profile.parquet` in a folder.

    All numbers are collected by a shuffle before the file is written, so a retried write does not draw noise again.

    Attributes:
      plan: of the run.
      folder: on any Beam filesystem; exists.
      numbers: of the model's clusters, in its order; empty for 0, 1, ...
    """

    plan: ProfilePlan
    folder: str
    numbers: tuple[int, ...] = ()

    def expand(self, noised: beam.PCollection) -> beam.PCollection:
        """Collects and writes."""
        collected = noised | "Collect" >> beam.combiners.ToList()
        return collected | "Write" >> beam.Map(_write, self.plan, self.folder, self.numbers)
