"""Each annoyance of a first hour that was mended has a test that is there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = (ROOT / "benchmarks" / "results" / "annoyances.md").read_text(encoding="utf-8")
LINES = [line for line in TABLE.splitlines() if line.startswith("| ")][2:]


def test_there_are_many():
    assert len(LINES) >= 37


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[2:40])
def test_an_annoyance_names_a_test_that_is_there(line):
    (test,) = re.findall(r"`(tests/[^`]*)` \|$", line)
    path, _, name = test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
