"""A table that is drawn piece by piece: rows that a run does not draw again stay, with the commit that drew them.

The first two cells of a row say which cell of the benchmark it is; the last three its draws, commit and code, as the
head of a result has them, code of zeros where nobody knows it. The head of a page that has rows of other code names
that, so such a page is not current.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Key = tuple[str, str]
ENDS = ("draws", "commit", "code")
_CODE = "- code: "


def rows_of(page: Path | None) -> dict[Key, list[str]]:
    """Cells of the rows of the first table of a page, by their first two; none without a page."""
    if page is None or not page.exists():
        return {}
    table = re.search(r"^\|.*\n\|[ |:-]+\|\n((?:\|.*\n)*)", page.read_text(), re.MULTILINE)
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in (table[1] if table else "").splitlines()]
    return {(cells[0], cells[1]): cells for cells in found}


def merged(
    heading: Sequence[str],
    words: str,
    columns: Sequence[str],
    drawn: Mapping[Key, Sequence[str]],
    draws: int,
    page: Path | None,
) -> list[str]:
    """Lines of the page with rows that were drawn in place of those that it had.

    Args:
      heading: of `machine.heading`.
      words: above the table.
      columns: of the table, without the last three.
      drawn: cells of each row by the first two, which they begin with.
      draws: of these rows.
      page: that holds the others; None for no others.
    """
    commit, code = (_told(heading, name) for name in ("commit", "code"))
    rows = rows_of(page) | {key: [*cells, str(draws), commit, code] for key, cells in drawn.items()}
    old = sorted({cells[-1] for cells in rows.values()} - {code})
    head = [f"{_CODE}{old[0]}" if line.startswith(_CODE) and old else line for line in heading]
    table = [*_lines([[*columns, *ENDS], ["---"] * (len(columns) + len(ENDS))]), *_lines(rows.values())]
    return [*head, words, "", *table, *_sections(page)]


def _told(heading: Sequence[str], name: str) -> str:
    return next(line.removeprefix(f"- {name}: ") for line in heading if line.startswith(f"- {name}: "))


def _lines(rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in rows]


def _sections(page: Path | None) -> list[str]:
    """What stands below the table: sections that no run draws."""
    text = page.read_text() if page is not None and page.exists() else ""
    found = re.search(r"^## ", text, re.MULTILINE)
    return ["", *text[found.start() :].splitlines()] if found else []
