"""Cells in which another system has the lower mean, and which of Dapple's stages makes them dear."""

import collections
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.arena import sets, stages
from benchmarks.arena.ranks import BELOW, US, Results, by_cell, interval, marked, parted, winners

_STAGES = ", ".join(f"{words} ({name})" for name, words in stages.STAGES.items())
_HOW = (
    "Dapple's runs again, under the same keys, with next to no noise in one stage or in all: what a stage costs is how "
    "much cheaper they are without its noise. Geometric means of the cost over that of k-means without privacy, over "
    f"all draws of the lost cells of a regime that were run so. Stages are {_STAGES}."
)


def cells(found: Results, systems: Sequence[str], marks: dict[str, str]) -> Iterator[str]:
    """Cells in which another system has a lower mean: one whose claim stands, then a refuted one, below the line."""
    ranked, refuted = parted(systems, marks)
    epsilons = sorted({each["epsilon"] for each in found})
    firsts, near = [], 0
    for epsilon in epsilons:
        ratios = by_cell(found, epsilon)
        for name, best in winners(ratios, ranked).items():
            firsts.append(best)
            ends = [interval(ratios[name, each])[1] for each in ranked if each != US and (name, each) in ratios]
            near += best == US and min(ends, default=math.inf) <= interval(ratios[name, US])[2]
    yield (
        f"Of systems whose claim stands, Dapple has the lowest mean in {firsts.count(US)} of {len(firsts)} cells. In "
        f"{near} of them the interval of another one reaches into its own."
    )
    for lines, those in ((("",), ranked), (("", BELOW, ""), [*refuted, US])):
        if rows := list(_lost(found, those, epsilons, marks)):
            yield from (*lines, "| set | epsilon | dapple | the best | intervals |", "| --- " * 5 + "|", *rows)


def _lost(found: Results, systems: Sequence[str], epsilons: Sequence[float], marks: dict[str, str]) -> Iterator[str]:
    for epsilon in epsilons:
        ratios = by_cell(found, epsilon)
        for name, best in winners(ratios, systems).items():
            if best != US:
                ours, theirs = interval(ratios[name, US]), interval(ratios[name, best])
                apart = "apart" if theirs[2] < ours[1] else "overlap"
                yield f"| {name} | {epsilon:g} | {ours[0]:.4g} | {marked([best], marks)[0]} {theirs[0]:.4g} | {apart} |"


def why(found: Results, staged: Results, systems: Sequence[str], marks: dict[str, str]) -> Iterator[str]:
    """Returns the cost of the same runs with next to no noise in a stage, and a paragraph for each regime."""
    lost: dict[str, dict[tuple[str, float], str]] = collections.defaultdict(dict)
    for epsilon in sorted({each["epsilon"] for each in found}):
        for name, best in winners(by_cell(found, epsilon), systems).items():
            if best != US:
                lost[sets.SETS[name][0]][name, epsilon] = best
    runs = {"as it is": [each for each in found if each["system"] == US]}
    runs |= {door: [each for each in staged if each["door"] == door] for door in stages.DOORS}
    whole = set.intersection(*({_draw(each) for each in results} for results in runs.values()))
    runs = {door: [each for each in results if _draw(each) in whole] for door, results in runs.items()}
    yield from (_HOW, "", f"| regime | epsilon | cells | {' | '.join(runs)} |", "| --- " * (3 + len(runs)) + "|")
    for regime, bests in lost.items():
        for epsilon in sorted({epsilon for _, epsilon in bests}):
            part = {cell for cell in bests if cell[1] == epsilon}
            costs = " | ".join(f"{_mean(each, part):.3g}" for each in runs.values())
            yield f"| {regime} | {epsilon:g} | {len(part)} | {costs} |"
    for regime, bests in lost.items():
        ours = _mean([each for each in found if each["system"] == US], set(bests))
        theirs = _mean([each for each in found if each["system"] == bests.get(_cell(each))], set(bests))
        costs_of = [_mean(each, set(bests)) for each in runs.values()]
        yield from (
            "",
            f"{_lost_to(regime, bests, marks)}, at a cost of {ours:.3g} against {theirs:.3g}. {_stage(*costs_of)}",
        )


def _draw(result: dict[str, Any]) -> tuple[str, float, int]:
    return *_cell(result), result["draw"]


def _cell(result: dict[str, Any]) -> tuple[str, float]:
    return result["name"], result["epsilon"]


def _mean(results: Results, cells_of: set[tuple[str, float]]) -> float:
    """Geometric mean of the ratios in some cells; NaN without any."""
    logs = [math.log(each["ratio"]) for each in results if _cell(each) in cells_of and each["ratio"]]
    return math.exp(np.mean(logs)) if logs else math.nan


def _lost_to(regime: str, bests: dict[tuple[str, float], str], marks: dict[str, str]) -> str:
    counts = collections.Counter(bests.values()).most_common()
    to = ", ".join(f"{marked([each], marks)[0]} ({count})" for each, count in counts)
    return f"**{regime}** ({', '.join(dict.fromkeys(name for name, _ in bests))}): lost to {to}"


def _stage(whole: float, *costs: float) -> str:
    """Which stage's noise it is, or none, by the cost as it is, without noise in each stage, and without any."""
    *quiet, nothing = costs
    if math.isnan(nothing):
        return "Its stages were not run apart."
    least = int(np.argmin(quiet))
    noise = f"the noise of {list(stages.STAGES.values())[least]}, without which {whole:.3g} become {quiet[least]:.3g}"
    if math.log(nothing) > math.log(whole) / 2:
        return f"Without any noise {nothing:.3g} are left, so most of it is what its steps find at best; then {noise}."
    return f"Without any noise {nothing:.3g} are left; the costliest is {noise}."
