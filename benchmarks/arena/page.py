"""The page: ranks by regime with intervals, cells that Dapple loses, and claimed against refuted epsilons."""

import collections
import math
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import machine
from benchmarks.arena import cells, environments, sets, verdicts

Results = list[dict[str, Any]]
US = "dapple"
CONFIDENCE = 0.95
"""Of intervals."""
OF_TWO_RUNS = ("same_key", "no_account")
"""Attacks on what users do with several runs: they refute no claim of one run."""


def lines(systems: dict[str, ModuleType], options: Any) -> list[str]:
    """Markdown lines of the whole page."""
    told = list(verdicts.measured(systems, options.attacks or verdicts.attacks(), options))
    broken = {each["system"] for each in told if _is_refuted(each) and each["attack"] not in OF_TWO_RUNS}
    found = list(cells.measured(systems, options.sets, options.epsilons, options.draws, options))
    ranked = [name for name, each in systems.items() if each.CLAIM is not None]
    page = [*machine.heading("The arena"), *_systems(systems), *_sets(found), *_commands()]
    page += ["## Ranks by regime", "", *_how_ranked(options.draws), ""]
    for epsilon in options.epsilons:
        page += [*regime_table(found, ranked, epsilon, broken), ""]
    page += ["## Every cell", "", *_how_cells(options.draws), ""]
    for epsilon in options.epsilons:
        page += [*cell_table(found, ranked, epsilon, broken), ""]
    page += ["## Cells that Dapple loses", "", *lost(found, ranked, broken), ""]
    page += ["## Cells without an answer", "", *missing(found), ""]
    return [*page, "## Claimed and refuted", "", *claims(told)]


def _worst(verdict: dict[str, Any]) -> dict[str, Any] | None:
    """The comparison whose bound exceeds its claim by most."""
    return max(verdict["cases"], key=lambda each: each["bound"] - each["claim"], default=None)


def _is_refuted(verdict: dict[str, Any]) -> bool:
    worst = _worst(verdict)
    return worst is not None and worst["bound"] > worst["claim"]


def _marked(systems: Sequence[str], broken: set[str]) -> list[str]:
    return [f"{each} \u2020" if each in broken else each for each in systems]


def _mean(places: Sequence[int]) -> float:
    """Of places; infinite without any."""
    return float(np.mean(places)) if places else math.inf


def _systems(systems: dict[str, ModuleType]) -> Iterator[str]:
    yield from ("## Systems", "", "| system | from | claims | as it was run |", "| --- " * 4 + "|")
    for each in systems.values():
        told = environments.settings_of(each)
        yield f"| {told.title} | {told.source} | {each.CLAIM or 'nothing'} | {told.what} |"
    yield ""


def _sets(found: Results) -> Iterator[str]:
    yield from ("## Data", "", "| set | regime | rows | features | k |", "| --- " * 5 + "|")
    known = {each["name"]: each for each in found}
    for name, (regime, _) in sets.SETS.items():
        if name in known:
            yield f"| {name} | {regime} | {known[name]['rows']:,} | {known[name]['features']} | {known[name]['k']} |"
    yield from ("", f"Sets with more than {sets.MOST_ROWS:,} rows are sub-sampled to as many.", "")


def _commands() -> Iterator[str]:
    yield from ("## Commands", "", "Environments, then all cells, then all attacks; each goes on where it was stopped:")
    yield from ("", "```console", "python -m benchmarks.arena build", "python -m benchmarks.arena cells --data data")
    yield from ("python -m benchmarks.arena attacks", "```", "")
    yield "One cell is named by the words of its row and column:"
    yield from ("", "```console", "python -m benchmarks.arena cells SYSTEM --sets SET --epsilons EPSILON --draws DRAWS")
    yield from ("python -m benchmarks.arena attacks SYSTEM --attacks ATTACK", "```", "")


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


def _how_ranked(draws: int) -> list[str]:
    return [
        f"Mean place among the private systems on the sets of a regime ({draws} draws each), and in brackets the cost "
        "over that of k-means without privacy: the geometric mean of all draws of all sets that the system finished "
        "and its 95% interval. A system that gave no answer on a set has the last place there, and none where it was "
        "not run. The best of a row is bold. Attacks refute what systems with \u2020 claim of one run: theirs are no "
        "places of private clustering."
    ]


def regime_table(found: Results, systems: Sequence[str], epsilon: float, broken: set[str]) -> Iterator[str]:
    """A row per regime, a column per system."""
    ratios = by_cell(found, epsilon)
    regimes: dict[str, list[str]] = collections.defaultdict(list)
    for name in dict.fromkeys(each["name"] for each in found):
        regimes[sets.SETS[name][0]].append(name)
    yield f"| epsilon {epsilon:g} | {' | '.join(_marked(systems, broken))} |"
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


def _how_cells(draws: int) -> list[str]:
    return [
        f"Cost over that of k-means without privacy: the geometric mean of {draws} draws, and its 95% interval. The "
        "least of a row is bold. `-` is a cell without an answer, and an empty one was not run."
    ]


def cell_table(found: Results, systems: Sequence[str], epsilon: float, broken: set[str]) -> Iterator[str]:
    """A row per set, a column per system."""
    ratios = by_cell(found, epsilon)
    yield f"| epsilon {epsilon:g} | {' | '.join(_marked(systems, broken))} |"
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


def lost(found: Results, systems: Sequence[str], broken: set[str]) -> Iterator[str]:
    """Cells in which another system has a lower mean: the best one, and the best whose claim no attack refutes."""
    standing = [each for each in systems if each not in broken]
    yield from ("| set | epsilon | dapple | the best | intervals | the best not refuted | |", "| --- " * 7 + "|")
    for epsilon in sorted({each["epsilon"] for each in found}):
        ratios = by_cell(found, epsilon)
        for name in dict.fromkeys(each["name"] for each in found):
            means = {each: interval(ratios[name, each]) for each in systems if (name, each) in ratios}
            best = min(means, key=lambda each: means[each][0], default=US)
            if best != US and US in means:
                apart = "apart" if means[best][2] < means[US][1] else "overlap"
                fair = min((each for each in standing if each in means), key=lambda each: means[each][0], default=US)
                told = f"{_marked([best], broken)[0]} {means[best][0]:.4g} | {apart} | {fair} | {means[fair][0]:.4g}"
                yield f"| {name} | {epsilon:g} | {means[US][0]:.4g} | {told} |"


def missing(found: Results) -> Iterator[str]:
    """What systems said instead of an answer, with the sets."""
    said: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for each in found:
        if each["error"]:
            said[each["system"], each["error"].splitlines()[0][:120].replace("|", "/")].append(each["name"])
    yield from ("| system | what it said | cells | sets |", "| --- " * 4 + "|")
    for (system, error), names in said.items():
        yield f"| {system} | {error} | {len(names)} | {', '.join(dict.fromkeys(names))} |"


def verdict_line(verdict: dict[str, Any]) -> str:
    """One attack on one system: the comparison whose bound exceeds its claim by most."""
    worst = _worst(verdict)
    if worst is None:
        said = "nothing was released"
        if verdict["errors"]:
            said = verdict["errors"][0].splitlines()[0][:100].replace("|", "/")
        return f"| {verdict['system']} | {verdict['attack']} | - | - | no release: {said} |"
    state = "**refuted**" if _is_refuted(verdict) else "not refuted"
    return (
        f"| {verdict['system']} | {verdict['attack']} | {worst['claim']:g} | {worst['bound']:.2f} | {state}"
        f" ({worst['case']}; at most {verdict['runs']:,} runs of each) |"
    )


def claims(found: Results) -> Iterator[str]:
    """A summary by system, then a row per attack and system."""
    systems = list(dict.fromkeys(each["system"] for each in found))
    attacks = list(dict.fromkeys(each["attack"] for each in found))
    yield from (
        "Lower bounds on epsilon with their claims; a refuted claim is bold. All bounds on one system together "
        "exceed a true epsilon for at most one set of runs in 1,000. 60 runs of each show an epsilon of 1.17 "
        "at most: 0.00 says that these scores saw nothing, not that nothing is there. `same_key` and `no_account` are "
        "of several runs, and refute what is claimed of these: twice epsilon, and the epsilon that the last run "
        "states. A system without an argument for a seed draws from NumPy's stream, which `same_key` starts over.",
        "",
    )
    yield f"| attack | {' | '.join(systems)} |"
    yield "| --- " * (1 + len(systems)) + "|"
    by_key = {(each["attack"], each["system"]): each for each in found}
    for name in attacks:
        yield f"| [{name}](#{name}) | {' | '.join(_short(by_key.get((name, each))) for each in systems)} |"
    for name in attacks:
        yield from (
            "",
            f"### {name}",
            "",
            f"{verdicts.loaded(name).WHAT[0].upper()}{verdicts.loaded(name).WHAT[1:]}.",
            "",
        )
        yield from ("| system | attack | claimed | refuted up to | verdict |", "| --- " * 5 + "|")
        yield from (verdict_line(each) for each in found if each["attack"] == name)


def _short(verdict: dict[str, Any] | None) -> str:
    """Bound and claim of an attack in one cell."""
    if verdict is None:
        return ""
    worst = _worst(verdict)
    if worst is None:
        return "no release"
    mark = "**" if _is_refuted(verdict) else ""
    return f"{mark}{worst['bound']:.2f} of {worst['claim']:g}{mark}"
