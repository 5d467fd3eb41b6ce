"""Plots of plain arrays, as matplotlib figures in stand-in colors; `pipelines.page.svg` puts them into a page.

Every function is called inside `plot_style`. Text says what color says, for those who do not see color.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from pipelines.page.svg import ACCENT, COOL, GRID, INK, MUTED, SERIES, SURFACE, WARM, new_figure

TIMES, MINUS = "\N{MULTIPLICATION SIGN}", "\N{MINUS SIGN}"
_MOST_MARKERS = 24
"""On one line."""


class Series(NamedTuple):
    """One line of `line_plot`.

    Attributes:
      name: shown in the legend.
      x: shape (n,), ascending.
      y: shape (n,).
      low: shape (n,): lower end of the band; None for no band.
      high: shape (n,): upper end of the band.
      level: whether it is a horizontal line across the plot, of one point whose x does not matter.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    level: bool = False


class Panel(NamedTuple):
    """One of `panels`.

    Attributes:
      name: above it.
      lines: in the order of their colors, at least one.
      first: number of the color of the first line.
    """

    name: str
    lines: Sequence[Series]
    first: int = 0


def short(text: str, most: int = 22) -> str:
    """Text for an axis: printable, with the middle left out where it is long."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in text)
    return clean if len(clean) <= most else f"{clean[: most - most // 2 - 1]}…{clean[-(most // 2) :]}"


def signal_dots(names: Sequence[str], ratios: NDArray[np.float64]) -> Figure:
    """Root mean square of each release over that of its noise, on a log scale; 1 is noise alone."""
    figure = new_figure(104 + 22 * len(names))
    axes = figure.subplots()
    rows = np.arange(len(names))
    shown = np.clip(np.nan_to_num(ratios, nan=1.0, posinf=1e12), 1e-2, 1e12)
    axes.set_xscale("log")
    axes.axvspan(1e-3, 1.0, color=WARM, alpha=0.12, linewidth=0)
    axes.hlines(rows, 1.0, shown, color=GRID, linewidth=2)
    axes.scatter(shown, rows, s=52, color=[ACCENT if ratio > 1.2 else WARM for ratio in shown], linewidths=0, zorder=3)
    for row, ratio in zip(rows, shown, strict=True):
        axes.annotate(
            f"{TIMES}{ratio:,.0f}" if ratio >= 100 else f"{TIMES}{ratio:.3g}",
            (ratio, row),
            (9, 0),
            textcoords="offset points",
            va="center",
        )
    label_rows(axes, [short(name) for name in names])
    axes.set_xlim(0.5, max(10.0, float(shown.max()) * 8.0))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{TIMES}{value:g}"))
    axes.xaxis.set_minor_locator(MaxNLocator(1))
    axes.minorticks_off()
    axes.set_xlabel("times its noise (shaded: noise alone)")
    return figure


def noisy_bars(names: Sequence[str], sizes: NDArray[np.float64], stddevs: NDArray[np.float64], unit: str) -> Figure:
    """Noisy sizes of clusters with bars of two noise stddevs either way; grey where noise alone would explain them."""
    figure = new_figure(90 + 19 * len(names))
    axes = figure.subplots()
    rows = np.arange(len(names))
    told = sizes >= 2.0 * stddevs
    axes.barh(rows, sizes, height=0.66, color=[ACCENT if each else MUTED for each in told])
    axes.errorbar(sizes, rows, xerr=2.0 * stddevs, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    axes.axvline(0.0, color=MUTED, linewidth=0.8)
    label_rows(axes, names)
    axes.set_ylabel("cluster")
    axes.set_xlabel(f"noisy size, {unit} (whiskers: 2 noise stddevs)")
    plain_numbers(axes)
    return figure


def noisy_dots(
    names: Sequence[str],
    means: NDArray[np.float64],
    stddevs: NDArray[np.float64],
    spans: NDArray[np.float64],
    column: str,
) -> Figure:
    """Noisy means of a column by cluster with whiskers of two noise stddevs.

    Args:
      names: of the clusters.
      means: shape (k,).
      stddevs: shape (k,), of their noise.
      spans: shape (k, 2): ends of a pale bar behind each mean; NaN for none.
      column: its name.
    """
    figure = new_figure(90 + 19 * len(names))
    axes = figure.subplots()
    rows = np.arange(len(names))
    axes.hlines(rows, spans[:, 0], spans[:, 1], color=COOL, alpha=0.3, linewidth=9)
    axes.errorbar(means, rows, xerr=2.0 * stddevs, fmt="o", color=ACCENT, ecolor=INK, elinewidth=1.2, capsize=3)
    label_rows(axes, names)
    axes.set_ylabel("cluster")
    axes.set_xlabel(short(column, 40))
    plain_numbers(axes)
    return figure


def sorted_weights(weights: NDArray[np.float64], stddev: float) -> Figure:
    """Released weights in descending order, with the band in which noise alone lies."""
    figure = new_figure(280)
    axes = figure.subplots()
    ranks = np.arange(1, len(weights) + 1)
    axes.axhspan(-2 * stddev, 2 * stddev, color=WARM, alpha=0.16, linewidth=0)
    axes.fill_between(ranks, 0.0, np.sort(weights)[::-1], step="mid", color=ACCENT, alpha=0.35, linewidth=0)
    axes.step(ranks, np.sort(weights)[::-1], where="mid", color=ACCENT)
    axes.axhline(0.0, color=MUTED, linewidth=0.8)
    axes.set_xlim(0.5, len(weights) + 0.5)
    axes.set_xlabel("public points, heaviest first (band: 2 noise stddevs)")
    axes.set_ylabel("noisy weight")
    plain_numbers(axes)
    return figure


def elbow_plot(costs: NDArray[np.float64], chosen: int) -> Figure:
    """Cost against the number of clusters, with the number that was chosen.

    Args:
      costs: shape (k_max,), for 1, 2, ... clusters.
      chosen: from 1 to k_max.
    """
    figure = new_figure(300)
    axes = figure.subplots()
    numbers = np.arange(1, len(costs) + 1)
    axes.plot(numbers, costs, "o-", color=ACCENT, markersize=4)
    axes.plot([chosen], [costs[chosen - 1]], "o", color=WARM, markersize=11, markerfacecolor=SURFACE, markeredgewidth=2)
    place = (chosen, float(costs[chosen - 1]))
    axes.annotate(f"chosen: {chosen}", place, (10, 12), textcoords="offset points", color=WARM)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("number of clusters")
    axes.set_ylabel("cost of the weighted public points")
    axes.grid(axis="y")
    return figure


def line_plot(
    series: Sequence[Series], x_label: str, y_label: str, *, log_x: bool = False, log_y: bool = False
) -> Figure:
    """Lines with bands and a legend; no two of 64 share color and marker.

    Args:
      series: at least one.
      x_label: with its unit.
      y_label: with its unit.
      log_x: whether x is on a log scale; a few distinct values are its ticks.
      log_y: whether y is on a log scale.
    """
    long = any(len(each.name) > 24 for each in series)
    figure = new_figure(300 + 18 * (len(series) if long else (len(series) + 1) // 2))
    axes = figure.subplots()
    for index, each in enumerate(series):
        _line(axes, each, index)
    for wanted, axis, set_scale in ((log_x, axes.xaxis, axes.set_xscale), (log_y, axes.yaxis, axes.set_yscale)):
        if wanted:
            set_scale("log")
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    places = np.unique(np.concatenate([each.x for each in series if not each.level] or [np.ones(1)]))
    if log_x and len(places) <= 8:
        axes.set_xticks(places)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(visible=True)
    figure.legend(ncols=1 if long else 2, frameon=False, loc="outside upper left")
    return figure


def panels(found: Sequence[Panel], x_label: str, y_label: str) -> Figure:
    """Small plots in two columns over one x, each with its own y; a legend where they have several lines.

    Args:
      found: at least one.
      x_label: with its unit; x is in whole numbers.
      y_label: with its unit.
    """
    n_rows = (len(found) + 1) // 2
    several = max(len(each.lines) for each in found) > 1
    figure = new_figure(60 + 110 * n_rows + (18 * ((len(found[0].lines) + 2) // 3) if several else 0))
    grid = figure.subplots(n_rows, 2, sharex=True, squeeze=False).ravel()
    for axes, each in zip(grid, found, strict=False):
        for index, line in enumerate(each.lines, start=each.first):
            _line(axes, line, index)
        whole_numbers(axes, 3)
        axes.set_title(short(each.name, 24), fontsize=12, color=INK, loc="left")
        axes.tick_params(labelbottom=True)
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.grid(visible=True)
    for axes in grid[len(found) :]:
        axes.set_visible(False)
    figure.supxlabel(x_label, fontsize=12, color=MUTED)
    figure.supylabel(y_label, fontsize=12, color=MUTED)
    if several:
        handles, names = grid[0].get_legend_handles_labels()
        figure.legend(handles, names, ncols=3, frameon=False, loc="outside upper left")
    return figure


def _line(axes: Axes, line: Series, index: int) -> None:
    """A line and its band, of one point a bar; dashes of two levels at the same height fill each other's gaps."""
    name, banded = short(line.name, 48), line.low is not None and line.high is not None
    color, marker = SERIES[index % len(SERIES)], "os^Dv<>P"[(index + index // 8) % 8]
    if line.level:
        axes.axhline(line.y[0], color=color, linestyle=(4 * (index % 2), (4, 4)), label=name)
        if banded:
            axes.axhspan(line.low[0], line.high[0], color=color, alpha=0.18, linewidth=0)  # type: ignore[index]
        return
    every = None if len(line.x) <= _MOST_MARKERS else -(-len(line.x) // _MOST_MARKERS)
    axes.plot(line.x, line.y, color=color, marker=marker, markersize=4, markevery=every, label=name)
    if banded and len(line.x) == 1:
        axes.vlines(line.x, line.low, line.high, color=color)  # type: ignore[arg-type]
    elif banded:
        axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.18, linewidth=0)  # type: ignore[arg-type]


def slant_names(axes: Axes) -> None:
    """Names on x that do not run into each other."""
    axes.tick_params(axis="x", labelrotation=38)
    for label in axes.get_xticklabels():
        label.set(horizontalalignment="right", rotation_mode="anchor")


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """One row per name, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def whole_numbers(axes: Axes, most: int) -> None:
    """Few ticks on x, at whole numbers, also where x is a single one."""
    low, high = axes.get_xlim()
    if high - low < 1.0:
        axes.set_xlim(low - 0.9, high + 0.9)
    axes.xaxis.set_major_locator(MaxNLocator(most, integer=True, min_n_ticks=1))


def plain_numbers(axes: Axes) -> None:
    """Few ticks on x, in full."""
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}".replace("-", MINUS)))
