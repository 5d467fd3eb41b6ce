"""Nearly all mutants that no test was written by are noticed, and so is every planted fault."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.scenes.repeatable_bytes import ANOTHER

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST, LEAST_OF_QUICK = 95.0, 90.0
"""Percent of the sampled mutants that a test must notice, and a quick test."""


@pytest.mark.nightly
def test_nearly_all_mutants_of_a_sample_are_noticed(tmp_path: pathlib.Path) -> None:
    """DAPPLE_TEST_BYTES draws another sample."""
    page = tmp_path / "mutants.md"
    words = ["--sample", "265", "--seed", os.environ.get(ANOTHER, "1"), "--write", str(page)]
    words += ["--log", str(tmp_path / "log" / "log.jsonl")]
    done = subprocess.run([sys.executable, "-m", "tests.mutants", *words], cwd=ROOT, check=False)
    assert done.returncode in (0, 1)
    share, quick = map(float, re.findall(r"\*\*([\d.]+)% are noticed", page.read_text()))
    assert share >= LEAST, page.read_text()
    assert quick >= LEAST_OF_QUICK, page.read_text()


@pytest.mark.nightly
def test_every_planted_fault_is_noticed() -> None:
    assert subprocess.run([sys.executable, "-m", "tests.planted_faults"], cwd=ROOT, check=False).returncode == 0
