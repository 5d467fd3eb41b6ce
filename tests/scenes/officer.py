"""What the files of a federation say, sentence by sentence, and the table of what makes each sentence true."""

import csv
import html
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from tests.scenes.sentences import ROOT

TABLE = ROOT / "docs" / "how-to" / "officers-file.csv"
_NUMBER = re.compile(r"\d[\d,.]*(?<=\d)([abe][-+]?\d+)?")
_RUN = re.compile(r"\b\d{8}T\d{6}Z-[0-9a-f]{8}\b|\b[0-9a-f]{64}\b|\b\d{4}-\d\d-\d\d\b")


class Row(NamedTuple):
    """A line of the table.

    Attributes:
      file: label, entry, page or ledger.
      sentence: as one run has it.
      code: the function that makes it true, as path:name; those that stand for it where there are several.
      proof: what proves it, or the test that fails where it isn't so; both may be several.
    """

    file: str
    sentence: str
    code: str
    proof: str


def plain(text: str) -> str:
    """A sentence without the numbers and names of one run."""
    return _NUMBER.sub("#", _RUN.sub("#", re.sub(r"\s+", " ", text).strip(" .;")))


def listed() -> list[Row]:
    """The committed table."""
    with TABLE.open(newline="") as file:
        return [Row(*line) for line in list(csv.reader(file))[1:]]


def stated(result: pathlib.Path, ledger: str) -> dict[str, str]:
    """Every sentence and every name of a number, without the numbers, and the file that says it first.

    Args:
      result: the folder that a federation publishes.
      ledger: what `dapple ledger show` prints of the aggregator's ledger.
    """
    page = (result / "report.html").read_text()
    entry = yaml.safe_load((result / "deployment.yaml").read_text())
    said = {
        "label": [*_label(page), *_leaves(json.loads((result / "privacy.json").read_text())["masked"])],
        "entry": list(_leaves(entry)),
        "page": list(_page(page)),
        "ledger": [line for line in ledger.splitlines() if not line.startswith("{")],
    }
    found: dict[str, str] = {}
    for file, texts in said.items():
        for text in texts:
            for sentence in map(plain, re.split(r"(?<=[.;]) (?=[A-Z])", re.sub(r"\s+", " ", text).strip())):
                if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= _LEAST:
                    found.setdefault(sentence, file)
    return found


_LEAST = 3
"""Fewer words are a name or the value of a setting."""


def _leaves(content: Any) -> Iterator[str]:
    """Texts of nested content."""
    for each in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _leaves(each)
    if isinstance(content, str):
        yield content


def _text(marked: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", marked))


def _pairs(marked: str) -> Iterator[str]:
    for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", marked, re.DOTALL):
        library = re.fullmatch(r"\d[\d.]*\w*", value) is not None
        yield f"Version of each library: {value}" if library else f"{_text(name)}: {_text(value)}"


def _label(page: str) -> Iterator[str]:
    (label,) = re.findall(r'<section class="label".*?</section>', page, re.DOTALL)
    yield from (
        f"Figure of the label: {_text(figure)}" for figure in re.findall(r'<p class="figure.*?</p>', label, re.DOTALL)
    )
    yield from _pairs(label)
    yield from map(_text, re.findall(r'<p class="meaning">(.*?)</p>', label, re.DOTALL))


def _page(page: str) -> Iterator[str]:
    page = re.sub(r'<style.*?</style>|<svg.*?</svg>|<section class="label".*?</section>', "", page, flags=re.DOTALL)
    yield from _pairs(page)
    yield from (f"Column of a table: {_text(name)}" for name in re.findall(r'<th scope="col".*?</th>', page))
    for mark in ("p", "figcaption"):
        yield from map(_text, re.findall(rf"<{mark}(?: [^>]*)?>(.*?)</{mark}>", page, re.DOTALL))
