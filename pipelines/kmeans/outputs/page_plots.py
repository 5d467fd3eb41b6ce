"""The plots of a fit: of its centers, and of how far rounds moved them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipelines.kmeans.outputs.center_summary import CenterSummary
from pipelines.kmeans.plan.replay import Movement
from pipelines.page.plots import MINUS, label_rows, noisy_bars, plain_numbers, short, slant_names
from pipelines.page.svg import ACCENT, COOL, GRID, INK, MUTED, SERIES, WARM, new_figure

MOST_BARS = 30
"""Clusters or releases shown by name in one plot."""
MOST_ROWS = 24
"""Features in the heat map."""
MOST_AXES = 8
"""Features in the parallel coordinates."""
_LIMIT = 2.5
"""Colors of the heat map end at this many stddevs."""
_STEPS = 5
"""Shades of each sign."""


def size_bars(summary: CenterSummary, stddev: float, unit: str) -> Figure:
    """Noisy sizes with bars of two noise stddevs either way."""
    shown = summary.largest_clusters(MOST_BARS)
    names = [_name(summary, index) for index in shown]
    return noisy_bars(names, summary.sizes[shown], np.full(len(shown), stddev), unit)


def heat_map(summary: CenterSummary) -> Figure:
    """Centers, standardized across clusters: a row per feature, a column per cluster."""
    features, clusters = summary.top_features(MOST_ROWS), summary.largest_clusters(MOST_BARS)
    values = summary.standardized[np.ix_(clusters, features)].T
    figure = new_figure(100 + 17 * len(features))
    axes = figure.subplots()
    steps = np.clip(np.rint(values / _LIMIT * _STEPS), -_STEPS, _STEPS).astype(int)
    found = summary.found[clusters]
    for step in range(-_STEPS, _STEPS + 1):
        _cells(axes, np.argwhere((steps == step) & found), step / _STEPS)
    _cells(axes, np.argwhere(np.broadcast_to(~found, steps.shape)), 0.0)
    axes.set_xlim(0, len(clusters))
    axes.set_xticks(np.arange(len(clusters)) + 0.5, [_name(summary, index) for index in clusters])
    axes.tick_params(axis="x", labelsize=12 if len(clusters) <= 16 else 9)
    axes.set_yticks(np.arange(len(features)) + 0.5, [short(summary.names[index], 28) for index in features])
    axes.set_ylim(len(features), 0)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("cluster")
    _shades(figure)
    return figure


def _name(summary: CenterSummary, index: int) -> str:
    """Number of a cluster, in parentheses if it may be empty."""
    return f"{summary.numbers[index]}" if summary.found[index] else f"({summary.numbers[index]})"


def _cells(axes: Axes, places: NDArray[np.int64], strength: float) -> None:
    """Cells of one shade as one shape; strength from -1 (low) to 1 (high)."""
    if not len(places):
        return
    square = Path.unit_rectangle()
    corners = np.asarray(square.vertices, dtype=np.float64) * 0.94 + 0.03
    path = Path.make_compound_path(*(Path(corners + place[::-1], square.codes) for place in places))
    color = GRID if strength == 0 else WARM if strength > 0 else COOL
    axes.add_patch(PathPatch(path, facecolor=color, alpha=abs(strength) or 0.6, linewidth=0))


def _shades(figure: Figure) -> None:
    """Legend of the heat map, above it."""
    legend = [
        Rectangle((0, 0), 1, 1, facecolor=color, alpha=alpha, linewidth=0)
        for color, alpha in ((COOL, 1.0), (COOL, 0.4), (GRID, 0.6), (WARM, 0.4), (WARM, 1.0))
    ]
    texts = [f"≤ {MINUS}{_LIMIT:g}", f"{MINUS}1", "0", "+1", f"≥ +{_LIMIT:g}"]
    figure.legend(legend, texts, ncols=5, frameon=False, loc="outside upper right", handlelength=1.2, columnspacing=1.2)


def parallel_coordinates(summary: CenterSummary) -> Figure:
    """One line per cluster that was found, over the features that tell most."""
    features = np.sort(summary.top_features(MOST_AXES))
    values = summary.standardized[:, features]
    figure = new_figure(330)
    axes = figure.subplots()
    named = _found(summary, summary.largest_clusters(len(SERIES)))
    for index in np.setdiff1d(_found(summary, summary.largest_clusters(60)), named):
        axes.plot(values[index], color=MUTED, linewidth=0.8, alpha=0.5)
    for color, index in zip(SERIES, named, strict=False):
        axes.plot(values[index], color=color, marker="o", markersize=4)
    _end_labels(axes, [(f"{summary.numbers[index]}", float(values[index, -1])) for index in named], len(features) - 1)
    axes.set_xticks(range(len(features)), [short(summary.names[index], 16) for index in features])
    slant_names(axes)
    axes.grid(axis="x")
    axes.set_ylabel("stddevs across clusters")
    return figure


def _found(summary: CenterSummary, clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    """The clusters that are no empty ones; all of them if none is left."""
    return clusters[summary.found[clusters]] if summary.found[clusters].any() else clusters


def _end_labels(axes: Axes, labels: Sequence[tuple[str, float]], x: float, gap: float = 0.055) -> None:
    """Names beside the right ends of lines, spread out so that none covers another."""
    low, high = axes.get_ylim()
    wanted = sorted(enumerate(labels), key=lambda item: item[1][1])
    places: list[float] = []
    for _, (_, y) in wanted:
        places.append(max(y, places[-1] + gap * (high - low)) if places else y)
    over = max(places[-1] - high, 0.0) if places else 0.0
    for place, (index, (name, _)) in zip(places, wanted, strict=True):
        color = SERIES[index % len(SERIES)]
        axes.annotate(
            name, (x, place - over), (8, 0), textcoords="offset points", color=color, va="center", annotation_clip=False
        )


def center_map(summary: CenterSummary) -> Figure:
    """Centers along their two widest directions, on one scale, or along the first alone; areas are noisy sizes."""
    places, shares = summary.plane()
    on_a_line = summary.on_a_line
    box = (340.0, 60.0 if on_a_line else 290.0)
    if on_a_line:
        places = places * (1.0, 0.0)
    figure = new_figure(box[1] + 70.0)
    axes = figure.subplots()
    equal_scales(axes, places, box)
    _discs(axes, places, summary)
    name_points(axes, places, summary.largest_clusters(MOST_BARS).tolist(), summary, box)
    axes.set_xlabel(f"widest direction ({shares[0]:.0%} of the spread)")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    if on_a_line:
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    else:
        axes.set_ylabel(f"second direction ({shares[1]:.0%})")
    axes.grid(visible=True)
    return figure


def equal_scales(axes: Axes, places: NDArray[np.float64], box: tuple[float, float]) -> None:
    """Limits in which a step along x is as long as one along y, with room for discs and names."""
    low, high = places.min(axis=0), places.max(axis=0)
    middle, sides = low + (high - low) / 2.0, np.array(box) / 2.0
    reach = float(((high - low) / 2.0 / (sides - 26.0)).max()) or 1.0 / box[0]
    axes.set_xlim(middle[0] - sides[0] * reach, middle[0] + sides[0] * reach)
    axes.set_ylim(middle[1] - sides[1] * reach, middle[1] + sides[1] * reach)
    axes.set_aspect("equal", adjustable="box")


def _discs(axes: Axes, places: NDArray[np.float64], summary: CenterSummary) -> None:
    """A disc per cluster; a ring for one that may be empty."""
    weights = np.maximum(summary.sizes, 0.0)
    areas = 30.0 + 1100.0 * weights / max(float(weights.max(initial=0.0)), 1e-300)
    found, rest = np.flatnonzero(summary.found), np.flatnonzero(~summary.found)
    x, y = places.T
    axes.scatter(x[found], y[found], s=areas[found], color=ACCENT, alpha=0.3, linewidths=0)
    axes.scatter(x[found], y[found], s=6, color=INK, linewidths=0)
    if len(rest):
        axes.scatter(x[rest], y[rest], s=30.0, facecolors="none", edgecolors=MUTED, linewidths=1.0)


def name_points(
    axes: Axes,
    places: NDArray[np.float64],
    named: Sequence[int],
    summary: CenterSummary,
    box: tuple[float, float],
) -> None:
    """Numbers beside points, each on the side where there is most room."""
    low, high = np.array([axes.get_xlim(), axes.get_ylim()]).T
    points = (places - low) / (high - low) * box
    angles = np.arange(8) * np.pi / 4 + np.pi / 8
    offsets = 11.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    taken = points.copy()
    for index in named:
        candidates = points[index] + offsets
        room = np.linalg.norm(candidates[:, None] - taken, axis=2).min(axis=1)
        best = int(np.minimum(np.round(room), 14.0).argmax())
        taken = np.vstack([taken, candidates[best]])
        where = (float(places[index, 0]), float(places[index, 1]))
        offset, text = tuple(offsets[best]), _name(summary, index)
        axes.annotate(text, where, offset, textcoords="offset points", ha="center", va="center", fontsize=11)


def movement_dots(movement: Movement, clusters: NDArray[np.int64], numbers: Sequence[int]) -> Figure:
    """How far one round moved each of these clusters, beside how far noise alone would."""
    figure = new_figure(104 + 19 * len(clusters))
    axes = figure.subplots()
    rows = np.arange(len(clusters))
    axes.hlines(rows, 0.0, movement.distances[clusters], color=GRID, linewidth=2)
    axes.plot(movement.distances[clusters], rows, "o", color=ACCENT, markersize=7, label="moved")
    axes.plot(movement.noise[clusters], rows, "|", color=WARM, markersize=13, markeredgewidth=2.5, label="noise alone")
    label_rows(axes, [f"{numbers[index]}" for index in clusters])
    axes.set_ylabel("cluster")
    axes.set_xlim(left=0.0)
    axes.set_xlabel("distance, feature units")
    plain_numbers(axes)
    figure.legend(ncols=2, frameon=False, loc="outside upper right")
    return figure


def movement_lines(movements: Sequence[Movement], clusters: NDArray[np.int64]) -> Figure:
    """How far each of several rounds moved the centers."""
    figure = new_figure(320)
    axes = figure.subplots()
    distances = np.array([each.distances for each in movements])
    steps = np.arange(len(movements))
    axes.plot(steps, distances[:, clusters], color=MUTED, linewidth=0.8, alpha=0.6)
    noise = np.sqrt(np.mean(np.array([each.noise for each in movements]) ** 2, axis=1))
    axes.plot(steps, np.sqrt(np.mean(distances**2, axis=1)), "o-", color=ACCENT, linewidth=2.5, label="moved")
    axes.plot(steps, noise, "--", color=WARM, linewidth=2, label="noise alone")
    every = max(1, len(movements) // 8)
    axes.set_xticks(steps[::every], [short(movements[index].name, 16) for index in steps[::every]])
    slant_names(axes)
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("distance, feature units")
    axes.grid(axis="y")
    figure.legend(ncols=2, frameon=False, loc="outside upper right")
    return figure
