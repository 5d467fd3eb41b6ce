"""The site's search finds what a newcomer types; the build of the site looks into the index that it has made."""

import importlib.util
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASKED = {
    "csv": "tutorials/csv",
    "install": "start/install",
    "pandas": "tutorials/dataframe",
    "polars": "tutorials/dataframe",
}
"""What must be found whatever else is."""


def load():
    spec = importlib.util.spec_from_file_location("searched", ROOT / "docs" / "searched.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


searched = load()


@pytest.mark.parametrize(("word", "page"), ASKED.items())
def test_a_word_of_newcomers_has_its_page(word, page):
    assert searched.WORDS[word] == page


@pytest.mark.parametrize(("word", "page"), searched.WORDS.items())
def test_a_page_that_is_found_holds_the_word(word, page):
    """The reader finds the word on the page that the index leads to; and the page is marked, once."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert word in text.lower()
    assert searched.marked(page, text).count("```{index}") == 1
    assert f"! {word}" in searched.marked(page, text)


def test_marks_stand_below_the_heading(tmp_path):
    assert searched.marked("start/install", "# Install\n\nText.\n").startswith("# Install\n\n```{index} ! install")
    assert searched.marked("nowhere", "# Page\n\nText.\n") == "# Page\n\nText.\n"


def index_of(folder, entries):
    """Writes an index as Sphinx does; entries are lists of (page, whether main)."""
    pages = sorted({page for found in entries.values() for page, _ in found})
    written = {word: [[pages.index(page), "index-0", main] for page, main in found] for word, found in entries.items()}
    text = json.dumps({"docnames": pages, "indexentries": written})
    (folder / "searchindex.js").write_text(f"Search.setIndex({text})")


def test_a_word_that_the_index_loses_is_found(tmp_path):
    right = {word: [(page, True)] for word, page in searched.WORDS.items()}
    index_of(tmp_path, right | {"fit() (a method)": [("reference/api", False)]})
    assert searched.lost_words(tmp_path) == []
    for wrong in ([], [("index", True)], [("start/install", False)], [("index", True), ("start/install", True)]):
        index_of(tmp_path, right | {"install": wrong})
        assert searched.lost_words(tmp_path) == ["install"]
