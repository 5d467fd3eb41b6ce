"""The section of a `fit` report on the changes since the previous run."""

import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.report.cluster_plots import MOST_BARS, MOST_ROWS
from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.page.chart import ACCENT, MUTED, WARM, Look
from dapple_dp.pipelines.page.page import Badge, Block, Level, Notice, Section, Table, plot
from dapple_dp.pipelines.page.plots import label_rows
from dapple_dp.pipelines.page.svg import Figure
from dapple_dp.schemas.kmeans.recurring.drift import DRIFT_SCORE, Drift
from dapple_dp.schemas.kmeans.recurring.remembered import MEMORY_DRIFT_SCORE, Remembered

_MOST_CLUSTERS = 200
_SHOWN_SCORE = 12.0
"""Scores beyond this are drawn here."""


def drift_sections(view: FitView) -> tuple[Section, ...]:
    """The drift section; empty for a run that follows none."""
    drift = view.result.drift
    if drift is None:
        return ()
    warm = view.planned.config.starts_warm
    began = "started from the centers" if warm else "found its centers from scratch and took over the cluster numbers"
    lead = (
        f"This run {began} of run {drift.previous_run}. This section compares the two releases: how far centers and "
        "sizes moved, against the noise of both. It used no budget and is covered by both guarantees together; no "
        "private row was compared."
    )
    blocks: list[Block] = [*_notices(drift)]
    if np.isfinite(drift.scores).any() or np.isfinite(drift.size_scores).any():
        blocks.append(_plot(view, drift))
    blocks.append(_table(view, drift))
    if view.result.remembered is not None:
        blocks += _memory(view, view.result.remembered)
    return (Section(name="drift", title="Since the last run", lead=lead, blocks=tuple(blocks)),)


def _notices(drift: Drift) -> list[Notice]:
    """Notices on clusters that moved, changed in size, appeared or disappeared."""
    found = []
    for numbers, words in (
        (drift.moved, "moved farther than noise explains"),
        (drift.resized, "changed in size by more than noise explains"),
        (drift.new, "matched no earlier cluster: new numbers"),
        (drift.gone, "of the earlier run matched no cluster: these numbers are out of use"),
    ):
        if numbers:
            named = ", ".join(map(str, numbers[:MOST_ROWS])) + (" …" if len(numbers) > MOST_ROWS else "")
            text = f"{'Clusters' if len(numbers) > 1 else 'Cluster'} {named} {words}."
            found.append(Notice(level=Level.NOTE, text=text, badge=Badge.RELEASED))
    return [*_calm(drift), *found]


def _calm(drift: Drift) -> list[Notice]:
    """Notes that nothing moved, or that movement can't be seen without a score."""
    seen, result = [], []
    for what, scores, moved in (
        ("center", drift.scores, drift.moved),
        ("size", drift.size_scores, drift.resized),
    ):
        hidden = int(np.count_nonzero(~np.isfinite(scores))) - len(drift.new)
        if hidden > 0:
            text = f"Whether {'' if hidden == len(scores) else f'{hidden} of the '}{what}s moved is not visible here."
            result.append(Notice(level=Level.NOTE, text=text, badge=Badge.RELEASED))
        elif not moved and np.isfinite(scores).any():
            seen.append(f"no {what}")
    if seen:
        named = " and ".join(seen).capitalize()
        text = f"{named} moved by more than {DRIFT_SCORE:g} noise stddevs."
        result.insert(0, Notice(level=Level.NOTE if result else Level.GOOD, text=text, badge=Badge.RELEASED))
    return result


def _plot(view: FitView, drift: Drift) -> Block:
    """Plot of the scores of centers and sizes."""
    return plot(
        "drift",
        "Change against noise",
        f"Scores of the movement of every center and of the change of every size; beyond {DRIFT_SCORE:g} noise alone "
        "is no explanation.",
        Badge.RELEASED,
        lambda: _dots(drift, view.summary.largest_clusters(MOST_BARS)),
        "A score is standard normal where nothing but noise moved. It does not know how much means of other rows "
        "differ by chance, so with large clusters and little noise a new partition alone may pass the line. Scores "
        f"beyond {_SHOWN_SCORE:g} are drawn there.",
    )


def _dots(drift: Drift, shown: NDArray[np.int64]) -> Figure:
    """Draws two scores per cluster, and the line beyond which they count as drift."""
    figure = Figure(104 + 19 * len(shown))
    chart = figure.chart()
    rows = np.arange(len(shown))
    both = np.abs(np.concatenate([drift.scores[shown], drift.size_scores[shown]]))
    reach = min(_SHOWN_SCORE, max(1.5 * DRIFT_SCORE, float(both[np.isfinite(both)].max(initial=0.0))))
    for line in (-DRIFT_SCORE, DRIFT_SCORE):
        chart.upright(line, Look(MUTED, 0.8, "4 3"))
    for values, color, name in ((drift.scores, ACCENT, "center"), (drift.size_scores, WARM, "size")):
        chart.line(np.clip(values[shown], -reach, reach), rows, Look(color, marker="o"), name, radius=3.0)
    label_rows(chart, [f"{drift.numbers[index]}" for index in shown])
    chart.x.grid, chart.y.line = False, True
    chart.x.low, chart.x.high = -1.08 * reach, 1.08 * reach
    chart.y.label, chart.x.label = "cluster", "score, in stddevs of the noise"
    figure.legend, figure.legend_right = chart.looks, True
    return figure


def _table(view: FitView, drift: Drift) -> Table:
    rows = (
        (
            f"{drift.numbers[index]}",
            _text(drift.movements[index]),
            _text(drift.noise[index]),
            _score(drift.scores[index]),
            _text(drift.sizes[index, 0]),
            _text(drift.sizes[index, 1]),
            _score(drift.size_scores[index]),
        )
        for index in view.summary.largest_clusters(_MOST_CLUSTERS)
    )
    return Table(
        title="Centers and sizes, before and now",
        badge=Badge.RELEASED,
        columns=("cluster", "moved", "noise alone", "score", "size before", "size now", "size score"),
        rows=tuple(rows),
        note=f"Moved: distance between the released centers, {view.unit_words}. Noise alone: how far noise would move "
        "the noisy means behind them; the score compares these means, before any shrinkage. A dash: nothing to "
        "compare, or a size too small for its noise. drift.json has all numbers.",
    )


def _memory(view: FitView, remembered: Remembered) -> list[Block]:
    """Table of remembered means, and a notice on clusters that drift."""
    numbers = view.result.model.cluster_numbers
    drifting = remembered.drifting(numbers)
    seen = bool(np.isfinite(remembered.scores).any())
    text = f"No cluster that has a drift score drifts: its last {remembered.short} and {remembered.length} runs agree."
    if not seen:
        text = "Drift is not visible: no cluster has a score."
    if drifting:
        named = ", ".join(map(str, drifting[:MOST_ROWS])) + (" …" if len(drifting) > MOST_ROWS else "")
        text = f"{'Clusters drift' if len(drifting) > 1 else 'This cluster drifts'}: {named}. Its remembered mean lags."
    level = Level.GOOD if seen and not drifting else Level.NOTE
    rows = (
        (f"{numbers[index]}", _text(remembered.noise[index]), _score(remembered.scores[index]))
        for index in view.summary.largest_clusters(_MOST_CLUSTERS)
    )
    table = Table(
        title=f"Memory of {len(remembered.memory)} runs",
        badge=Badge.RELEASED,
        columns=("cluster", "noise of the remembered mean", "drift score"),
        rows=tuple(rows),
        note=f"Centers are means of the released sums and counts of all runs, the older the lighter: a run that is "
        f"{remembered.length} runs old weighs about a third. The drift score compares this memory with one of "
        f"{remembered.short} runs; noise and chance among rows alone pass {MEMORY_DRIFT_SCORE:g} less than once in a "
        "thousand times. A dash: a count too small for its noise.",
    )
    return [Notice(level=level, text=text, badge=Badge.RELEASED), table]


def _score(value: float) -> str:
    """Formats a score with one decimal; more would be noise."""
    return f"{value:,.1f}" if math.isfinite(value) else "—"


def _text(value: float) -> str:
    return f"{value:,.4g}" if math.isfinite(value) else "—"
