"""Every question of `benchmarks/docs_questions.py` is answered by its page, and links lead there from the README."""

import dataclasses
import re

import pytest

from benchmarks import docs_questions
from benchmarks.docs_questions import QUESTIONS, find

FEWEST = 30
LONGEST = 45.0
"""Seconds of the model: an answer that takes longer is practically hidden."""


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.text)
def test_a_question_is_answered(question):
    assert find(question).seconds <= LONGEST


def test_newcomers_engineers_and_officers_ask():
    assert len({each.text for each in QUESTIONS}) == len(QUESTIONS) >= FEWEST
    for reader in ("newcomer", "engineer", "officer"):
        assert sum(each.reader == reader for each in QUESTIONS) >= FEWEST / 3


def test_the_results_have_every_question():
    text = (docs_questions.ROOT / "benchmarks" / "results" / "docs_questions.md").read_text()
    rows = re.findall(r"^\| (\w+) \| ([^|]+) \| `([^`]+)` \|", text, re.MULTILINE)
    assert rows == [(each.reader, each.text, each.page) for each in QUESTIONS]


def test_a_missing_answer_is_found():
    changed = dataclasses.replace(QUESTIONS[0], sentence="This sentence stands nowhere.")
    with pytest.raises(
        LookupError, match=re.escape("README.md must hold 'This sentence stands nowhere.' exactly once")
    ):
        find(changed)


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """A README with one link, a page behind it and one that no link reaches."""
    (tmp_path / "README.md").write_text("# Top\n\nSome words.\n\n- an item\n- see [a page](page.md#answers)\n")
    (tmp_path / "page.md").write_text(
        "# Page\n\n## Other\n\n## Answers\n\nA line of\nprose.\n\n```text\n# code\n```\n\nIt is so.\n"
    )
    (tmp_path / "island.md").write_text("# Island\n\nNobody comes.\n")
    monkeypatch.setattr(docs_questions, "ROOT", tmp_path)
    monkeypatch.setattr(docs_questions, "START", tmp_path / "README.md")
    docs_questions._ways.cache_clear()
    yield
    docs_questions._ways.cache_clear()


def asked(page, sentence):
    return docs_questions.Question(reader="newcomer", text="?", page=page, sentence=sentence)


def test_seconds_are_those_of_the_model(pages):
    way = find(asked("page.md", "It is so."))
    # Heading and two items up to the link, a click, the heading it leads to, three lines of prose, three of code.
    assert (way.clicks, way.seconds) == (1, 3 * 0.25 + 2.0 + 0.25 + 3 * 1.0 + 3 * 0.25)
    assert find(asked("README.md", "Some words.")).seconds == 0.25 + 1.0


def test_a_sentence_may_be_wrapped_but_not_stand_twice(pages):
    assert find(asked("page.md", "line of prose")).clicks == 1
    with pytest.raises(LookupError, match="exactly once"):
        find(asked("page.md", "A"))


def test_ways_that_cost_the_same_need_no_order(pages):
    """Of two ways of one length to one place, either will do."""
    folder = docs_questions.START.parent
    docs_questions.START.write_text("# Top\n\n[two](two.md) [two](two.md) [page](page.md)\n\n## Low\n")
    (folder / "two.md").write_text("# Two\n\n[page](page.md) [top](README.md) [here](#two)\n")
    (folder / "page.md").write_text("# Page\n\n[two](two.md) [low](README.md#low) [here](#page) It is so.\n")
    docs_questions.prose.cache_clear()
    assert find(asked("page.md", "It is so.")).clicks == 1


def test_a_page_without_a_way_is_found(pages):
    with pytest.raises(LookupError, match=r"links must lead from the README to island\.md"):
        find(asked("island.md", "Nobody comes."))
