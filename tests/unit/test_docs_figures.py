"""Numbers that pages quote stand in the results that their row or paragraph links, so pages say what was measured.

Figures that were measured once stand on the page of the decisions that keeps them.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.figures import FIGURES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
COVERAGE = ROOT / "benchmarks" / "papers" / "coverage.md"
PAGES = [
    ROOT / "README.md",
    COVERAGE,
    *(each for each in sorted(DOCS.rglob("*.md")) if each.parent.name != "decisions"),
]
"""A decision quotes what was measured on its day; its text keeps the figures."""
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.*\]\(.+\.md\)) \|$", re.MULTILINE)
_LINK = re.compile(r"\]\([./]*(benchmarks/(?:results|reference)/[\w/]+\.(?:md|json))\)")
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w])")
_DECIMAL = re.compile(r"(?<![\w.,])\d*\.\d+(?![\w.])")
_FIGURE = re.compile(r"`([a-z0-9-]+)`")


def rows() -> list[tuple[str, str, list[Path]]]:
    text = (RESULTS / "figures.md").read_text(encoding="utf-8")
    found = [
        (what, figure, [RESULTS / link for link in re.findall(r"\]\((.+?)\)", links)])
        for what, figure, links in _ROW.findall(text)
    ]
    assert len(found) == sum("](" in line for line in text.splitlines() if line.startswith("|"))
    return found


@pytest.mark.parametrize(("what", "figure", "results"), rows())
def test_a_figure_stands_in_its_result(what, figure, results):
    measured = {number for result in results for number in _NUMBER.findall(result.read_text(encoding="utf-8"))}
    stated = _NUMBER.findall(figure)
    assert stated
    assert [number for number in stated if number not in measured] == []


def parts(text: str) -> list[str]:
    """Rows of tables, items of lists and paragraphs; blocks of code are none."""
    found = []
    for block in re.split(r"\n\s*\n", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        found += re.split(r"\n", block) if block.startswith("|") else re.split(r"\n(?=\s*- )", block)
    return found


def unmeasured(part: str, figures: bool = False) -> tuple[list[str], int]:
    """Decimals of a part that stand in none of the results that it links, and how many decimals there are.

    A result may have more digits, and a share may be a percentage.
    """
    links = {ROOT / link for link in _LINK.findall(part)}
    if figures:
        named = (FIGURES[name].result for name in _FIGURE.findall(part) if name in FIGURES)
        links |= {RESULTS / result for result in named if result}
    text = "\n".join(link.read_text(encoding="utf-8") for link in sorted(links)).replace(",", "")
    measured = np.array([float(number) for number in re.findall(r"\d*\.\d+(?:e-?\d+)?|\d+", text)])
    stated = (
        _DECIMAL.findall(re.sub(r"\]\([^)]*\)|`[^`]*`|Python 3\.\d+(?:(?:, | or )3\.\d+)*", "", part)) if links else []
    )
    return [number for number in stated if not _stands(number, measured)], len(stated)


def _stands(number: str, measured: np.ndarray) -> bool:
    half = 0.5000001 * 10.0 ** -len(number.partition(".")[2])
    scaled = measured[:, None] * np.array([1.0, 100.0, 0.01])
    return bool((np.abs(scaled - float(number)) <= half).any())


def test_every_decimal_of_a_page_stands_in_a_result_beside_it():
    faults, count = [], 0
    for page in PAGES:
        for part in parts(page.read_text(encoding="utf-8")):
            missing, stated = unmeasured(part, figures=page.name in ("papers.md", COVERAGE.name))
            faults += [f"{page.relative_to(ROOT)}: {', '.join(missing)} in {part[:100]}"] if missing else []
            count += stated
    assert faults == []
    assert count > 200


def test_a_planted_decimal_is_found():
    link = "[result](../benchmarks/results/scale.md)"
    assert unmeasured(f"It takes 141.6 s ({link}).") == ([], 1)
    assert unmeasured(f"It takes 8675.309 ms ({link}).") == (["8675.309"], 1)
    assert unmeasured("Without a result 8675.309 is a number of its own.") == ([], 0)
    once = "[measured](../benchmarks/results/measured_once.md)"
    assert unmeasured(f"On Python 3.12 the tree costs 0.00013 ({once}).") == ([], 1)
    assert unmeasured(f"The tree costs 8675.309 ({once}).") == (["8675.309"], 1)
