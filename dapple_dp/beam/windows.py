"""Windows of rows that have a model each, and those that are refused."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import AccumulationMode, DefaultTrigger
from apache_beam.transforms.window import (
    BoundedWindow,
    FixedWindows,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
)
from apache_beam.utils.timestamp import Timestamp

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.on_beam.workers import LeanFn

_MOST = 100_000
_RULE = "rows must be bounded and in the global window, or in FixedWindows that fire once"
_REMEDY = "apply beam.WindowInto with only beam.window.GlobalWindows() or FixedWindows(size) before this step"


@dataclasses.dataclass(frozen=True, slots=True)
class PublicWindows:
    """Windows that have a model each, even without any rows, so that a model reveals nothing by being there.

    Attributes:
      start: of the first window, microseconds since 1970 in UTC.
      size: of a window, microseconds.
      number: number of consecutive windows.
    """

    start: int
    size: int
    number: int

    def __contains__(self, window: IntervalWindow) -> bool:
        return self.start <= window.start.micros < self.start + self.number * self.size

    def are_of_size(self, window: BoundedWindow) -> bool:
        """Returns whether a window is one of them, or of those before and after them."""
        start, end = window.start.micros, window.end.micros
        return end - start == self.size and (start - self.start) % self.size == 0


class EachWindowFn(LeanFn):
    """Repeats a public element for each window."""

    def __init__(self, windows: PublicWindows):
        self._windows = windows

    def process(self, element: Any) -> Iterator[TimestampedValue]:
        """Yields the element at the start of each window."""
        for number in range(self._windows.number):
            yield TimestampedValue(element, Timestamp(micros=self._windows.start + number * self._windows.size))


def public_windows(rows: beam.PCollection, between: Any, *, by_client: bool) -> PublicWindows | None:
    """Returns the windows of rows that have models; None for the global window.

    Args:
      rows: the input.
      between: what the user gave for `windows`.
      by_client: whether clients are protected.

    Raises:
      ConfigError: if rows could be released more than once, or windows that have models could follow from rows.
    """
    windowing = rows.windowing
    fault = _fault(windowing, rows.is_bounded, by_client)
    if fault is not None:
        raise ConfigError(f"{_RULE}, got {fault}; {_REMEDY}.")
    if isinstance(windowing.windowfn, GlobalWindows):
        if between is not None:
            raise ConfigError(f"windows isn't supported for rows in the global window; leave it out, or {_REMEDY}.")
        return None
    size, offset = windowing.windowfn.size.micros, windowing.windowfn.offset.micros
    try:
        # A statement names its window, so both must be dates.
        start, stop = (Timestamp.from_rfc3339(Timestamp.of(time).to_rfc3339()).micros for time in between)
    except (TypeError, ValueError, OverflowError):
        start = stop = 0
    if not 0 < stop - start <= _MOST * size or (stop - start) % size or (start - offset) % size:
        raise ConfigError(
            "windows must be the start of the first window and the end of the last, in seconds or as UTC "
            f"datetimes, for at most {_MOST:,} windows, since rows must not decide which windows have models, got "
            "something else; try windows=(start, start + 24 * size)."
        )
    return PublicWindows(start, size, (stop - start) // size)


def _fault(windowing: Windowing, bounded: bool, by_client: bool) -> str | None:
    """Describes what is wrong with the windows of rows; None if nothing is."""
    windowfn, wide = windowing.windowfn, type(windowing.windowfn) is GlobalWindows
    faults = {
        "sliding windows, which release a row several times": isinstance(windowfn, SlidingWindows),
        "sessions, whose limits depend on private rows": isinstance(windowfn, Sessions),
        f"{type(windowfn).__name__}": type(windowfn) not in (GlobalWindows, FixedWindows),
        "a stream in the global window, which has no end": wide and not bounded,
        "a trigger that may fire early, late or again": type(windowing.triggerfn) is not DefaultTrigger,
        "accumulating panes, which release rows again": windowing.accumulation_mode != AccumulationMode.DISCARDING,
        "allowed_lateness, after which a window is released again": windowing.allowed_lateness.micros > 0,
        "a timestamp_combiner other than the end of the window": windowing.timestamp_combiner
        != TimestampCombiner.OUTPUT_AT_EOW,
        "windows with unit client, since a client can be in several of them": by_client and not wide,
    }
    return next((words for words, wrong in faults.items() if wrong), None)
