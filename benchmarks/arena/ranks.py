"""Places of systems by set and regime, with intervals."""

import collections
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.arena import sets

Results = list[dict[str, Any]]
US = "dapple"
CONFIDENCE = 0.95
"""Of intervals."""


REFUTED, BEYOND = "\u2020", "\u2021"
"""Marks of systems whose claim of one run an attack refutes: by rows in the box, or by rows beyond it alone."""


def marked(systems: Sequence[str], marks: dict[str, str]) -> list[str]:
    return [f"{each} {marks[each]}" if each in marks else each for each in systems]


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of ratios, and its 95% interval by Student's t on logarithms; infinite for one ratio."""
    mean, half = _mean_and_half(np.log(ratios))
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))


def _mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its 95% interval by Student's t; infinite for one value."""
    half = math.inf
    if len(values) > 1:
        half = stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values)), float(half)


def by_cell(found: Results, epsilon: float) -> dict[tuple[str, str], list[float]]:
    """Ratios of all draws, by set and system; none where a draw has no answer."""
    ratios: dict[tuple[str, str], list[float | None]] = collections.defaultdict(list)
    for each in found:
        if each["epsilon"] == epsilon:
            ratios[each["name"], each["system"]].append(each["ratio"])
    return {key: values for key, values in ratios.items() if None not in values}  # type: ignore[misc]


def tried(found: Results) -> set[tuple[str, str]]:
    """Sets and systems with a cell, answered or not."""
    return {(each["name"], each["system"]) for each in found}


def ranks(ratios: dict[str, float | None]) -> dict[str, int]:
    """Places of the systems that were run on a draw of a set, 1 the best; without an answer (None), the last place."""
    ordered = sorted((each for each in ratios if ratios[each] is not None), key=lambda each: ratios[each] or 0.0)
    return {each: ordered.index(each) + 1 if each in ordered else len(ratios) for each in ratios}


def places(results: Results, systems: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    """Mean place of each system over draws and sets, and the ends of its 95% interval, by what draws differ."""
    drawn: dict[tuple[int, str], dict[str, float | None]] = collections.defaultdict(dict)
    for each in results:
        if each["system"] in systems:
            drawn[each["draw"], each["name"]][each["system"]] = each["ratio"]
    found: dict[str, dict[int, list[int]]] = {}
    for (draw, _), ratios in drawn.items():
        for system, place in ranks(ratios).items():
            found.setdefault(system, {}).setdefault(draw, []).append(place)
    means = {each: _mean_and_half([float(np.mean(of)) for of in draws.values()]) for each, draws in found.items()}
    last = float(len(means))
    return {each: (mean, max(mean - half, 1.0), min(mean + half, last)) for each, (mean, half) in means.items()}


def winners(ratios: dict[tuple[str, str], list[float]], systems: Sequence[str]) -> dict[str, str]:
    """The system of the least mean by set, of the sets on which Dapple has an answer."""
    found: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for (name, each), values in ratios.items():
        if each in systems:
            found[name][each] = interval(values)[0]
    return {name: min(means, key=lambda each: means[each]) for name, means in found.items() if US in means}


def regime_table(found: Results, systems: Sequence[str], epsilon: float, marks: dict[str, str]) -> Iterator[str]:
    """A row per regime, a column per system."""
    ratios = by_cell(found, epsilon)
    regimes: dict[str, list[str]] = collections.defaultdict(list)
    for name in dict.fromkeys(each["name"] for each in found):
        regimes[sets.SETS[name][0]].append(name)
    yield f"| epsilon {epsilon:g} | {' | '.join(marked(systems, marks))} |"
    yield "| --- " * (1 + len(systems)) + "|"
    for regime, names in regimes.items():
        means = places([each for each in found if each["epsilon"] == epsilon and each["name"] in names], systems)
        best, shown = min((mean for mean, *_ in means.values()), default=math.inf), []
        for each in systems:
            values = [ratio for name in names for ratio in ratios.get((name, each), [])]
            cost = "-" if not values else "{:.3g}, {:.3g} to {:.3g}".format(*interval(values))
            mean, low, high = means.get(each, (math.inf,) * 3)
            mark = "**" if mean == best else ""
            shown.append("" if each not in means else f"{mark}{mean:.2g}{mark}, {low:.2g} to {high:.2g} ({cost})")
        yield f"| {regime} | {' | '.join(shown)} |"


def cell_table(
    found: Results, systems: Sequence[str], above: str, epsilon: float, marks: dict[str, str]
) -> Iterator[str]:
    """A row per set, a column per system, and one for what is not private."""
    ratios = by_cell(found, epsilon)
    yield f"| epsilon {epsilon:g} | {' | '.join([*marked(systems, marks), above])} |"
    yield "| --- " * (2 + len(systems)) + "|"
    for name in dict.fromkeys(each["name"] for each in found):
        means = {each: interval(ratios[name, each]) for each in [*systems, above] if (name, each) in ratios}
        least = min((mean for each, (mean, *_) in means.items() if each != above), default=0.0)
        shown = []
        for each in [*systems, above]:
            mark = "**" if each in means and means[each][0] == least and each != above else ""
            cell = "-" if (name, each) in tried(found) else ""
            if each in means:
                mean, low, high = means[each]
                cell = f"{mark}{mean:.3g}{mark} ({low:.3g} to {high:.3g})"
            shown.append(cell)
        yield f"| {name} | {' | '.join(shown)} |"
