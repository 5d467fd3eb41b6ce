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


def marked(systems: Sequence[str], broken: set[str]) -> list[str]:
    return [f"{each} \u2020" if each in broken else each for each in systems]


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of ratios, and its 95% interval by Student's t on logarithms; infinite for one ratio."""
    logs = np.log(ratios)
    half = math.inf
    if len(logs) > 1:
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
    return float(np.exp(logs.mean())), float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))


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


def ranks(
    ratios: dict[tuple[str, str], list[float]], name: str, systems: Sequence[str], run: set[tuple[str, str]]
) -> dict[str, int]:
    """Places of the systems that were run on a set, 1 the best, by mean ratio; without an answer, the last place."""
    means = {each: interval(ratios[name, each])[0] for each in systems if (name, each) in ratios}
    ordered, asked = sorted(means, key=lambda each: means[each]), [each for each in systems if (name, each) in run]
    return {each: ordered.index(each) + 1 if each in means else len(asked) for each in asked}


def winners(ratios: dict[tuple[str, str], list[float]], systems: Sequence[str]) -> dict[str, str]:
    """The system of the least mean by set, of the sets on which Dapple has an answer."""
    found: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for (name, each), values in ratios.items():
        if each in systems:
            found[name][each] = interval(values)[0]
    return {name: min(means, key=lambda each: means[each]) for name, means in found.items() if US in means}


def regime_table(found: Results, systems: Sequence[str], epsilon: float, broken: set[str]) -> Iterator[str]:
    """A row per regime, a column per system."""
    ratios = by_cell(found, epsilon)
    regimes: dict[str, list[str]] = collections.defaultdict(list)
    for name in dict.fromkeys(each["name"] for each in found):
        regimes[sets.SETS[name][0]].append(name)
    yield f"| epsilon {epsilon:g} | {' | '.join(marked(systems, broken))} |"
    yield "| --- " * (1 + len(systems)) + "|"
    for regime, names in regimes.items():
        places = [ranks(ratios, name, systems, tried(found)) for name in names]
        means = {each: _mean([place[each] for place in places if each in place]) for each in systems}
        cells_of = []
        for each in systems:
            values = [ratio for name in names for ratio in ratios.get((name, each), [])]
            shown = "-" if not values else "{:.3g}, {:.3g} to {:.3g}".format(*interval(values))
            mark = "**" if means[each] == min(means.values()) else ""
            cells_of.append("" if means[each] == math.inf else f"{mark}{means[each]:.2g}{mark} ({shown})")
        yield f"| {regime} | {' | '.join(cells_of)} |"


def cell_table(found: Results, systems: Sequence[str], epsilon: float, broken: set[str]) -> Iterator[str]:
    """A row per set, a column per system."""
    ratios = by_cell(found, epsilon)
    yield f"| epsilon {epsilon:g} | {' | '.join(marked(systems, broken))} |"
    yield "| --- " * (1 + len(systems)) + "|"
    for name in dict.fromkeys(each["name"] for each in found):
        means = {each: interval(ratios[name, each]) for each in systems if (name, each) in ratios}
        least = min((mean for mean, *_ in means.values()), default=0.0)
        shown = []
        for each in systems:
            mark = "**" if each in means and means[each][0] == least else ""
            cell = "-" if (name, each) in tried(found) else ""
            if each in means:
                mean, low, high = means[each]
                cell = f"{mark}{mean:.3g}{mark} ({low:.3g} to {high:.3g})"
            shown.append(cell)
        yield f"| {name} | {' | '.join(shown)} |"


def _mean(places: Sequence[int]) -> float:
    """Of places; infinite without any."""
    return float(np.mean(places)) if places else math.inf
