"""Sets guarantee.md as a PDF of A4 pages at 11 pt: the site's build does, and `python docs/note.py FILE.pdf`."""

import pathlib
import re
import sys

MOST_PAGES = 12
NOTE = pathlib.Path(__file__).resolve().parent / "guarantee.md"
_MARKDOWN = "markdown-auto_identifiers-smart+lists_without_preceding_blankline"
_LOOK = """
#set page(paper: "a4", margin: (x: 24mm, y: 22mm), numbering: "1")
#set text(size: 11pt, font: "New Computer Modern")
#set par(justify: true)
#show raw: set text(size: 0.85em)
#show figure: set block(breakable: true)
#show table: set text(size: 8.5pt)
#show table: set par(justify: false)
#show table: set align(left)
#set table(inset: 4pt, stroke: 0.4pt)
"""
_PAGES = "\n#context [#metadata(counter(page).final().first()) <pages>]\n"
_CORE = re.compile(r"^(Core: .*?)$\n\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")
"""A link to another page, of which a PDF keeps the words."""


def write(path: pathlib.Path) -> int:
    """Writes the PDF and returns the number of its pages; raises ValueError if there are too many."""
    import pypandoc
    import typst

    body = pypandoc.convert_text(_LINK.sub(r"\1", NOTE.read_text()), "typst", format=_MARKDOWN)
    body = _CORE.sub(r"#block[#set par(justify: false)\n#set text(size: 10pt)\n\1]\n\n", body)
    source = (_LOOK + body + _PAGES).encode()
    pages = int(typst.query(source, "<pages>", field="value", one=True))
    if pages > MOST_PAGES:
        raise ValueError(f"{NOTE.name} must fit on {MOST_PAGES} pages, got {pages}; leave out what a referee can miss.")
    typst.compile(source, output=str(path))
    return pages


if __name__ == "__main__":
    sys.stdout.write(f"{write(pathlib.Path(sys.argv[1]))} pages\n")
