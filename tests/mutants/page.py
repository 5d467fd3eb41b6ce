"""The results as a page: a row for each room, and one for each mutant that no test noticed."""

import collections
import dataclasses
import datetime
import math
import os
import platform
import re
from collections.abc import Collection

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.trial import CRASH, NO_END, Outcome


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Counts of a room.

    Attributes:
      lines: that count.
      mutants: of these lines.
      outcomes: of those that were tried.
      sample: of which they are, and when.
    """

    lines: int
    mutants: int
    outcomes: list[Outcome]
    sample: str = ""

    @property
    def equivalent(self) -> int:
        """Those that were tried, not noticed, and explained."""
        return sum(each.noticed_by is None and each.name in EQUIVALENT for each in self.outcomes)

    @property
    def killed(self) -> int:
        """Those that a test noticed."""
        return sum(each.noticed_by is not None for each in self.outcomes)

    @property
    def counted(self) -> int:
        """Those that count: all but equivalent ones."""
        return len(self.outcomes) - self.equivalent


def interval(scores: list[Score]) -> tuple[float, float, float]:
    """Share of mutants that are noticed, and its interval of 95%.

    Rooms count by their numbers of mutants. Within each, the share is taken as (killed + 1) / (tried + 2) for the
    variance, so that a room without survivors is not taken for certain; a room that was tried as a whole has none.
    """
    total = sum(each.mutants for each in scores)
    share = sum(each.mutants * each.killed / max(1, each.counted) for each in scores) / total
    variance = 0.0
    for each in scores:
        careful, missing = (each.killed + 1) / (each.counted + 2), 1.0 - len(each.outcomes) / each.mutants
        variance += (each.mutants / total) ** 2 * careful * (1.0 - careful) / max(1, each.counted) * missing
    spread = 1.96 * math.sqrt(variance)
    return share, max(0.0, share - spread), min(1.0, share + spread)


def remembered(text: str, room: str, files: Collection[str]) -> tuple[list[Outcome], str]:
    """Outcomes of a room by a page, and of which sample they are; those that were noticed have no names there.

    Args:
      text: of the page.
      room: its name.
      files: whose mutants are those of the room.
    """
    row = re.search(rf"^\| {room} \|(?: \d+ \|){{2}} (\d+) \| (\d+) \|(?: \d+ \|){{2}}(.*)$", text, re.MULTILINE)
    if row is None:
        return [], ""
    survivors = [
        Outcome(name.replace("\\|", "|"), None, int(n_tests), 0.0, quick=reason.endswith("others were not asked"))
        for name, n_tests, reason in re.findall(r"^\| `` (.*) `` \| (\d+) \| (.*) \|$", text, re.MULTILINE)
        if name.partition(":")[0] in files
    ]
    kills = [Outcome("", "an earlier run", 1, 0.0)] * (int(row[1]) - len(survivors))
    head = re.search(r"^(\S+), `python -m tests.mutants ?(.*?)`", text, re.MULTILINE)
    return survivors + kills, row[3].strip(" |") or (f"{head[2]}, {head[1]}" if head else "")


def page(scores: dict[str, Score], command: str, minutes: float, looked: dict[str, Score]) -> str:
    """The results as Markdown.

    Args:
      scores: by room.
      command: that gave them.
      minutes: of processors that it took; 0 if that is not known.
      looked: those of a sample by which tests were written; empty if there was none.
    """
    share, low, high = interval([each for each in scores.values() if each.outcomes])
    missing = ", ".join(room for room, each in scores.items() if not each.outcomes)
    untried = f" Not tried yet, and not in this figure: {missing}." if missing else ""
    tried = sum(len(each.outcomes) for each in scores.values())
    total, lines = (sum(getattr(each, name) for each in scores.values()) for name in ("mutants", "lines"))
    spent = f"{minutes:.0f} minutes of processors with all runs before it" if minutes else "minutes unknown"
    today = datetime.datetime.now(datetime.UTC).date()
    kind = "all" if tried == total else "a stratified random sample"
    text = [
        "# Mutants",
        "",
        f"{lines} lines must be right for epsilon (the rule is in `tests/mutants/lines.py`), with {total} mutants. "
        f"{tried} were tried, {kind}. Of those that are not equivalent, **{share:.1%} are noticed** by a "
        f"test of their room (95% interval {low:.1%} to {high:.1%}; rooms count by their numbers of mutants)."
        + untried,
        "",
        f"{today}, `{command}`, AMD EPYC, {os.cpu_count()} cores, 24 GiB, Linux, Python {platform.python_version()}; "
        f"{spent}. Other processes shared the machine.",
        "",
        "A mutant is tried by the tests that execute its line, at most 20 seconds of them, with all their examples. "
        "What notices it must fail alone, too, and pass without the change. All else counts as not noticed, "
        f"so the share is a lower bound. {_ended(scores)}",
        "",
        *_table(scores),
    ]
    if looked:
        share, low, high = interval([each for each in looked.values() if each.outcomes])
        text += ["", "## The sample by which tests were written", ""]
        text += [f"What it left was looked at, so its share of {share:.1%} says little of the others.", ""]
        text += _table({room: each for room, each in looked.items() if each.outcomes})
    text += ["", "## Not noticed", "", "| mutant | tests that execute it | reason |", "| --- | --- | --- |"]
    survivors = {
        each.name: each
        for score in (*scores.values(), *looked.values())
        for each in score.outcomes
        if each.noticed_by is None
    }
    text += [f"| {_cell(each.name)} | {each.n_tests} | {_reason(each)} |" for each in survivors.values()]
    busy = collections.Counter(
        each.noticed_by.split("::")[0]
        for score in scores.values()
        for each in score.outcomes
        if each.noticed_by is not None and "::" in each.noticed_by
    )
    text += ["", "## Which files notice most", "", "| file | mutants |", "| --- | --- |"]
    text += [f"| `{path}` | {number} |" for path, number in busy.most_common(12)]
    return "\n".join([*text, ""])


def _table(scores: dict[str, Score]) -> list[str]:
    text = ["| room | lines | mutants | tried | noticed | equivalent | not noticed | sample |"]
    text += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    return text + [
        f"| {room} | {each.lines} | {each.mutants} | {len(each.outcomes)} | {each.killed} | {each.equivalent} | "
        f"{each.counted - each.killed} | {each.sample} |"
        for room, each in scores.items()
    ]


def _ended(scores: dict[str, Score]) -> str:
    """How many were noticed since a test had no end, or its process crashed."""
    kinds = collections.Counter(outcome.noticed_by for each in scores.values() for outcome in each.outcomes)
    return (
        f"{kinds[NO_END]} of the noticed had no end within 6 seconds of processors and 20 times those of the test, and "
        f"{kinds[CRASH]} ended their process."
    )


def _reason(outcome: Outcome) -> str:
    open_ = "open: missed by unit tests, and others were not asked" if outcome.quick else "open"
    return EQUIVALENT.get(outcome.name, open_)


def _cell(name: str) -> str:
    text = name if len(name) < 240 else f"{name[:160]} ... {name[-70:]}"
    return f"`` {text} ``".replace("|", "\\|")
