"""The page: ranks by regime with intervals, cells that Dapple loses, and claimed against refuted epsilons."""

import collections
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from benchmarks import machine
from benchmarks.arena import cells, environments, lost, ranks, sets, stages, verdicts
from benchmarks.arena.attacks.neighbors import BOX
from benchmarks.arena.ranks import ABOVE, BELOW, BEYOND, REFUTED, US, Results, parted

OF_TWO_RUNS = ("same_key", "no_account")
"""Attacks on what users do with several runs: they refute no claim of one run."""
_HOW_RANKED = (
    "Mean place on the sets of a regime, by the mean cost on each. In brackets is the cost over that of k-means "
    "without privacy: the geometric mean of all draws of all sets that the system finished, and its 95% interval. A "
    "system that gave no answer to a draw of a set has the last place there, and none where it was not run. The best "
    f"of a row is bold. Attacks refute what systems with {REFUTED} claim of one run: they have no place among private "
    f"clusterings. With {BEYOND} only rows beyond the bounds that users stated do that."
)
_HOW_REFUTED = (
    "Lower bounds on epsilon with their claims; a refuted claim is bold. All bounds on one system together exceed a "
    f"true epsilon for at most one set of runs in {1 / verdicts.FAILURE:,.0f}: each has a confidence of "
    f"{1 - verdicts.FAILURE / verdicts.COMPARISONS:.3%}. Beside it is what as many runs can show at most, where "
    "every test is right: 0.00 says that these scores saw nothing of that size, not that nothing is there. `same_key` "
    "and `no_account` are of several runs, and refute what is claimed of these: twice epsilon, and the epsilon that "
    "the last run states. A system without an argument for a seed draws from NumPy's stream, which `same_key` starts "
    "over."
)
_HOW_CELLS = (
    "Cost over that of k-means without privacy, the best of some starts: the geometric mean of the draws, and its 95% "
    "interval. The least of a system whose claim stands is bold. `-` is a cell without an answer, and an empty one was "
    f"not run. `{ABOVE}` is what they are compared with."
)


def lines(systems: dict[str, ModuleType], options: Any) -> list[str]:
    """Markdown lines of the whole page."""
    scored = list(verdicts.measured(systems, options.attacks or verdicts.attacks(), options))
    marks = marks_of(scored)
    order = [each for part in parted(list(systems), marks) for each in part]
    systems = {each: systems[each] for each in order}
    scored.sort(key=lambda each: order.index(each["system"]))
    found = list(cells.measured(systems, options))
    staged = cells.measured({US: systems[US]} if US in systems else {}, options, stages.DOORS)
    ranked = [name for name, each in systems.items() if each.CLAIM is not None]
    page = [*machine.heading("The arena"), *_systems(systems, found, marks), *_sets(found), *_commands(found, scored)]
    page += ["## Ranks by regime", "", _HOW_RANKED, ""]
    for epsilon in options.epsilons:
        page += [*ranks.tables(ranks.regime_table, found, ranked, epsilon, marks), ""]
    page += ["## Every cell", "", _HOW_CELLS, ""]
    for epsilon in options.epsilons:
        page += [*ranks.tables(ranks.cell_table, found, [*ranked, ABOVE], epsilon, marks), ""]
    page += ["## Cells in which another system is cheaper", "", *lost.cells(found, ranked, marks), ""]
    page += ["### Why", "", *lost.why(found, list(staged), ranked, marks), ""]
    page += ["## Cells without an answer", "", *missing(found), ""]
    return [*page, "## Claimed and refuted", "", *claims(scored)]


def marks_of(scored: Results) -> dict[str, str]:
    """Marks of systems whose claim of one run is refuted."""
    found: dict[str, str] = {}
    for verdict in scored:
        if verdict["attack"] in OF_TWO_RUNS or not _is_refuted(verdict):
            continue
        rows = {pair.case: pair.with_canary[-1] for pair in verdicts.loaded(verdict["attack"]).PAIRS}
        refuting = [rows[case["case"]] for case in verdict["cases"] if case["bound"] > case["claim"]]
        is_inside = any(((row >= BOX[0]) & (row <= BOX[1])).all() for row in refuting)
        found[verdict["system"]] = REFUTED if is_inside else found.get(verdict["system"], BEYOND)
    return found


def _worst(verdict: dict[str, Any]) -> dict[str, Any] | None:
    """The comparison whose bound exceeds its claim by most."""
    return max(verdict["cases"], key=lambda each: each["bound"] - each["claim"], default=None)


def _is_refuted(verdict: dict[str, Any]) -> bool:
    worst = _worst(verdict)
    return worst is not None and worst["bound"] > worst["claim"]


def _systems(systems: dict[str, ModuleType], found: Results, marks: dict[str, str]) -> Iterator[str]:
    yield from ("## Systems", "", "| system | from | claims | as it was run | draws of a cell |", "| --- " * 5 + "|")
    refuted = parted(list(systems), marks)[1]
    for title, each in systems.items():
        if [title] == refuted[:1]:
            yield f"| **{BELOW}** | | | | |"
        scored = environments.settings_of(each)
        drawn = collections.Counter((one["name"], one["epsilon"]) for one in found if one["system"] == scored.title)
        draws = " to ".join(dict.fromkeys(str(end(drawn.values())) for end in (min, max))) if drawn else "-"
        yield f"| {scored.title} | {scored.source} | {each.CLAIM or 'nothing'} | {scored.what} | {draws} |"
    yield ""


def _sets(found: Results) -> Iterator[str]:
    yield from ("## Data", "", "| set | regime | rows | features | k |", "| --- " * 5 + "|")
    known = {each["name"]: each for each in found}
    for name, (regime, _) in sets.SETS.items():
        if name in known:
            yield f"| {name} | {regime} | {known[name]['rows']:,} | {known[name]['features']} | {known[name]['k']} |"
    yield from ("", f"Sets with more than {sets.MOST_ROWS:,} rows are sub-sampled to as many.", "")


def _commands(found: Results, scored: Results) -> Iterator[str]:
    yield from ("## Commands", "", "Environments, then all cells, then all attacks; each goes on where it was stopped:")
    yield from ("", "```console", "python -m benchmarks.arena build", "python -m benchmarks.arena cells --data data")
    yield from ("python -m benchmarks.arena attacks", "python -m benchmarks.arena stages --data data", "```", "")
    asked = [
        f"cells {each['system']} --sets {each['name']} --epsilons {each['epsilon']:g} --data data" for each in found
    ]
    asked += [f"attacks {each['system']} --attacks {each['attack']}" for each in scored]
    yield from ("<details><summary>One for each cell of the tables below</summary>", "", "```console")
    yield from (f"python -m benchmarks.arena {words}" for words in dict.fromkeys(asked))
    yield from ("```", "", "</details>", "")
    yield (
        "What is kept is found by the digest of the adapter (of Dapple: of all the code that its fit reaches), of the "
        "attack, of what was asked and of the rows. So nothing here is of other code than that of the commit above, "
        "whenever it was run."
    )
    yield ""


def missing(found: Results) -> Iterator[str]:
    """Returns the errors of systems that gave no answer, with the sets."""
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
        return f"| {verdict['system']} | {verdict['attack']} | - | - | - | no release: {said} |"
    state = "**refuted**" if _is_refuted(verdict) else "not refuted"
    return (
        f"| {verdict['system']} | {verdict['attack']} | {worst['claim']:g} | {worst['bound']:.2f} "
        f"| {worst['most']:.2f} | {state} ({worst['case']}; at most {verdict['runs']:,} runs of each) |"
    )


def claims(found: Results) -> Iterator[str]:
    """A summary by system, then a row per attack and system."""
    systems = list(dict.fromkeys(each["system"] for each in found))
    attacks = list(dict.fromkeys(each["attack"] for each in found))
    yield from (_HOW_REFUTED, "")
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
        yield "| system | attack | claimed | refuted up to | could show at most | verdict |"
        yield "| --- " * 6 + "|"
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
