"""Lists results whose code has changed since they were drawn, or draws them again, the cheapest first.

A result is stale if the code that its command reaches has another digest than when it was drawn
(`benchmarks.measured_code` says what counts). The digest stands in the result's head. Of a result whose head has none,
the code of the commit that it names is compared, if that commit is here (otherwise it is lost) and nothing was changed
beside it (otherwise it is dirty). Results without a command and either of both are unnamed.

`--redraw` runs the command of every result that is not current: those whose seconds are known in their order, then the
others. Commands of figures come from `benchmarks.papers`, other ones from the result's head, as long as they read no
other files than those of `--data`; a new file is begun where finished runs are kept as JSON lines. A command that fails
leaves its result as it was. An interrupted call loses the one that runs, and may be repeated. It wants everything
committed but results.

    python -m benchmarks.stale --out benchmarks/results/states.md
    python -m benchmarks.stale --redraw --data DATA --seconds 300
"""

import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine, measurement
from benchmarks.measured_code import Code
from benchmarks.papers.figures import FIGURES, WORK
from benchmarks.papers.figures import seconds as seconds_of

RESULTS = Path(machine.RESULTS)
LIST = RESULTS / "states.md"
"""The list of all others."""
CURRENT = "current"
READ = {"--before", "--finished_only", "--only-kept", "--package", "--reference"}
"""Options by which it needs files that only the machine of the result had."""
_MODULE = r"python -m ((?:benchmarks|tests)[\w.]*)"


class Result(NamedTuple):
    """State of a result, why, what draws it again (nothing if nobody can say), and its seconds if they are known."""

    path: Path
    state: str
    why: str
    command: tuple[str, ...]
    seconds: float | None


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--redraw", action="store_true", help="run the commands of what is not current")
    parser.add_argument("--only", default="", metavar="REGEX", help="results whose path has it")
    parser.add_argument("--seconds", type=float, help="end a command that takes longer, and leave its result")
    parser.add_argument("--data", type=Path, help="folder of the files that benchmarks.data lists")
    arguments = parser.parse_args()
    found = list(results(arguments.only, arguments.data))
    if arguments.redraw:
        redraw(found, arguments.seconds)
        found = list(results(arguments.only, arguments.data))
    measurement.show([*machine.heading("States of results, and seconds"), *table(found)], arguments.out)


def results(only: str = "", data: Path | None = None) -> Iterator[Result]:
    """Every result whose path has a regular expression."""
    for path in sorted(set(RESULTS.rglob("*.md")) - {LIST}):
        if re.search(only, str(path.relative_to(RESULTS))):
            text = path.read_text()
            name = next((name for name, each in FIGURES.items() if RESULTS / (each.result or "") == path), "")
            took = seconds_of(name) if name else machine.took(text)
            yield Result(path, *judge(text), command(path, text, name, data), took)


def table(found: Sequence[Result]) -> list[str]:
    """Markdown lines: a result each, how many of each state, and what it would take to redraw them."""
    lines = ["| result | state | why | seconds | by `--redraw` |", "| --- " * 5 + "|"]
    states: dict[str, int] = {}
    for each in found:
        states[each.state] = states.get(each.state, 0) + 1
        took = "-" if each.seconds is None else f"{each.seconds:,.0f}"
        drawn = "yes" if each.command else "no"
        lines.append(f"| {each.path.relative_to(RESULTS)} | {each.state} | {each.why} | {took} | {drawn} |")
    old = [each for each in found if each.state != CURRENT]
    took_all = sum(each.seconds or 0.0 for each in old) / 60.0
    unknown = sum(each.seconds is None for each in old)
    lines += ["", ", ".join(f"{count} {state}" for state, count in sorted(states.items())) + "."]
    lines += [f"To redraw: {len(old)}, {took_all:.0f} minutes and {unknown} of unknown time."]
    known = [each.seconds for each in found if each.seconds is not None]
    return [*lines, f"All {len(found)}: {sum(known) / 60.0:.0f} minutes of the {len(known)} whose time is known."]


def redraw(found: Sequence[Result], limit: float | None) -> None:
    """Runs commands, the cheapest first.

    Raises:
      SystemExit: if more than results was changed since the last commit.
    """
    if machine.commit().endswith("-dirty"):
        raise SystemExit("everything but results must be committed, so that a result says what drew it; commit first.")
    old = [each for each in found if each.state != CURRENT and each.command]
    for each in sorted(old, key=lambda each: (each.seconds is None, each.seconds or 0.0)):
        with tempfile.TemporaryDirectory() as work:
            words = [work if word == WORK else word.replace(f"{WORK}/", f"{work}/") for word in each.command]
            try:
                code = str(
                    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, timeout=limit).returncode
                )
            except subprocess.TimeoutExpired:
                code = f"none after {limit:g} s"
        state, _ = judge(each.path.read_text())
        print(f"{each.path.relative_to(RESULTS)}: exit code {code}, {state}", file=sys.stderr, flush=True)


def judge(text: str) -> tuple[str, str]:
    """State of a result by its text, and why: current, stale, dirty, lost (an unknown commit) or unnamed."""
    command = re.search(_MODULE, text)
    code = re.search(r"^- code: ([0-9a-f]{16})$", text, re.MULTILINE)
    commit = re.search(r"^- commit: (?:\S*-g)?([0-9a-f]{7,40})(-dirty)?$", text, re.MULTILINE)
    if command is None or not (code or commit):
        return "unnamed", "-"
    now = digest("", command[1])
    if code:
        return (CURRENT, "-") if code[1] == now else ("stale", f"code {now}")
    assert commit is not None
    if commit[2]:
        return "dirty", commit[1]
    if not blobs(commit[1]):
        return "lost", commit[1]
    return (CURRENT, "-") if digest(commit[1], command[1]) == now else ("stale", f"since {commit[1]}")


def command(path: Path, text: str, name: str, data: Path | None) -> tuple[str, ...]:
    """Words after `python` that draw a result; none if its head does not say them all.

    Args:
      path: of the result.
      text: of the result.
      name: of the figure, or nothing.
      data: folder for `--data`.
    """
    if name:
        if FIGURES[name].needs_data and data is None:
            return ()
        return ("-m", "benchmarks.papers", "--draw", name, *(("--data", str(data)) if data else ()))
    head = re.match(rf"# .*\n\n- command: `{_MODULE}([^`]*)`\n", text)
    words = ["-m", head[1], *head[2].split()] if head else []
    if words[-2:] != ["--out", str(path)] or READ.intersection(words):
        return ()
    words = [f"{WORK}/{each}" if each.endswith(".jsonl") else each for each in words]
    if "--data" in words:
        if data is None:
            return ()
        words[words.index("--data") + 1] = str(data)
    return tuple(words)


@functools.cache
def digest(commit: str, module: str) -> str:
    """Of what a command measured at a commit, or measures today if there is none."""
    return code_at(commit).digest(module)


@functools.cache
def code_at(commit: str) -> Code:
    """The code of a commit, or of today."""
    if not commit:
        return Code.here()
    then = blobs(commit)
    return Code(lambda path: git("cat-file", "blob", then[path]) if path in then else None)


@functools.cache
def blobs(commit: str) -> dict[str, str]:
    """Objects of a commit by path; none if the commit is not here."""
    rows = (line.split(None, 3) for line in git("ls-tree", "-r", commit).splitlines())
    return {path: blob for _, _, blob, path in rows}


def git(*words: str) -> str:
    """What git prints, or nothing if it fails."""
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    main()
