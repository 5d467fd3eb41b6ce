"""Plots of plain arrays, as figures; `dapple_dp.pipelines.page.svg` embeds them in a page.

Text repeats what colors show, for readers who can't see colors.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.page.axis import MINUS, Axis
from dapple_dp.pipelines.page.chart import (
    ACCENT,
    COOL,
    GRID,
    INK,
    LINE,
    MUTED,
    SERIES,
    SURFACE,
    WARM,
    Chart,
    Look,
    fill,
)
from dapple_dp.pipelines.page.svg import Figure

TIMES = "\N{MULTIPLICATION SIGN}"
WHISKERS = Look(INK, 1.2)
MARKERS = "os^Dv<>P"
"""Shapes of points, in the order of the line colors."""
_MOST_MARKERS = 24
"""Largest number of markers on one line."""


class Series(NamedTuple):
    """One line of `line_plot`.

    Attributes:
      name: shown in the legend.
      x: shape (n,), ascending.
      y: shape (n,).
      low: shape (n,): lower end of the band; None for no band.
      high: shape (n,): upper end of the band.
      level: whether it is a horizontal line across the plot, given by one point whose x is ignored.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    level: bool = False


class Panel(NamedTuple):
    """One plot of `panels`.

    Attributes:
      name: title above the plot.
      lines: lines in the order of their colors, at least one.
      first: color index of the first line.
    """

    name: str
    lines: Sequence[Series]
    first: int = 0


def short(text: str, most: int = 22) -> str:
    """Printable text for an axis; the middle of a long text is left out."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in text)
    return clean if len(clean) <= most else f"{clean[: most - most // 2 - 1]}…{clean[-(most // 2) :]}"


class Names(NamedTuple):
    """Row names of a plot, in full unless they are very long.

    Attributes:
      texts: names; long ones are split over several lines.
      size: letter size.
      height: smallest height of a row.
    """

    texts: list[str]
    size: float
    height: float

    @classmethod
    def of(cls, names: Sequence[str]) -> "Names":
        """Chooses letter size and line breaks for the names."""
        if max(map(len, names), default=0) <= _ONE_LINE:
            return cls([wrapped(name, _ONE_LINE) for name in names], 12.0, 17.0)
        texts = [wrapped(name, _ONE_LINE + 4) for name in names]
        return cls(texts, 10.0, 6.0 + 10.0 * LINE * max(text.count("\n") + 1 for text in texts))


_ONE_LINE = 28
"""Largest number of letters in a one-line name beside a plot."""


def wrapped(text: str, most: int, lines: int = 3) -> str:
    """Splits a text into a few lines of at most `most` letters at word ends; keeps it in full if it fits.

    Args:
      text: a name.
      most: letters per line.
      lines: largest number of lines.

    Returns:
      Printable text with line feeds; the middle of a longer text is left out.
    """
    clean = short(text, most * lines)
    found = [""]
    for part in re.findall(r"[^ _./-]*[ _./-]|[^ _./-]+", clean):
        if len(found[-1]) + len(part) > most and found[-1]:
            found.append("")
        found[-1] += part
    if len(found) > lines or max(map(len, found)) > most:
        found = [clean[start : start + most] for start in range(0, len(clean), most)]
    return "\n".join(line.strip() for line in found)


def signal_dots(names: Sequence[str], ratios: NDArray[np.float64]) -> Figure:
    """Plots the root mean square of each release over that of its noise, on a log scale; 1 means only noise."""
    set_names = Names.of(names)
    figure = Figure(104 + max(22.0, set_names.height) * len(names))
    chart = figure.chart()
    rows = np.arange(len(names))
    shown = np.clip(np.nan_to_num(ratios, nan=1.0, posinf=1e12), 1e-2, 1e12)
    chart.x.log, chart.x.low, chart.x.high = True, 0.5, max(10.0, float(shown.max()) * 8.0)
    chart.x.write = lambda value: f"{TIMES}{value:g}"
    chart.boxes(np.array([[0.5, 1.0]]), np.array([[-np.inf, np.inf]]), fill(WARM, 0.12))
    chart.stems(np.stack([np.ones(len(shown)), shown], axis=1), _twice(rows), Look(GRID, 2.0))
    styles = [fill(ACCENT if ratio > 1.2 else WARM) for ratio in shown]
    chart.dots(shown, rows, 3.6, styles)
    for row, ratio in zip(rows.tolist(), shown.tolist(), strict=True):
        text = f"{TIMES}{ratio:,.0f}" if ratio >= 100 else f"{TIMES}{ratio:.3g}"
        chart.note(text, ratio, row, (9.0, 0.0))
    label_rows(chart, set_names.texts)
    chart.y.size = set_names.size
    chart.x.label = "times its noise (shaded: noise alone)"
    return figure


def noisy_bars(names: Sequence[str], sizes: NDArray[np.float64], stddevs: NDArray[np.float64], unit: str) -> Figure:
    """Plots noisy sizes with whiskers of two noise stddevs; sizes that noise alone could explain are gray."""
    figure = Figure(90 + 19 * len(names))
    chart = figure.chart()
    rows = np.arange(len(names))
    visible = sizes >= 2.0 * stddevs
    for color, which in ((ACCENT, visible), (MUTED, ~visible)):
        ends = np.stack([np.zeros(int(which.sum())), sizes[which]], axis=1)
        chart.boxes(np.sort(ends, axis=1), rows[which, None] + np.array([-0.33, 0.33]), fill(color))
    chart.stems(_around(sizes, 2.0 * stddevs), _twice(rows), WHISKERS, cap=3.0)
    chart.upright(0.0, Look(MUTED, 0.8))
    label_rows(chart, names)
    chart.y.label, chart.x.label = "cluster", f"noisy size, {unit} (whiskers: 2 noise stddevs)"
    plain_numbers(chart.x)
    return figure


def noisy_dots(
    names: Sequence[str],
    means: NDArray[np.float64],
    stddevs: NDArray[np.float64],
    spans: NDArray[np.float64],
    column: str,
) -> Figure:
    """Plots noisy means of a column by cluster, with whiskers of two noise stddevs.

    Args:
      names: names of the clusters.
      means: shape (k,).
      stddevs: shape (k,): stddevs of the noise.
      spans: shape (k, 2): ends of a pale bar behind each mean; NaN for none.
      column: name of the column.
    """
    figure = Figure(90 + 19 * len(names))
    chart = figure.chart()
    rows = np.arange(len(names))
    chart.stems(spans, _twice(rows), Look(COOL, 9.0, opacity=0.3))
    chart.stems(_around(means, 2.0 * stddevs), _twice(rows), WHISKERS, cap=3.0)
    chart.line(means, rows, Look(ACCENT, marker="o"), radius=3.0)
    label_rows(chart, names)
    chart.y.label, chart.x.label = "cluster", short(column, 58)
    plain_numbers(chart.x)
    return figure


def _twice(rows: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Heights of both ends of horizontal lines, shape (n, 2)."""
    return np.stack([rows, rows], axis=1).astype(np.float64)


def _around(values: NDArray[np.float64], reach: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ends of intervals with this half-width, shape (n, 2)."""
    return np.stack([values - reach, values + reach], axis=1)


def sorted_weights(weights: NDArray[np.float64], stddev: float) -> Figure:
    """Plots released weights in descending order, with the band of noise alone."""
    figure = Figure(280)
    chart = figure.chart()
    edges = np.repeat(np.arange(len(weights) + 1) + 0.5, 2)[1:-1]
    heights = np.repeat(np.sort(weights)[::-1], 2)
    chart.boxes(np.array([[-np.inf, np.inf]]), np.array([[-2.0 * stddev, 2.0 * stddev]]), fill(WARM, 0.16))
    chart.area(edges, np.zeros(len(edges)), heights, ACCENT, 0.35)
    chart.line(edges, heights, Look(ACCENT, 1.6))
    chart.level(0.0, Look(MUTED, 0.8))
    chart.x.low, chart.x.high = 0.5, len(weights) + 0.5
    chart.x.label = "public points, heaviest first (band: 2 noise stddevs)"
    chart.y.label = "noisy weight"
    plain_numbers(chart.x)
    return figure


def elbow_plot(costs: NDArray[np.float64], chosen: int) -> Figure:
    """Plots the cost against the number of clusters, and marks the chosen number.

    Args:
      costs: shape (k_max,), for 1, 2, ... clusters.
      chosen: chosen number of clusters, from 1 to k_max.
    """
    figure = Figure(300)
    chart = figure.chart()
    chart.line(np.arange(1, len(costs) + 1), costs, Look(ACCENT, 1.6, marker="o"), radius=2.6)
    place = (float(chosen), float(costs[chosen - 1]))
    ring = f"fill: {SURFACE}; stroke: {WARM}; stroke-width: 2"
    chart.dots([place[0]], [place[1]], 5.5, [ring])
    chart.note(f"chosen: {chosen}", *place, (10.0, 12.0), WARM)
    chart.right = 40.0
    whole_numbers(chart.x, 6)
    chart.y.grid = True
    chart.x.label, chart.y.label = "number of clusters", "cost of the weighted public points"
    return figure


def line_plot(
    series: Sequence[Series], x_label: str, y_label: str, *, log_x: bool = False, log_y: bool = False
) -> Figure:
    """Plots lines with bands and a legend; up to 64 lines have distinct colors and markers.

    Args:
      series: at least one line.
      x_label: label with unit.
      y_label: label with unit.
      log_x: whether x is on a log scale; a few distinct values become its ticks.
      log_y: whether y is on a log scale.
    """
    long = any(len(each.name) > 24 for each in series)
    figure = Figure(300 + 18 * (len(series) if long else (len(series) + 1) // 2))
    chart = figure.chart()
    chart.x.log, chart.y.log = log_x, log_y
    for index, each in enumerate(series):
        _line(chart, each, index)
    places = np.unique(np.concatenate([each.x for each in series if not each.level] or [np.ones(1)]))
    if log_x and len(places) <= 8:
        chart.x.name(places.tolist(), [f"{place:g}" for place in places])
    chart.x.label, chart.y.label = x_label, y_label
    chart.x.grid = chart.y.grid = True
    figure.legend, figure.legend_columns = chart.looks, 1 if long else 2
    return figure


def panels(found: Sequence[Panel], x_label: str, y_label: str) -> Figure:
    """Plots small charts in two columns with a common x and separate y; adds a legend if they have several lines.

    Args:
      found: at least one panel.
      x_label: label with unit; x has whole numbers.
      y_label: label with unit.
    """
    n_rows = (len(found) + 1) // 2
    several = max(len(each.lines) for each in found) > 1
    titles = [wrapped(each.name, 22) for each in found]
    row = 97.0 + 12.0 * LINE * max(title.count("\n") + 1 for title in titles)
    figure = Figure(60 + row * n_rows + (18 * ((len(found[0].lines) + 2) // 3) if several else 0), columns=2)
    for each, title in zip(found, titles, strict=True):
        chart = figure.chart()
        for panel in found:
            chart.x.include(np.concatenate([line.x for line in panel.lines]))
        for index, line in enumerate(each.lines, start=each.first):
            _line(chart, line, index)
        whole_numbers(chart.x, 3)
        chart.title, chart.y.most = title, 3
        chart.x.grid = chart.y.grid = True
    figure.x_label, figure.y_label = x_label, y_label
    if several:
        figure.legend, figure.legend_columns = figure.charts[0].looks, 3
    return figure


def _line(chart: Chart, line: Series, index: int) -> None:
    """Adds a line with its band, or a bar for a single point; dashes of two levels at one height alternate."""
    name = short(line.name, 48)
    color, marker = SERIES[index % len(SERIES)], MARKERS[(index + index // 8) % 8]
    bands = None if line.low is None or line.high is None else (line.low, line.high)
    if line.level:
        if bands is not None:
            chart.boxes(np.array([[-np.inf, np.inf]]), np.array([[bands[0][0], bands[1][0]]]), fill(color, 0.18))
        chart.level(float(line.y[0]), Look(color, 1.6, "4 4"), name, offset=4.0 * (index % 2))
        return
    if bands is not None and len(line.x) == 1:
        chart.stems(_twice(line.x), np.stack(bands, axis=1), Look(color, 1.6))
    elif bands is not None:
        chart.area(line.x, *bands, color, 0.18)
    chart.line(line.x, line.y, Look(color, 1.6, marker=marker), name, every=-(-len(line.x) // _MOST_MARKERS))


def label_rows(chart: Chart, names: Sequence[str]) -> None:
    """Labels one row per name, the first on top."""
    chart.y.name(range(len(names)), names)
    chart.y.low, chart.y.high = len(names) - 0.4, -0.6
    chart.y.line = False
    chart.x.grid = True


def whole_numbers(axis: Axis, most: int) -> None:
    """Shows a few whole numbers, even if the axis has only one."""
    low, high = axis.limits()
    if high - low < 1.0:
        axis.low, axis.high = low - 0.9, high + 0.9
    axis.most, axis.whole = most, True


def plain_numbers(axis: Axis) -> None:
    """Shows a few numbers in full."""
    axis.most = 5
    axis.write = lambda value: f"{value:,.6g}".replace("-", MINUS)
