"""Places and costs of systems by set and regime; systems whose claim is refuted stand below, without a place."""

import collections
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.arena import sets

Results = list[dict[str, Any]]
US, ABOVE = "dapple", "not_private"
"""Dapple, and what all are compared with."""
CONFIDENCE = 0.95
"""Of intervals."""
REFUTED, BEYOND = "\u2020", "\u2021"
"""Marks of systems whose claim of one run an attack refutes: by rows in the box, or by rows beyond it alone."""
BELOW = f"Below the line, in no rank: systems whose claim rows in the box refute ({REFUTED})."


def parted(systems: Sequence[str], marks: dict[str, str]) -> tuple[list[str], list[str]]:
    """Systems whose claim stands for rows in the box, and the others."""
    refuted = [each for each in systems if marks.get(each) == REFUTED]
    return [each for each in systems if each not in refuted], refuted


def marked(systems: Sequence[str], marks: dict[str, str]) -> list[str]:
    return [f"{each} {marks[each]}" if each in marks else each for each in systems]


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of ratios, and its 95% interval by Student's t on logarithms; infinite for one ratio."""
    logs, half = np.log(ratios), math.inf
    if len(logs) > 1:
        half = stats.t.ppf(0.5 + CONFIDENCE / 2, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs))
    mean = np.mean(logs)
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))


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
    """Places of the systems that were run on a set, 1 the best; without an answer (None), the last place."""
    ordered = sorted((each for each in ratios if ratios[each] is not None), key=lambda each: ratios[each] or 0.0)
    return {each: ordered.index(each) + 1 if each in ordered else len(ratios) for each in ratios}


def places(results: Results, systems: Sequence[str]) -> dict[str, float]:
    """Mean place of each system over sets, by its mean cost on each; a draw without an answer costs the last place."""
    drawn: dict[str, dict[str, list[float | None]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for each in results:
        if each["system"] in systems:
            drawn[each["name"]][each["system"]].append(each["ratio"])
    found: dict[str, list[int]] = collections.defaultdict(list)
    for asked in drawn.values():
        means = {each: None if None in of else interval(of)[0] for each, of in asked.items()}  # type: ignore[arg-type]
        for system, place in ranks(means).items():
            found[system].append(place)
    return {system: float(np.mean(of)) for system, of in found.items()}


def winners(ratios: dict[tuple[str, str], list[float]], systems: Sequence[str]) -> dict[str, str]:
    """The system of the least mean by set, of the sets on which Dapple has an answer."""
    found: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for (name, each), values in ratios.items():
        if each in systems:
            found[name][each] = interval(values)[0]
    return {name: min(means, key=lambda each: means[each]) for name, means in found.items() if US in means}


def tables(
    table: Callable[..., Iterator[str]], found: Results, systems: Sequence[str], epsilon: float, marks: dict[str, str]
) -> Iterator[str]:
    """A table of systems whose claim stands, then, below the line, that of the refuted ones."""
    ranked, refuted = parted(systems, marks)
    yield from table(found, ranked, epsilon, marks)
    if refuted:
        yield from ("", BELOW, "", *table(found, refuted, epsilon, marks))


def regime_table(found: Results, systems: Sequence[str], epsilon: float, marks: dict[str, str]) -> Iterator[str]:
    """A row per regime, a column per system: its place, but for refuted ones, and its cost."""
    ratios = by_cell(found, epsilon)
    regimes: dict[str, list[str]] = collections.defaultdict(list)
    for name in dict.fromkeys(each["name"] for each in found):
        regimes[sets.SETS[name][0]].append(name)
    yield f"| epsilon {epsilon:g} | {' | '.join(marked(systems, marks))} |"
    yield "| --- " * (1 + len(systems)) + "|"
    for regime, names in regimes.items():
        means = places([each for each in found if each["epsilon"] == epsilon and each["name"] in names], systems)
        best, shown = min(means.values(), default=math.inf), []
        for each in systems:
            values = [ratio for name in names for ratio in ratios.get((name, each), [])]
            cost = "-" if not values else "{:.3g}, {:.3g} to {:.3g}".format(*interval(values))
            mark = "**" if means.get(each) == best else ""
            place = f"{mark}{means.get(each, 0.0):.2g}{mark} ({cost})"
            shown.append("" if each not in means else cost if marks.get(each) == REFUTED else place)
        yield f"| {regime} | {' | '.join(shown)} |"


def cell_table(found: Results, systems: Sequence[str], epsilon: float, marks: dict[str, str]) -> Iterator[str]:
    """A row per set, a column per system; the least cost is bold, but for refuted ones and `ABOVE`."""
    ratios = by_cell(found, epsilon)
    yield f"| epsilon {epsilon:g} | {' | '.join(marked(systems, marks))} |"
    yield "| --- " * (1 + len(systems)) + "|"
    for name in dict.fromkeys(each["name"] for each in found):
        means = {each: interval(ratios[name, each]) for each in systems if (name, each) in ratios}
        least = min((means[each][0] for each in means if each != ABOVE and marks.get(each) != REFUTED), default=0.0)
        shown = []
        for each in systems:
            mark = "**" if each in means and means[each][0] == least and each != ABOVE else ""
            cell = "-" if (name, each) in tried(found) else ""
            if each in means:
                mean, low, high = means[each]
                cell = f"{mark}{mean:.3g}{mark} ({low:.3g} to {high:.3g})"
            shown.append(cell)
        yield f"| {name} | {' | '.join(shown)} |"
