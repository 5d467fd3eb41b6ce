"""A report as a reader has it: its text, its tables and its labels; nothing of the code that wrote it."""

import dataclasses
import html.parser
import pathlib
import re


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Content of a page.

    Attributes:
      text: all words, in order, one space between.
      labels: what `dt` and `dd` say.
      tables: each a list of rows of cells.
    """

    text: str
    labels: dict[str, str]
    tables: list[list[list[str]]]

    @classmethod
    def of(cls, path: pathlib.Path) -> "Page":
        """The page of a file."""
        reader = _Reader()
        reader.feed(path.read_text())
        return cls(
            text=" ".join("".join(reader.words).split()), labels=dict(reversed(reader.labels)), tables=reader.tables
        )

    @property
    def warnings(self) -> int:
        """Warnings that a reader sees in full."""
        return len(re.findall(r"\bWarning\b", self.text))

    def table(self, *heads: str) -> list[dict[str, str]]:
        """Rows of the first table whose heads begin so, by head; empty if there is none."""
        for rows in self.tables:
            if rows and tuple(rows[0][: len(heads)]) == heads:
                return [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]
        return []

    def after(self, pattern: str) -> list[str]:
        """Numbers that follow a pattern, as they are written; the pattern has no groups of its own."""
        return re.findall(rf"(?:{pattern})\s*((?:\d[\d,]*)(?:\.\d+)?(?:e[+-]?\d+)?)", self.text)


class _Reader(html.parser.HTMLParser):
    """Collects words, labels and tables."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.labels: list[tuple[str, str]] = []
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self._start = 0
        self._term = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr":
            return
        if tag == "table":
            self.tables.append([])
        if tag == "tr" and self.tables:
            self.tables[-1].append([])
        if tag in ("td", "th", "dt", "dd"):
            self._start = len(self.words)
        if tag in ("style", "script"):
            self._open.append(tag)
        self.words.append(" ")

    def handle_endtag(self, tag: str) -> None:
        cell = " ".join("".join(self.words[self._start :]).split())
        if tag in ("td", "th") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append(cell)
        if tag == "dt":
            self._term = cell
        if tag == "dd":
            self.labels.append((self._term, cell))
        if self._open and tag == self._open[-1]:
            self._open.pop()
        self.words.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.words.append(data)
