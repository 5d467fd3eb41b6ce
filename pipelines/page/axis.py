"""One axis of a plot: its values, limits and tick labels."""

import datetime
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

MINUS = "\N{MINUS SIGN}"
_MARGIN = 0.05
_LAST_NARROW = 0x2E7F
"""Letters of East Asian scripts have larger code points."""
_NARROW, _WIDE = frozenset("fijlrtI.,:;|!'()[]/ "), frozenset("mwMW@%")


def text_width(text: str, size: float = 12.0) -> float:
    """Estimates the width of a text in units of the view box; the font depends on the reader."""
    return max(_line_width(line, size) for line in text.split("\n"))


def _line_width(line: str, size: float) -> float:
    n_narrow = sum(each in _NARROW for each in line)
    n_wide = sum(each in _WIDE or ord(each) > _LAST_NARROW for each in line)
    return size * (0.6 * len(line) - 0.24 * n_narrow + 0.32 * n_wide)


class Axis:
    """One axis of a plot: how numbers are placed and written.

    Attributes:
      label: label beside the axis.
      log: whether the scale is logarithmic.
      most: approximate number of ticks.
      whole: whether ticks are whole numbers.
      grid: whether lines cross the plot at the ticks.
      line: whether the axis itself is drawn.
      slanted: whether names are slanted.
      size: text size.
      low: start of the axis; None for a little before the first value.
      high: end of the axis; None for a little after the last value.
      write: formats a number; None for plain digits.
      days: the date of 0, and the days between whole numbers; None for an axis without dates.
    """

    def __init__(self) -> None:
        self.label = ""
        self.log, self.whole, self.grid, self.line, self.slanted = False, False, False, True, False
        self.most, self.size = 6, 12.0
        self.low: float | None = None
        self.high: float | None = None
        self.write: Callable[[float], str] | None = None
        self.days: tuple[datetime.date, int] | None = None
        self._named: tuple[Sequence[float], Sequence[str]] | None = None
        self._found = (math.inf, -math.inf)

    def include(self, values: ArrayLike) -> None:
        """Extends the axis to these values; values that aren't finite are ignored."""
        numbers = np.asarray(values, dtype=np.float64).ravel()
        kept = numbers[np.isfinite(numbers) & ((numbers > 0.0) | (not self.log))]
        if len(kept):
            self._found = min(self._found[0], float(kept.min())), max(self._found[1], float(kept.max()))

    def name(self, places: Sequence[float], names: Sequence[str]) -> None:
        """Shows names instead of numbers."""
        self._named = places, names

    def limits(self) -> tuple[float, float]:
        """Start and end of the axis; the start is larger if the axis is reversed."""
        low, high = self._found if self._found[0] <= self._found[1] else (1.0, 10.0) if self.log else (0.0, 1.0)
        if self.log:
            margin = max((high / low) ** _MARGIN, 1.05)
            ends = low / margin, high * margin
        else:
            margin = _MARGIN * (high - low) or 0.05 * abs(high) or 0.5
            ends = low - margin, high + margin
        return ends[0] if self.low is None else self.low, ends[1] if self.high is None else self.high

    def shares(self, values: ArrayLike) -> NDArray[np.float64]:
        """Positions of values along the axis: 0 at its start, 1 at its end."""
        low, high = self.limits()
        numbers = np.asarray(values, dtype=np.float64)
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                return (np.log(numbers) - math.log(low)) / (math.log(high) - math.log(low))
        return (numbers - low) / (high - low)

    def marks(self) -> list[tuple[float, str]]:
        """Positions and texts of the ticks."""
        if self._named is not None:
            places, names = self._named
            return list(zip(map(float, places), names, strict=True))
        low, high = sorted(self.limits())
        if self.days is not None:
            return _days(low, high, *self.days, self.most)
        found = _decades(low, high, self.most) if self.log else _steps(low, high, self.most, self.whole)
        digits = _digits(found)
        return [(value, self._text(value, digits)) for value in found]

    def _text(self, value: float, digits: int) -> str:
        if self.write is not None:
            return self.write(value)
        return (f"{value:g}" if self.log else f"{value:,.{digits}g}").replace("-", MINUS)


def _steps(low: float, high: float, most: int, whole: bool) -> list[float]:
    """Round numbers from low to high with at most `most` intervals; at least one if they are whole."""
    span = high - low
    base = 10.0 ** math.floor(math.log10(span / most)) if span > 0.0 else 1.0
    for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0):
        step = factor * base
        if whole and step != round(step):
            continue
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first <= most:
            break
    if whole and step < 1.0:
        step, first, last = 1.0, math.ceil(low), math.floor(high)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY_STEPS = (1, 2, 5, 7, 10, 14)
_MONTH_STEPS = (1, 2, 3, 6)
_MONTH = 28
"""Days of the shortest month."""


def _days(low: float, high: float, first: datetime.date, each: int, most: int) -> list[tuple[float, str]]:
    """Positions and labels of about `most` dates: every nth window, or the first days of months."""
    start, end = max(math.ceil(low), 0), min(math.floor(high), (datetime.date.max - first).days // each)
    for step in _DAY_STEPS:
        found = range(-(-start // step) * step, end + 1, step)
        if len(found) <= most and (step == 1 or step * each < _MONTH):
            dates = [first + datetime.timedelta(days=each * index) for index in found]
            return [
                (float(index), f"{_MONTHS[day.month - 1]} {day.day}") for index, day in zip(found, dates, strict=True)
            ]
    last = first + datetime.timedelta(days=each * end)
    numbers = range(first.year * 12 + first.month - 1 + (first.day > 1), last.year * 12 + last.month)
    step = next(step for step in itertools.chain(_MONTH_STEPS, itertools.count(12, 12)) if len(numbers) <= most * step)
    months = [datetime.date(number // 12, number % 12 + 1, 1) for number in numbers if number % step == 0]
    return [
        ((day - first).days / each, f"{day.year}" if day.month == 1 else _MONTHS[day.month - 1])
        for day in months
        if low <= (day - first).days / each
    ]


def _decades(low: float, high: float, most: int) -> list[float]:
    """Powers of ten from low to high; also 2 and 5 times these if there are few."""
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    if len(powers) > 2:
        return [10.0**power for power in powers[:: -(-len(powers) // max(most, 1))]]
    bases = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return [value for power in bases for value in (10.0**power * each for each in (1, 2, 5)) if low <= value <= high]


def _digits(values: Sequence[float]) -> int:
    """Number of digits, at least six, with which neighboring values look different."""
    if len(values) < 2:
        return 6
    step, largest = abs(values[1] - values[0]), max(abs(value) for value in values)
    return min(max(6, math.ceil(math.log10(largest / step)) + 2), 15)
