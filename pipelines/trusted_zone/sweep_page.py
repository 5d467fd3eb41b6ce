"""`report.html` and `sweep.svg` of a sweep: exact costs of the rows, for the trusted zone."""

import collections
import logging
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.page import plots
from dapple_dp.pipelines.page.page import (
    Badge,
    Block,
    Drawn,
    Facts,
    Level,
    Notice,
    Page,
    Plot,
    Section,
    Table,
    html,
    plot,
)
from dapple_dp.pipelines.page.plots import Series
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.pipelines.page.svg import standalone
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.pipelines.run.versions import versions
from dapple_dp.schemas.trusted_zone.sweep_config import SweepConfig

_LOGGER = logging.getLogger(__name__)
_MOST_LINES = 16
_FOLDED = 24
_WIDE = 8.0
"""Ratio of epsilons above which their axis is logarithmic."""
_STEEP = 20.0
"""Ratio of costs above which their axis is logarithmic."""
_BADGE = Badge.EVALUATION
_INTERVAL = "95% interval"

Point = dict[str, Any]
"""A row of `POINT_SCHEMA`."""


class DrawnSweep(NamedTuple):
    """The rendered page, and the plot as a file; None if it could not be drawn."""

    page: Drawn
    svg: str | None


def render(config: SweepConfig, points: pa.Table) -> DrawnSweep:
    """Renders the report of a finished sweep, which is as private as its rows.

    Args:
      config: the sweep.
      points: rows of `POINT_SCHEMA`.
    """
    try:
        curves = _curves(points.to_pylist())
        drawn = _cost_plot(curves)
        svg = standalone(drawn.svg) if isinstance(drawn, Plot) else None
        page = _page(config, curves, drawn)
        return DrawnSweep(Drawn(html(page), len(page.warnings)), svg)
    except Exception as error:  # noqa: BLE001 - what a sweep has found must not be lost to its report
        _LOGGER.warning("the report could not be written: %s", describe_unexpected(error))
        lead = "This report could not be written; the other files of the sweep are whole."
        page = Page(title="Sweep", lead=lead, tags=(str(_BADGE),), label=None, sections=())
        return DrawnSweep(Drawn(html(page), None), None)


def _curves(points: list[Point]) -> dict[tuple[str, str], list[Point]]:
    found: dict[tuple[str, str], list[Point]] = collections.defaultdict(list)
    for point in sorted(points, key=lambda each: each["epsilon"] or 0.0):
        found[point["method"], point["settings"]].append(point)
    order = list(dict.fromkeys((point["method"], point["settings"]) for point in points))
    return {curve: found[curve] for curve in order}


def _name(curve: tuple[str, str]) -> str:
    return f"{curve[0]} ({curve[1]})" if curve[1] else curve[0]


def _cost_plot(curves: dict[tuple[str, str], list[Point]]) -> Plot | Notice:
    """Plot of cost against epsilon, with horizontal lines for methods without privacy."""
    shown = [_series(_name(curve), points) for curve, points in list(curves.items())[:_MOST_LINES]]
    epsilons = np.concatenate([each.x for each in shown if not each.level] or [np.ones(1)])
    costs = np.concatenate([each.y[np.isfinite(each.y)] for each in shown])
    log_y = bool(len(costs)) and 0.0 < costs.min() * _STEEP < costs.max()
    left_out = f" The first {_MOST_LINES} of {len(curves)} curves." if len(curves) > _MOST_LINES else ""
    return plot(
        "cost",
        "Cost against epsilon",
        f"Mean cost of each method at each epsilon, with 95% bands; dashed: without privacy.{left_out}",
        _BADGE,
        lambda: plots.line_plot(
            shown,
            "epsilon" if len(shown) > sum(each.level for each in shown) else "epsilon (no method has one)",
            "cost, feature units squared",
            log_x=bool(epsilons.max() >= _WIDE * epsilons.min()),
            log_y=log_y,
        ),
        f"Mean over seeds; bands: 95% of Student's t. Dashed: without privacy.{left_out}",
    )


def _series(name: str, points: list[Point]) -> Series:
    columns = {key: np.array([point[key] for point in points], dtype=np.float64) for key in ("cost", *_ENDS)}
    low, high = (columns[key] for key in _ENDS)
    banded = bool(np.isfinite(low).all() and np.isfinite(high).all())
    level = points[0]["epsilon"] is None
    epsilons = np.array([np.nan if level else point["epsilon"] for point in points], dtype=np.float64)
    finite = np.where(np.isfinite(columns["cost"]), columns["cost"], np.nan)
    return Series(name, epsilons, finite, low if banded else None, high if banded else None, level)


_ENDS = ("cost_low", "cost_high")


def _page(config: SweepConfig, curves: dict[tuple[str, str], list[Point]], drawn: Block) -> Page:
    options, name = config.options, config.cells[0].config.data.name
    numbers = {"cell": config.cells, "method": options.methods, "epsilon": options.epsilons, "seed": options.seeds}
    return Page(
        title=f"Sweep over {name}" if name else "Sweep",
        lead="What private clusterings of the same rows cost, computed from these rows without noise. This page is as "
        "private as the rows: keep it in the trusted zone.",
        tags=(str(_BADGE), *(plural(len(number), word) for word, number in numbers.items())),
        label=None,
        sections=(_costs(curves, drawn), _areas(curves), _front(curves), _reading(config)),
        stamp=RunStamp.today("", config.digest, name),
    )


def _costs(curves: dict[tuple[str, str], list[Point]], drawn: Block) -> Section:
    rows = tuple(
        (*curve, _epsilon(point), f"{point['n_seeds']}", f"{point['cost']:.6g}", _interval(point, "cost"))
        for curve, points in curves.items()
        for point in points
    )
    note = "Cost: mean squared distance of a row to its nearest center, in feature units squared."
    table = _table("Mean costs", ("epsilon", "seeds", "cost"), rows, note)
    lead = "Each point is the mean over seeds; every run drew noise of its own."
    return Section(name="costs", title="Costs", lead=lead, blocks=(drawn, table))


def _areas(curves: dict[tuple[str, str], list[Point]]) -> Section:
    rows = tuple(
        (*curve, f"{points[0]['auc']:.6g}", _interval(points[0], "auc"))
        for curve, points in curves.items()
        if points[0]["auc"] is not None
    )
    block: Block = Notice(level=Level.NOTE, text="No curve has two epsilons or more, so there is no area.")
    if rows:
        note = "By the trapezoid rule on epsilon itself, seed by seed; less is better."
        block = _table("Area under cost against epsilon", ("area",), rows, note)
    lead = "One number per curve: where it is lower, a method costs less over the whole range of epsilons."
    return Section(name="areas", title="Areas", lead=lead, blocks=(block,))


def _front(curves: dict[tuple[str, str], list[Point]]) -> Section:
    kept = [
        (curve, point)
        for curve, points in curves.items()
        for point in points
        if point["on_front"] and point["epsilon"] is not None
    ]
    kept.sort(key=lambda each: (each[0][0], each[1]["epsilon"]))
    rows = tuple((*curve, _epsilon(point), f"{point['cost']:.6g}", _interval(point, "cost")) for curve, point in kept)
    block: Block = Notice(level=Level.NOTE, text="No method with privacy was run, so there is no front.")
    if rows:
        note = "Means decide, whatever their intervals: of close settings the better one may be off the front."
        block = _table("Pareto fronts", ("epsilon", "cost"), rows, note)
    lead = "Points of each method that none of its settings beats at the same epsilon or less."
    return Section(name="front", title="Pareto fronts", lead=lead, blocks=(block,))


def _table(title: str, columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...], note: str) -> Table:
    """Table of curves: method and settings come first in a row, the interval last."""
    return Table(
        title=title,
        badge=_BADGE,
        columns=("method", "settings", *columns, _INTERVAL),
        rows=rows,
        words=2,
        folded=len(rows) > _FOLDED,
        note=note,
    )


def _reading(config: SweepConfig) -> Section:
    """The section on permitted uses, and the versions."""
    blocks: tuple[Block, ...] = (
        Notice(
            level=Level.WARNING,
            text="Costs are exact, and the runs of a sweep add up: none of this is differentially private. Using it to "
            "choose settings for a published fit of the same rows is a release that nobody accounts for.",
            badge=_BADGE,
        ),
        Facts(
            title="About this report",
            badge=None,
            pairs=(
                ("Methods", ", ".join(config.options.methods)),
                ("Epsilons", ", ".join(f"{epsilon:g}" for epsilon in config.options.epsilons)),
                ("Digest of all cells", config.digest),
                *versions().items(),
            ),
        ),
    )
    lead = "Every cell of a private method satisfies the guarantee of its own epsilon; the sweep as a whole has none."
    return Section(name="reading", title="Use", lead=lead, blocks=blocks)


def _epsilon(point: Point) -> str:
    return "not private" if point["epsilon"] is None else f"{point['epsilon']:g}"


def _interval(point: Point, name: str) -> str:
    low, high = point[f"{name}_low"], point[f"{name}_high"]
    return f"{low:.6g} to {high:.6g}" if np.isfinite([low, high]).all() else "one seed"
