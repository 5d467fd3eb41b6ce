"""How long it takes to find the answer to a question from the README, by a stated model of a reader.

A question has the page that answers it and the very sentence. The reader starts at the top of the README, knows the
right link when they see it, and takes the cheapest way over links. A click takes two seconds. Every heading, list item,
table row, line of code and line with a link that is passed on the way to the next link takes a quarter of a second. On
the page that answers, the reader passes headings alone, and then reads the section: a line of prose takes a second; a
list item, a row of a table or a line of code takes a quarter. So the figures are those of a reader who never takes a
wrong turn. They compare pages, and not people.
"""

import dataclasses
import functools
import heapq
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks.measurement import script, show

ROOT = pathlib.Path(__file__).resolve().parents[1]
START = ROOT / "README.md"
CLICK = 2.0
"""Seconds from one page to the next."""
GLANCE = 0.25
"""Seconds for a heading, a list item, a row of a table, or a line with a link."""
LINE = 1.0
"""Seconds for a line of prose in the section that answers."""
TESTED = ("yaml", "console", "sh", "bash", "shell", "python", "{code-cell}")
"""Languages of blocks that `tests/pipeline/command/test_docs_snippets.py` loads, looks up or reads."""

_LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = "    | "
"""What `prose` puts before a line of a block of code."""
_HEADING = re.compile(r"^#+ ")
_ITEM = re.compile(r"^\s*(?:[-*] |\d+\. |\|(?! ---))")
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a reader asks, and the sentence that answers it.

    Attributes:
      reader: newcomer, engineer or officer.
      text: the question.
      page: path of the page below the root of the repository.
      sentence: stands on that page once, but for white space.
    """

    reader: str
    text: str
    page: str
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The cheapest way to an answer: seconds, clicks, what was passed by, and the pages on the way."""

    seconds: float
    clicks: int
    passed: int
    way: tuple[str, ...]


def _of(reader: str, *rows: tuple[str, str, str]) -> tuple[Question, ...]:
    return tuple(Question(reader=reader, text=text, page=page, sentence=said) for text, page, said in rows)


QUESTIONS = (
    *_of(
        "newcomer",
        ("What is Dapple?", "README.md", "Dapple is differentially private k-means"),
        ("What do I need to install?", "README.md", "All you need is Python 3.11, 3.12 or 3.13."),
        (
            "How do I see it run?",
            "docs/start/five-minutes.md",
            "Then it clusters a small lake of census silos at epsilon 1.",
        ),
        ("How do I write a job?", "docs/start/five-minutes.md", "A job is a YAML file."),
        ("What does epsilon promise?", "docs/topics/promise.md", '"Almost" is a factor of at most e^epsilon'),
        ("What does it not promise?", "docs/topics/promise.md", "It hides no truth about groups."),
        (
            "Which epsilon shall I take?",
            "docs/how-to/choose-epsilon.md",
            "Take the smallest epsilon at which the curve is flat",
        ),
        (
            "Which delta?",
            "docs/how-to/choose-epsilon.md",
            "Choose delta much smaller than one over the number of units",
        ),
        ("How many clusters?", "docs/how-to/choose-the-number-of-clusters.md", "takes the elbow of the cost curve"),
        (
            "Which bounds may I use?",
            "docs/how-to/choose-bounds.md",
            "Write it from what you know without looking at the rows",
        ),
        ("Can I use it from pandas?", "docs/tutorials/dataframe.md", "from dapple_dp import DPKMeans"),
        (
            "May I scale my columns first?",
            "docs/tutorials/dataframe.md",
            "A scaler that learns from private rows is a release.",
        ),
        (
            "What does the report tell me?",
            "docs/how-to/read-the-report.md",
            "A whisker is the noise of a number, not the spread",
        ),
        ("What is a release?", "docs/reference/glossary.md", "A noised aggregate. It may be published."),
        (
            "Is it any better than what others have?",
            "docs/why-dapple.md",
            "clustering, Beam, roles that trust each other less",
        ),
    ),
    *_of(
        "engineer",
        ("Which files does a fit write?", "README.md", "every noised aggregate with its sensitivity and its noise"),
        (
            "What is in run.json?",
            "docs/reference/files.md",
            "null, or every parameter of the `encode` section, learned ones",
        ),
        ("What does exit code 3 mean?", "docs/reference/exit-codes.md", "The ledger refused the run. No row was read."),
        ("How do I run it every night?", "docs/how-to/schedule.md", "The script runs a date once."),
        (
            "How do I run it on Flink?",
            "docs/how-to/run-on-flink.md",
            "Start a pool of Python workers beside every TaskManager.",
        ),
        ("Has anybody run it on Dataflow?", "docs/how-to/run-on-dataflow.md", "**We have not run this.**"),
        ("Which extra reads S3?", "docs/how-to/use-s3.md", "pip install '.[aws]'"),
        (
            "A night was killed: what now?",
            "docs/how-to/schedule.md",
            "it resumes without a second charge if the",
        ),
        ("My clients are scattered over files", "docs/jobs/data.md", "If you fit often, then group once:"),
        ("What happens to nulls?", "docs/topics/units.md", "A row that has one is invalid."),
        ("Why does a retry not spend twice?", "docs/guarantee.md", "publishes the same numbers."),
        ("How do I add a protocol?", "docs/how-to/extend.md", "## Add a protocol"),
        ("How long do ten million rows take?", "benchmarks/results/runners.md", "| 10,000,000 rows | wall s"),
        ("Do cluster numbers last?", "docs/recurring.md", "Matched centers take over the numbers."),
    ),
    *_of(
        "officer",
        ("Who sees rows?", "docs/topics/trust.md", "With `noise_by: aggregator` the aggregator could subtract"),
        ("Who is the unit of protection?", "docs/topics/units.md", "A person with two ids is two units."),
        ("Do several runs add up?", "docs/topics/promise.md", "Two runs on your data promise e^(epsilon1 + epsilon2)."),
        (
            "Who enforces a yearly limit?",
            "docs/ledger.md",
            "It knows what every data set may spend, and what runs have spent.",
        ),
        (
            "What must never leave?",
            "docs/how-to/answer-your-officer.md",
            "rows, outputs of `assign`, `evaluate` and `sweep`, keys",
        ),
        ("What remains on disk?", "docs/how-to/answer-your-officer.md", "nothing but the output; a killed run leaves"),
        ("Where is the key?", "docs/sharp-edges.md", "By default the key is in the run's private staging folder"),
        ("What voids the guarantee?", "docs/sharp-edges.md", "Here are the ways to void the guarantee"),
        ("Is there a proof?", "docs/guarantee.md", "**Theorem.** For all neighbors D and D'"),
        ("Who has checked it besides you?", "docs/audit.md", "bounds the epsilon of a composition from both sides"),
        ("Can an attacker find one person?", "docs/topics/attack.md", "each sum alone has a stddev of more than 100"),
        ("How do I register the deployment?", "docs/how-to/file-a-registry-entry.md", "Replace every `unknown`."),
        ("What does the aggregator learn?", "docs/masked.md", "masked messages, who sent them (pseudonyms of a round)"),
        (
            "Does it do what the papers say?",
            "docs/papers.md",
            "This page says for each which parts are here as printed",
        ),
    ),
)


def main() -> None:
    """Prints the table, or says which question has no answer."""
    parser = script(__doc__)
    parser.add_argument("--build", action="store_true", help="build the site, too, and say how long that takes")
    options = parser.parse_args()
    show(report(build_seconds() if options.build else None), options.out)


def report(build: tuple[float, float] | None) -> list[str]:
    """Markdown lines: a row per question, then the sizes of the pages."""
    from benchmarks.machine import heading

    found = [(each, find(each)) for each in QUESTIONS]
    seconds = sorted(way.seconds for _, way in found)
    lines = heading("Questions and the seconds to their answers")
    lines += [*(__doc__ or "").strip().splitlines()[2:], ""]
    lines += [
        f"{len(found)} questions; median {seconds[len(seconds) // 2]:.1f} s, largest {seconds[-1]:.1f} s.",
        "",
        "| reader | question | page | way | clicks | passed | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each, way in found:
        figures = f"{way.clicks} | {way.passed} | {way.seconds:.1f}"
        lines.append(f"| {each.reader} | {each.text} | `{each.page}` | {' > '.join(way.way) or '-'} | {figures} |")
    pages = [START, *(ROOT / "docs").rglob("*.md")]
    snippets = sum(language in TESTED for page in pages for language, _ in _FENCE.findall(page.read_text()))
    lines += ["", f"- Blocks of code that tests load, look up or read: {snippets} on {len(pages)} pages."]
    lines += [f"- Lines of the README: {len(START.read_text().splitlines())}."]
    if build:
        lines += [
            f"- Building the site, notebooks executed: {build[0]:.0f} s on the wall, {build[1]:.0f} s of CPU time."
        ]
        lines += [f"  Load average meanwhile: {os.getloadavg()[0]:.1f}."]
    return lines


def build_seconds() -> tuple[float, float]:
    """Seconds of a build of the site from nothing, on the wall and of CPU time; needs what the site needs."""
    start, before = time.perf_counter(), os.times()
    with tempfile.TemporaryDirectory() as folder:
        words = ["-q", "-E", "-W", "--keep-going", "-b", "html", "-d", f"{folder}/doctrees", "docs", f"{folder}/html"]
        subprocess.run([sys.executable, "-m", "sphinx", *words], cwd=ROOT, check=True)
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return time.perf_counter() - start, cpu


def find(question: Question) -> Found:
    """The cheapest way from the README to the sentence.

    Raises:
      LookupError: if the sentence is not on its page exactly once, or no links lead there.
    """
    page = ROOT / question.page
    lines = prose(page)
    place = where(lines, question.sentence)
    if place is None:
        raise LookupError(f"{question.page} must hold {question.sentence!r} exactly once; correct one of them.")
    ways = (_read(way, lines, entry, place) for entry, way in _ways().items() if entry[0] == page)
    best = min(ways, key=lambda each: each.seconds, default=None)
    if best is None:
        raise LookupError(f"links must lead from the README to {question.page}; add one.")
    return best


def _read(way: Found, lines: tuple[str, ...], entry: tuple[pathlib.Path, int], place: int) -> Found:
    """The way to a page, and what is passed and read on it."""
    section = max((at for at in range(place + 1) if _HEADING.match(lines[at])), default=0)
    headings = sum(1 for at in range(entry[1], section + 1) if _HEADING.match(lines[at]))
    if section < entry[1]:
        headings = sum(1 for line in lines[: section + 1] if _HEADING.match(line))
    inside = [line for line in lines[section + 1 : place + 1] if line.strip()]
    glances = headings + sum(1 for line in inside if _ITEM.match(line))
    prose_lines = sum(1 for line in inside if not _ITEM.match(line))
    seconds = way.seconds + GLANCE * glances + LINE * prose_lines
    return dataclasses.replace(way, seconds=seconds, passed=way.passed + glances + prose_lines)


@functools.cache
def _ways() -> dict[tuple[pathlib.Path, int], Found]:
    """The cheapest way to every page and line on which a link lands; Dijkstra's algorithm."""
    done: dict[tuple[pathlib.Path, int], Found] = {}
    numbers = itertools.count(1)
    waiting = [(0.0, 0, START, 0, Found(seconds=0.0, clicks=0, passed=0, way=()))]
    while waiting:
        _, _, page, line, way = heapq.heappop(waiting)
        if (page, line) in done:
            continue
        done[page, line] = way
        for passed, target, at in links(page, line):
            seconds = way.seconds + GLANCE * passed + CLICK
            name = str(target.relative_to(ROOT))
            step = Found(seconds=seconds, clicks=way.clicks + 1, passed=way.passed + passed, way=(*way.way, name))
            heapq.heappush(waiting, (seconds, next(numbers), target, at, step))
    return done


def links(page: pathlib.Path, start: int) -> Iterator[tuple[int, pathlib.Path, int]]:
    """The text passed up to each link below a line of a page, the page it leads to, and the line there."""
    passed = 0
    for line in prose(page)[start:]:
        targets = _LINK.findall(line)
        passed += bool(targets or _HEADING.match(line) or _ITEM.match(line))
        for target in targets:
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if "://" not in target and path.suffix == ".md" and path.exists():
                yield passed, path, line_of(path, anchor)


def line_of(page: pathlib.Path, anchor: str) -> int:
    """The line of a heading with this anchor, as GitHub makes it; 0 without one."""
    for number, line in enumerate(prose(page)):
        made = re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).strip().replace(" ", "-")
        if anchor and (_HEADING.match(line) and made == anchor):
            return number
    return 0


@functools.cache
def prose(page: pathlib.Path) -> tuple[str, ...]:
    """Lines of a page; those of blocks of code are marked, and hold neither headings nor links."""
    lines, fenced = [], False
    for line in page.read_text().splitlines():
        edge = line.startswith("```")
        lines.append(f"{CODE}{line}".replace("](", "] (") if fenced or edge else line)
        fenced ^= edge
    return tuple(lines)


def where(lines: tuple[str, ...], sentence: str) -> int | None:
    """The line on which a sentence ends that the lines hold exactly once, however they are wrapped; else None."""
    words = [(word, number) for number, line in enumerate(lines) for word in line.removeprefix(CODE).split()]
    text = " ".join(word for word, _ in words)
    wanted = " ".join(sentence.split())
    if text.count(wanted) != 1:
        return None
    end = text.index(wanted) + len(wanted)
    return words[text[: end - 1].count(" ")][1]


if __name__ == "__main__":
    main()
