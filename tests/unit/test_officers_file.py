"""The officer's file of a federation names functions, lemmas and tests that exist."""

import re

from tests.scenes import officer
from tests.unit.test_guarantee import NOTE, ROOT, defined

LEMMAS = re.compile(r"(?:algorithm|lemma|proposition) \d+")
PARTS = {"theorem": "**Theorem.**", "what is assumed": "## What is assumed"}
PARTS["what the proof does not cover"] = "## What the proof does not cover"
SAID = re.sub(r"\s+", " ", NOTE.read_text())


def test_each_row_names_code_that_exists():
    rows = officer.listed()
    assert len(rows) > 100
    named = [(row.sentence, *each.split(":")) for row in rows for each in row.code.split("; ")]
    assert [each for each in named if each[2] not in defined(each[1])] == []


def is_there(proof):
    """Whether the note has a lemma of this name, or the tests have this file and function."""
    if LEMMAS.fullmatch(proof):
        return re.search(rf"\*+{proof.capitalize()}\b", SAID) is not None
    if proof in PARTS:
        return PARTS[proof] in SAID
    path, _, name = proof.partition("::")
    return (ROOT / path).exists() and (not name or f"def {name}(" in (ROOT / path).read_text())


def test_each_row_names_a_lemma_or_a_test_that_exists():
    assert [
        (row.sentence, each) for row in officer.listed() for each in row.proof.split("; ") if not is_there(each)
    ] == []
    assert not is_there("lemma 99")
    assert not is_there("tests/unit/test_guarantee.py::test_nothing")


def test_no_sentence_has_two_rows():
    sentences = [officer.plain(row.sentence) for row in officer.listed()]
    assert sorted(sentences) == sorted(set(sentences))
