"""The page "In a Beam pipeline": its Python, piece by piece as one file."""

import re

import pytest

from tests.scenes import pages

pytestmark = pytest.mark.slow


def test_the_page_runs(tmp_path):
    said = pages.run(pages.ROOT / "docs/tutorials/beam.md", tmp_path)
    pairs = re.findall(r"\[ *(\d+\.\d?) +(\d+\.\d?) *\]", said)
    assert sorted((round(float(pulse) / 5), round(float(sleep))) for pulse, sleep in pairs[:2]) == [(13, 8), (20, 5)]
    assert "unit       record" in said
    assert len(re.findall(r"^dp_lloyd/\S+$", said, re.MULTILINE)) == 6
    assert (tmp_path / "model/report.html").exists()
    assert ", the window 1970-01-01T03:00:00Z to 1970-01-01T04:00:00Z, and all windows" in said
    assert len(list(tmp_path.glob("hour-*/report.html"))) == 4
