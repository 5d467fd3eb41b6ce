"""Plots of the moving centers of a stream, from released numbers alone."""

import datetime

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary
from dapple_dp.pipelines.kmeans.report.cluster_plots import equal_scales, name_points
from dapple_dp.pipelines.kmeans.stream.history import History
from dapple_dp.pipelines.page import plots
from dapple_dp.pipelines.page.chart import MUTED, SERIES, SURFACE, Chart, Look, fill
from dapple_dp.pipelines.page.plots import Panel, Series
from dapple_dp.pipelines.page.svg import Figure
from dapple_dp.schemas.kmeans.recurring.remembered import MEMORY_DRIFT_SCORE

NAMED = len(SERIES)
"""Number of clusters with a color."""
MOST_PANELS = 8
_MOST_PATHS = 60
_BOX = (340.0, 260.0)


def path_plane(history: History) -> tuple[NDArray[np.float64], NDArray[np.float64], list[int]]:
    """Projects centers to the plane in which those of all windows spread most.

    Returns:
      Shape (k, n, 2), feature units, NaN if a window has no such cluster; the two directions' shares of the spread; and
      the numbers of the k clusters.
    """
    numbers = history.largest(_MOST_PATHS)
    paths = np.stack([history.path(number) for number in numbers])
    stacked = paths.reshape(-1, paths.shape[-1])
    known = np.isfinite(stacked).all(axis=1)
    places = np.full((len(stacked), 2), np.nan)
    places[known], shares = CenterSummary.of(stacked[known], np.ones(int(known.sum())), history.features).plane()
    return places.reshape(len(numbers), -1, 2), shares, numbers


def center_paths(history: History) -> Figure:
    """Path of every center in that plane, with a ring at the start and the cluster number at the end."""
    places, shares, numbers = path_plane(history)
    named = history.largest(NAMED)
    figure = Figure(_BOX[1] + 70.0)
    chart = figure.chart()
    equal_scales(chart, places[np.isfinite(places).all(axis=2)], _BOX)
    for number, path in zip(numbers, places, strict=True):
        color = SERIES[named.index(number)] if number in named else MUTED
        chart.line(path[:, 0], path[:, 1], Look(color, 1.6 if number in named else 0.8, opacity=0.8))
        ring = f"fill: {SURFACE}; stroke: {color}; stroke-width: 1"
        chart.dots(path[[0, -1], 0], path[[0, -1], 1], 2.5, [ring, fill(color)])
    _name_ends(chart, places, numbers, named)
    chart.x.label, chart.x.most = f"widest direction ({shares[0]:.0%} of the spread)", 5
    chart.y.label = f"second direction ({shares[1]:.0%})"
    chart.x.grid = chart.y.grid = True
    return figure


def _name_ends(chart: Chart, places: NDArray[np.float64], numbers: list[int], named: list[int]) -> None:
    """Writes cluster numbers at the ends of the paths, away from all paths."""
    ends, before = places[:, -1], places[:, :-1].reshape(-1, 2)
    summary = CenterSummary.of(ends, np.ones(len(ends)), (), tuple(numbers))
    points = np.concatenate([ends, before[np.isfinite(before).all(axis=1)]])
    name_points(chart, points, [numbers.index(number) for number in named], summary, _BOX)


def moving_features(history: History) -> list[int]:
    """The features in which a center moved most, in the order of the features."""
    paths = np.stack([history.path(number) for number in history.largest(NAMED)])
    reach = (np.nanmax(paths, axis=1) - np.nanmin(paths, axis=1)).max(axis=0)
    return sorted(np.argsort(-reach, kind="stable")[:MOST_PANELS].tolist())


def feature_panels(history: History) -> Figure:
    """Small plots, one for each of these features: a line per cluster with a band of two noise stddevs."""
    found = []
    for feature in moving_features(history):
        lines = []
        for number in history.largest(NAMED):
            y, noise = history.in_units(number, feature)
            lines.append(Series(f"cluster {number}", history.x, y, y - 2.0 * noise, y + 2.0 * noise))
        found.append(Panel(history.features[feature], lines))
    unit = history.unit_words if history.units is None else "own unit"
    return _dated(plots.panels(found, _windows(history), f"center, {unit}"), history)


def distance_lines(history: History) -> Figure:
    """Distance of each center from its position in the first window, with the noise of the last one."""
    lines = []
    for number in history.largest(NAMED):
        path = history.path(number)
        lines.append(Series(f"cluster {number}", history.x, np.linalg.norm(path - path[0], axis=1)))
    known = [value for value in history.last.noise.values() if value is not None]
    if known:
        lines.append(Series("largest noise now", np.zeros(1), np.array([max(known)]), level=True))
    return _over_windows(history, lines, f"distance, {history.unit_words}")


def score_lines(history: History) -> Figure:
    """Drift score of each cluster, with the threshold."""
    lines = [
        Series(f"cluster {number}", history.x, history.values("scores", number)) for number in history.largest(NAMED)
    ]
    threshold = Series("threshold", np.zeros(1), np.array([MEMORY_DRIFT_SCORE]), level=True)
    return _over_windows(history, [*lines, threshold], "drift score")


def _over_windows(history: History, lines: list[Series], y_label: str) -> Figure:
    figure = plots.line_plot(lines, _windows(history), y_label)
    plots.whole_numbers(figure.charts[0].x, 6)
    return _dated(figure, history)


def size_panels(history: History, unit: str) -> Figure:
    """Small plots, one for each of the largest clusters: noisy size with a band of two noise stddevs."""
    found = []
    for place, number in enumerate(history.largest(NAMED)):
        y, reach = history.values("sizes", number), 2.0 * history.size_stddevs
        line = Series(f"cluster {number}", history.x, y, y - reach, y + reach)
        found.append(Panel(f"cluster {number}", [line], first=place))
    return _dated(plots.panels(found, _windows(history), f"noisy size, {unit}"), history)


def _dated(figure: Figure, history: History) -> Figure:
    """Labels a figure with dates of windows instead of their numbers."""
    for chart in figure.charts:
        chart.x.days = datetime.date.fromisoformat(history.first), history.days
    return figure


def _windows(history: History) -> str:
    """Label of the axis of windows, with their years, which the dates omit."""
    first, last = (each.date[:4] for each in (history.windows[0], history.last))
    return f"window, {first}" if first == last else f"window, {first} to {last}"
