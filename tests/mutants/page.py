"""The results as a page: a row for each room, and one for each mutant that no test noticed."""

import collections
import dataclasses
import math

from benchmarks import machine
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.trial import CRASH, NO_END, Outcome


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Counts of a room.

    Attributes:
      lines: that count.
      mutants: of these lines.
      outcomes: of those that were tried.
    """

    lines: int
    mutants: int
    outcomes: list[Outcome]

    @property
    def equivalent(self) -> int:
        """Mutants that were tried, not noticed, and explained."""
        return sum(each.noticed_by is None and each.name in EQUIVALENT for each in self.outcomes)

    @property
    def killed(self) -> int:
        """Mutants that a test noticed."""
        return sum(each.noticed_by is not None for each in self.outcomes)

    @property
    def killed_by_quick(self) -> int:
        """Mutants that a quick test noticed."""
        return sum(each.noticed_by is not None and each.quick for each in self.outcomes)

    @property
    def counted(self) -> int:
        """Mutants that count: all but equivalent ones."""
        return len(self.outcomes) - self.equivalent


def interval(scores: list[Score], quick: bool = False) -> tuple[float, float, float]:
    """Share of mutants that are noticed, and its interval of 95%.

    Rooms count by their numbers of mutants. Within each, the share is taken as (killed + 1) / (tried + 2) for the
    variance, so that a room without survivors is not taken for certain; a room that was tried as a whole has none.

    Args:
      scores: of rooms.
      quick: counts those that quick tests notice.
    """
    total = sum(each.mutants for each in scores)
    share, variance = 0.0, 0.0
    for each in scores:
        killed = each.killed_by_quick if quick else each.killed
        share += each.mutants / total * killed / max(1, each.counted)
        careful, missing = (killed + 1) / (each.counted + 2), 1.0 - len(each.outcomes) / each.mutants
        variance += (each.mutants / total) ** 2 * careful * (1.0 - careful) / max(1, each.counted) * missing
    spread = 1.96 * math.sqrt(variance)
    return share, max(0.0, share - spread), min(1.0, share + spread)


def page(scores: dict[str, Score], minutes: float) -> str:
    """The results as Markdown.

    Args:
      scores: by room.
      minutes: of processors that it took; 0 if that is not known.
    """
    done = [each for each in scores.values() if each.outcomes]
    all_, quick = (
        f"{share:.1%} are noticed** by {tests}(95% interval {low:.1%} to {high:.1%})"
        for tests, (share, low, high) in (
            ("a test of their room ", interval(done)),
            ("a quick one ", interval(done, quick=True)),
        )
    )
    missing = ", ".join(room for room, each in scores.items() if not each.outcomes)
    untried = f" Not tried yet, and not in this figure: {missing}." if missing else ""
    tried = sum(len(each.outcomes) for each in scores.values())
    total, lines = (sum(getattr(each, name) for each in scores.values()) for name in ("mutants", "lines"))
    spent = f"{minutes:.0f} minutes of processors" if minutes else "minutes unknown"
    kind = "all" if tried == total else "a random sample, stratified by room"
    text = [
        *machine.heading("Mutants"),
        f"{lines} lines must be right for epsilon (the rule is in `tests/mutants/lines.py`), with {total} mutants. "
        f"{tried} were tried, {kind}. Of those that are not equivalent, **{all_} and **{quick}; "
        f"rooms count by their numbers of mutants.{untried} It took {spent}.",
        "",
        "A mutant is tried by the tests that execute its line, at most 20 seconds of them, with all their examples: "
        "quick ones first, slow ones if these miss it. "
        "What notices it must fail alone, too, and pass without the change. All else counts as not noticed, "
        f"so the share is a lower bound. {_ended(scores)}",
        "",
        "| room | lines | mutants | tried | noticed | by quick tests | equivalent | not noticed |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {room} | {each.lines} | {each.mutants} | {len(each.outcomes)} | {each.killed} | "
            f"{each.killed_by_quick} | {each.equivalent} | {each.counted - each.killed} |"
            for room, each in scores.items()
        ),
    ]
    text += ["", "## Not noticed", "", "| mutant | tests that execute it | reason |", "| --- | --- | --- |"]
    text += [
        f"| {_cell(each.name)} | {each.n_tests} | {_reason(each)} |"
        for score in scores.values()
        for each in score.outcomes
        if each.noticed_by is None
    ]
    busy = collections.Counter(
        each.noticed_by.split("::")[0]
        for score in scores.values()
        for each in score.outcomes
        if each.noticed_by is not None and "::" in each.noticed_by
    )
    text += ["", "## Which files notice most", "", "| file | mutants |", "| --- | --- |"]
    text += [f"| `{path}` | {number} |" for path, number in busy.most_common(12)]
    return "\n".join([*text, ""])


def _ended(scores: dict[str, Score]) -> str:
    """Returns how many were noticed since a test had no end, or its process crashed."""
    kinds = collections.Counter(outcome.noticed_by for each in scores.values() for outcome in each.outcomes)
    return (
        f"{kinds[NO_END]} of the noticed had no end within 6 seconds of processors and 20 times those of the test, and "
        f"{kinds[CRASH]} ended their process."
    )


def _reason(outcome: Outcome) -> str:
    open_ = "open: missed by quick tests, and slow ones were not asked" if outcome.quick else "open"
    return EQUIVALENT.get(outcome.name, open_)


def _cell(name: str) -> str:
    text = name if len(name) < 240 else f"{name[:160]} ... {name[-70:]}"
    return f"`` {text} ``".replace("|", "\\|")
