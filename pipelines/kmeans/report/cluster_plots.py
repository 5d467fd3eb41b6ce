"""The plots of a fit: centers, and the moves of centers in each round."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.kmeans.plan.replay import Movement
from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary
from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.page.axis import MINUS
from dapple_dp.pipelines.page.chart import ACCENT, COOL, GRID, INK, MUTED, SERIES, WARM, Chart, Look, fill
from dapple_dp.pipelines.page.page import Badge, Block, plot
from dapple_dp.pipelines.page.plots import MARKERS, Names, label_rows, noisy_bars, plain_numbers, short
from dapple_dp.pipelines.page.svg import Figure
from dapple_dp.transforms.numerics.kmeans.center_tree import Branch, CenterTree

MOST_BARS = 30
"""Largest number of clusters or releases named in a plot."""
MOST_ROWS = 24
"""Largest number of features in the heat map."""
MOST_AXES = 8
"""Largest number of features in the profiles."""
_LEGEND_COLUMNS = 4
_LIMIT = 2.5
"""Range of the heat map's colors, in stddevs."""
_STEPS = 5
"""Shades per sign."""


def size_bars(summary: CenterSummary, stddevs: NDArray[np.float64], unit: str) -> Figure:
    """Bars of noisy sizes, with whiskers of two noise stddevs, shape (k,)."""
    shown = summary.largest_clusters(MOST_BARS)
    names = [_name(summary, index) for index in shown]
    return noisy_bars(names, summary.sizes[shown], stddevs[shown], unit)


def heat_map(summary: CenterSummary) -> Figure:
    """Heat map of the centers, standardized across clusters: a row per feature, a column per cluster."""
    features, clusters = summary.top_features(MOST_ROWS), summary.largest_clusters(MOST_BARS)
    values = summary.standardized[np.ix_(clusters, features)].T
    names = Names.of([summary.names[index] for index in features])
    figure = Figure(100 + names.height * len(features))
    chart = figure.chart()
    steps = np.clip(np.rint(values / _LIMIT * _STEPS), -_STEPS, _STEPS).astype(int)
    found = summary.found[clusters]
    for step in range(-_STEPS, _STEPS + 1):
        _cells(chart, np.argwhere((steps == step) & found), step / _STEPS)
    _cells(chart, np.argwhere(np.broadcast_to(~found, steps.shape)), 0.0)
    chart.x.low, chart.x.high = 0.0, float(len(clusters))
    chart.x.name((np.arange(len(clusters)) + 0.5).tolist(), [_name(summary, index) for index in clusters])
    chart.x.size, chart.y.size = 12.0 if len(clusters) <= 16 else 10.0, names.size
    chart.y.name((np.arange(len(features)) + 0.5).tolist(), names.texts)
    chart.y.low, chart.y.high = float(len(features)), 0.0
    chart.x.line = chart.y.line = False
    chart.x.label = "cluster"
    _add_shades(figure)
    return figure


def _name(summary: CenterSummary, index: int) -> str:
    """Number of a cluster, in parentheses if the cluster may be empty."""
    return f"{summary.numbers[index]}" if summary.found[index] else f"({summary.numbers[index]})"


def _cells(chart: Chart, places: NDArray[np.int64], strength: float) -> None:
    """Draws cells of one shade as one shape; strength from -1 (low) to 1 (high)."""
    color = GRID if strength == 0 else WARM if strength > 0 else COOL
    sides = np.array([0.03, 0.97])
    chart.boxes(places[:, 1:] + sides, places[:, :1] + sides, fill(color, abs(strength) or 0.6))


def _add_shades(figure: Figure) -> None:
    """Adds the legend above the heat map."""
    shades = ((COOL, 1.0), (COOL, 0.4), (GRID, 0.6), (WARM, 0.4), (WARM, 1.0))
    texts = [f"≤ {MINUS}{_LIMIT:g}", f"{MINUS}1", "0", "+1", f"≥ +{_LIMIT:g}"]
    looks = [Look(color, marker="box", opacity=opacity) for color, opacity in shades]
    figure.legend = list(zip(texts, looks, strict=True))
    figure.legend_columns, figure.legend_right = len(texts), True


def profile_dots(summary: CenterSummary) -> Figure:
    """Dots per cluster in the most distinguishing features, a row each; no lines, since features have no order."""
    features = np.sort(summary.top_features(MOST_AXES))
    values = summary.standardized[:, features]
    names = Names.of([summary.names[index] for index in features])
    named = _found(summary, summary.largest_clusters(len(SERIES)))
    kept = _found(summary, summary.largest_clusters(60))
    figure = Figure(66 + max(24.0, names.height) * len(features) + 18 * -(-len(named) // _LEGEND_COLUMNS))
    chart = figure.chart()
    rows = np.arange(len(features))
    ends = np.stack([values[kept].min(axis=0), values[kept].max(axis=0)], axis=1)
    chart.stems(ends, np.stack([rows, rows], axis=1), Look(GRID, 2.0))
    for index in np.setdiff1d(kept, named):
        chart.line(values[index], rows, Look(MUTED, marker="o", opacity=0.5), radius=2.0)
    for color, marker, index in zip(SERIES, MARKERS, named, strict=False):
        chart.line(values[index], rows, Look(color, marker=marker), f"cluster {summary.numbers[index]}", radius=3.6)
    chart.upright(0.0, Look(MUTED, 0.8, "4 3"))
    label_rows(chart, names.texts)
    chart.y.size, chart.x.label = names.size, "stddevs across clusters"
    figure.legend, figure.legend_columns = chart.looks, _LEGEND_COLUMNS
    return figure


def _found(summary: CenterSummary, clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Clusters that aren't empty; all of them if none is left."""
    return clusters[summary.found[clusters]] if summary.found[clusters].any() else clusters


def center_map(summary: CenterSummary) -> Figure:
    """Map of the centers along their two widest directions, or only the first; areas are noisy sizes."""
    places, shares = summary.plane()
    on_a_line = summary.on_a_line
    box = (340.0, 60.0 if on_a_line else 290.0)
    if on_a_line:
        places = places * (1.0, 0.0)
    figure = Figure(box[1] + 70.0)
    chart = figure.chart()
    equal_scales(chart, places, box)
    _discs(chart, places, summary)
    name_points(chart, places, summary.largest_clusters(MOST_BARS).tolist(), summary, box)
    chart.x.label, chart.x.most = f"widest direction ({shares[0]:.0%} of the spread)", 5
    if on_a_line:
        chart.y.name((), ())
        chart.y.line = False
    else:
        chart.y.label = f"second direction ({shares[1]:.0%})"
    chart.x.grid = chart.y.grid = True
    return figure


def equal_scales(chart: Chart, places: NDArray[np.float64], box: tuple[float, float]) -> None:
    """Sets limits with equal scales for x and y, and space for discs and names."""
    low, high = places.min(axis=0), places.max(axis=0)
    middle, sides = low + (high - low) / 2.0, np.array(box) / 2.0
    reach = float(((high - low) / 2.0 / (sides - 26.0)).max()) or 1.0 / box[0]
    chart.x.low, chart.x.high = float(middle[0] - sides[0] * reach), float(middle[0] + sides[0] * reach)
    chart.y.low, chart.y.high = float(middle[1] - sides[1] * reach), float(middle[1] + sides[1] * reach)
    chart.equal = True


def _discs(chart: Chart, places: NDArray[np.float64], summary: CenterSummary) -> None:
    """Draws a disc per cluster, or a ring if it may be empty."""
    weights = np.maximum(summary.sizes, 0.0)
    areas = 30.0 + 1100.0 * weights / max(float(weights.max(initial=0.0)), 1e-300)
    found, rest = np.flatnonzero(summary.found), np.flatnonzero(~summary.found)
    x, y = places.T
    chart.dots(x[found], y[found], np.sqrt(areas[found]) / 2.0, [fill(ACCENT, 0.3)] * len(found))
    chart.dots(x[found], y[found], 1.3, [fill(INK)] * len(found))
    chart.dots(x[rest], y[rest], 2.8, [f"fill: none; stroke: {MUTED}; stroke-width: 1"] * len(rest))


def name_points(
    chart: Chart,
    places: NDArray[np.float64],
    named: Sequence[int],
    summary: CenterSummary,
    box: tuple[float, float],
) -> None:
    """Writes numbers beside points, each on the side with the most space."""
    low, high = np.array([chart.x.limits(), chart.y.limits()]).T
    points = (places - low) / (high - low) * box
    angles = np.arange(8) * np.pi / 4 + np.pi / 8
    offsets = 11.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    taken = points.copy()
    for index in named:
        candidates = points[index] + offsets
        room = np.linalg.norm(candidates[:, None] - taken, axis=2).min(axis=1)
        best = int(np.minimum(np.round(room), 14.0).argmax())
        taken = np.vstack([taken, candidates[best]])
        by = (float(offsets[best, 0]), float(offsets[best, 1]))
        chart.note(_name(summary, index), float(places[index, 0]), float(places[index, 1]), by, INK, "middle", 11.0)


def movement_dots(movement: Movement, clusters: NDArray[np.int64], numbers: Sequence[int], unit: str) -> Figure:
    """Distances that one round moved these clusters, and those expected from noise alone, in this unit."""
    figure = Figure(104 + 19 * len(clusters))
    chart = figure.chart()
    rows = np.arange(len(clusters))
    moved, noise = movement.distances[clusters], movement.noise[clusters]
    chart.stems(np.stack([np.zeros(len(rows)), moved], axis=1), np.stack([rows, rows], axis=1), Look(GRID, 2.0))
    chart.line(moved, rows, Look(ACCENT, marker="o"), "moved", radius=3.5)
    chart.line(noise, rows, Look(WARM, marker="|"), "noise alone", radius=6.5)
    label_rows(chart, [f"{numbers[index]}" for index in clusters])
    chart.y.label, chart.x.label = "cluster", f"distance, {unit}"
    chart.x.low = 0.0
    plain_numbers(chart.x)
    figure.legend, figure.legend_right = chart.looks, True
    return figure


def movement_lines(movements: Sequence[Movement], clusters: NDArray[np.int64], unit: str) -> Figure:
    """Distances that each of several rounds moved the centers, in this unit."""
    figure = Figure(320)
    chart = figure.chart()
    distances = np.array([movement.distances for movement in movements])
    steps = np.arange(len(movements))
    for way in distances[:, clusters].T:
        chart.line(steps, way, Look(MUTED, 0.8, opacity=0.6))
    noise = np.sqrt(np.mean(np.array([movement.noise for movement in movements]) ** 2, axis=1))
    chart.line(steps, np.sqrt(np.mean(distances**2, axis=1)), Look(ACCENT, 2.5, marker="o"), "moved", radius=3.0)
    chart.line(steps, noise, Look(WARM, 2.0, "6 4"), "noise alone")
    every = max(1, len(movements) // 8)
    chart.x.name(steps[::every].tolist(), [short(movements[index].name, 16) for index in steps[::every]])
    chart.x.slanted, chart.y.low, chart.y.grid = True, 0.0, True
    chart.y.label = f"distance, {unit}"
    figure.legend, figure.legend_right = chart.looks, True
    return figure


_MOST_NAMED = 12
"""Largest number of groups whose members are listed."""
_MOST_LETTERS = 24
"""Largest number of letters of a cluster's name."""


def tree_blocks(view: FitView) -> list[Block]:
    """A dendrogram of the centers, if there are enough of them to merge."""
    model = view.result.model
    tree = CenterTree.of(np.nan_to_num(model.centers), view.summary.sizes, view.center_noise**2)
    if len(tree.merges) < 2:
        return []
    groups, shown = tree.widest_gap(), min(MOST_BARS, tree.n_clusters)
    names = [f"{number}{_called(view, index)}" for index, number in enumerate(view.summary.numbers)]
    few = f" Shown: {shown} groups, each by the first of its clusters." if shown < len(names) else ""
    noise = " Dashed gray: merges that noise alone may explain." if tree.in_noise.any() else ""
    noise = f" {view.unknown_noise} So any of these merges may be due to noise alone." if view.unknown_noise else noise
    advice = "no gap stands out" if groups is None else f"the widest gap leaves {groups}"
    return [
        plot(
            "tree",
            "Tree of the centers",
            f"Dendrogram of {plural(len(names), 'cluster')} by Ward linkage; {advice}.",
            Badge.RELEASED,
            lambda: dendrogram(tree, names, groups, shown, view.unit_words),
            "From left to right, the two groups whose union costs least merge first. The axis shows the square root "
            "of the cost that a merge adds; the cost is the mean squared distance of rows to their "
            f"centers.{noise}{few} " + _words(tree, names, groups),
        )
    ]


def _called(view: FitView, index: int) -> str:
    """The strongest name of a cluster, if it has one."""
    rows = [] if view.names is None else view.names.of(index)
    name = "" if view.names is None or not rows else view.names.terms[rows[0]]
    return f" {short(name, _MOST_LETTERS)}" if name else ""


def _words(tree: CenterTree, names: Sequence[str], groups: int | None) -> str:
    """Advice where to cut the tree, and the groups that result."""
    if groups is None:
        return "No gap between merges stands out, so the tree suggests no smaller number of clusters."
    found = tree.cut(groups)
    members = [[names[int(each)] for each in np.flatnonzero(found == first)] for first in np.unique(found)]
    joined = [", ".join(member) for member in members if len(member) > 1]
    together = f" These are then together: {'; '.join(joined)}." if len(joined) <= _MOST_NAMED else ""
    return (
        f"The widest gap (dashed line) leaves {plural(groups, 'cluster')}: the next merge costs "
        f"{tree.gap(groups):.0f} times as much as the one before.{together} dapple assign --level {groups} writes "
        "these. The tree cannot tell whether there are more clusters than were asked for."
    )


def dendrogram(tree: CenterTree, names: Sequence[str], groups: int | None, shown: int, unit: str) -> Figure:
    """Draws the last merges of a tree, from the left.

    Args:
      tree: tree of k centers.
      names: names of the centers.
      groups: number of groups at the dashed line; None for no line.
      shown: number of leaves, from 2 to k: groups of centers, named by the first of each.
      unit: unit of distances between centers.
    """
    order, branches = tree.branches(shown)
    figure = Figure(70 + 17 * shown)
    chart = figure.chart()
    chart.x.log = True
    label_rows(chart, [names[index] for index in order])
    low = float(tree.rises[tree.rises > 0.0].min(initial=1.0)) / 2.0
    _add_branches(chart, [branch for branch in branches if not branch.in_noise], low, Look(INK, 1.4))
    _add_branches(chart, [branch for branch in branches if branch.in_noise], low, Look(MUTED, 1.2, "3 3"))
    if groups is not None:
        chart.upright(tree.between(groups), Look(WARM, 1.4, "5 4"))
    chart.x.label, chart.y.label = f"square root of the cost that a merge adds, {unit}", "cluster"
    return figure


def _add_branches(chart: Chart, branches: Sequence[Branch], low: float, look: Look) -> None:
    """Draws each merge as two lines along and one across; `low` is the left end of the axis."""
    if not branches:
        return
    along = [
        ((end, branch.height), (place, place))
        for branch in branches
        for end, place in zip(branch.ends, branch.places, strict=True)
    ]
    across = [((branch.height, branch.height), branch.places) for branch in branches]
    x, y = (np.array(ends) for ends in zip(*along, *across, strict=True))
    chart.stems(np.maximum(x, low), y, look)
