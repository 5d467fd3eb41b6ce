"""Every number of `docs/figures.md` stands in the result that its row links, so the page says what was measured."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.*\]\(\.\./benchmarks/results/.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\]\((\.\./benchmarks/results/[\w/]+\.md)\)")
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w])")


def rows() -> list[tuple[str, str, list[Path]]]:
    text = (DOCS / "figures.md").read_text(encoding="utf-8")
    found = [
        (what, figure, [DOCS / link for link in _LINK.findall(links)]) for what, figure, links in _ROW.findall(text)
    ]
    assert len(found) == sum(bool(_LINK.search(line)) for line in text.splitlines() if line.startswith("|"))
    return found


@pytest.mark.parametrize(("what", "figure", "results"), rows())
def test_a_figure_stands_in_its_result(what, figure, results):
    measured = {number for result in results for number in _NUMBER.findall(result.read_text(encoding="utf-8"))}
    stated = _NUMBER.findall(figure)
    assert stated
    assert [number for number in stated if number not in measured] == []
