"""The page "In a Beam pipeline": its Python, piece by piece as one file."""

import os
import re
import subprocess
import sys

import pytest

from tests.scenes.terminal import ROOT

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs/tutorials/beam.md").read_text()
PIECES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_runs(tmp_path):
    (tmp_path / "page.py").write_text("\n".join(PIECES))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pairs = re.findall(r"\[ *(\d+\.\d?) +(\d+\.\d?) *\]", done.stdout)
    assert sorted((round(float(pulse) / 5), round(float(sleep))) for pulse, sleep in pairs[:2]) == [(13, 8), (20, 5)]
    assert "unit       record" in done.stdout
    assert len(re.findall(r"^dp_lloyd/\S+$", done.stdout, re.MULTILINE)) == 6
    assert (tmp_path / "model/report.html").exists()
    assert ", the window 1970-01-01T03:00:00Z to 1970-01-01T04:00:00Z, and all windows" in done.stdout
    assert len(list(tmp_path.glob("hour-*/report.html"))) == 4
