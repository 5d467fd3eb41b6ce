"""The tree of released centers in a `fit` report: which clusters belong together, and where to cut it."""

from collections.abc import Sequence

import numpy as np

from pipelines.jobs.forewarnings import plural
from pipelines.kmeans.report.cluster_plots import MOST_BARS
from pipelines.kmeans.report.fit_view import FitView
from pipelines.page.chart import INK, MUTED, WARM, Chart, Look
from pipelines.page.page import Badge, Block, plot
from pipelines.page.plots import label_rows, short
from pipelines.page.svg import Figure
from transforms.numerics.kmeans.center_tree import Branch, CenterTree

_MOST_NAMED = 12
"""Groups whose members are listed."""
_MOST_LETTERS = 24
"""Of a cluster's name."""


def tree_blocks(view: FitView) -> list[Block]:
    """A dendrogram, where there are centers to merge."""
    model = view.result.model
    tree = CenterTree.of(np.nan_to_num(model.centers), view.summary.sizes, view.center_noise**2)
    if len(tree.merges) < 2:
        return []
    groups, shown = tree.widest_gap(), min(MOST_BARS, tree.n_clusters)
    names = [f"{number}{_called(view, index)}" for index, number in enumerate(view.summary.numbers)]
    few = f" Shown: {shown} groups, each by the first of its clusters." if shown < len(names) else ""
    noise = " Dashed gray: merges that noise alone may explain." if tree.in_noise.any() else ""
    advice = "no gap stands out" if groups is None else f"the widest gap leaves {groups}"
    return [
        plot(
            "tree",
            "Tree of the centers",
            f"Dendrogram of {plural(len(names), 'cluster')} by Ward linkage; {advice}.",
            Badge.RELEASED,
            lambda: dendrogram(tree, names, groups, shown, view.unit_words),
            "From the left, those two groups merge whose union costs least. The axis shows the root of what a merge "
            f"adds to the cost, the mean squared distance of rows to their centers.{noise}{few} "
            + _words(tree, names, groups),
        )
    ]


def _called(view: FitView, index: int) -> str:
    """The strongest name of a cluster, where it has one."""
    rows = [] if view.names is None else view.names.of(index)
    name = "" if view.names is None or not rows else view.names.terms[rows[0]]
    return f" {short(name, _MOST_LETTERS)}" if name else ""


def _words(tree: CenterTree, names: Sequence[str], groups: int | None) -> str:
    """Where to cut, and what is left then."""
    if groups is None:
        return "No gap between merges stands out, so the tree advises no smaller number of clusters."
    found = tree.cut(groups)
    members = [[names[int(each)] for each in np.flatnonzero(found == first)] for first in np.unique(found)]
    joined = [", ".join(each) for each in members if len(each) > 1]
    together = f" Together are then: {'; '.join(joined)}." if len(joined) <= _MOST_NAMED else ""
    return (
        f"The widest gap (dashed line) leaves {plural(groups, 'cluster')}: the next merge costs "
        f"{tree.gap(groups):.0f} times as much as the one before.{together} dapple assign --level {groups} writes "
        "these. The tree cannot tell whether there are more clusters than were asked for."
    )


def dendrogram(tree: CenterTree, names: Sequence[str], groups: int | None, shown: int, unit: str) -> Figure:
    """The last merges of a tree, from the left.

    Args:
      tree: of k centers.
      names: of the centers.
      groups: where a dashed line cuts; None for no line.
      shown: leaves, from 2 to k: groups of centers, by the name of the first of each.
      unit: of distances between centers.
    """
    order, branches = tree.branches(shown)
    figure = Figure(70 + 17 * shown)
    chart = figure.chart()
    chart.x.log = True
    label_rows(chart, [names[index] for index in order])
    low = float(tree.rises[tree.rises > 0.0].min(initial=1.0)) / 2.0
    _add_branches(chart, [each for each in branches if not each.in_noise], low, Look(INK, 1.4))
    _add_branches(chart, [each for each in branches if each.in_noise], low, Look(MUTED, 1.2, "3 3"))
    if groups is not None:
        chart.upright(tree.between(groups), Look(WARM, 1.4, "5 4"))
    chart.x.label, chart.y.label = f"root of what a merge adds to the cost, {unit}", "cluster"
    return figure


def _add_branches(chart: Chart, branches: Sequence[Branch], low: float, look: Look) -> None:
    """Two lines along, and one across, for each merge; `low` is the left end of the axis."""
    if not branches:
        return
    along = [
        ((end, each.height), (place, place))
        for each in branches
        for end, place in zip(each.ends, each.places, strict=True)
    ]
    across = [((each.height, each.height), each.places) for each in branches]
    x, y = (np.array(ends) for ends in zip(*along, *across, strict=True))
    chart.stems(np.maximum(x, low), y, look)
