"""Results that noise decides hold for other bytes than those that tests draw on every submission."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.scenes.repeatable_bytes import ANOTHER

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.nightly
@pytest.mark.parametrize("other", ["2", "3"])
def test_laws_hold_for_other_bytes(other: str) -> None:
    words = [sys.executable, "-m", "pytest", "-m", "not nightly", "tests/statistical", "tests/property"]
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | {ANOTHER: other}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
