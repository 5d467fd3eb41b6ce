"""`./run_local.sh test` runs the quick tests, `test all` the slow ones as well, and `test nightly` the rest."""

import os
import pathlib
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from tests import conftest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ON_ALL_CORES = ["-n", "auto", "--dist", "loadfile", "-rs"]


def words(folder, *asked, **variables):
    """Arguments that the script gives to Python, in a copy whose environment is there and whose Python prints them."""
    python = folder / ".venv" / "bin" / "python"
    if not python.exists():
        python.parent.mkdir(parents=True)
        script = re.sub(r"^    set_up dev$", "    :", (ROOT / "run_local.sh").read_text(), flags=re.MULTILINE)
        (folder / "run_local.sh").write_text(script)
        shutil.copymode(ROOT / "run_local.sh", folder / "run_local.sh")
        python.write_text('#!/bin/sh\nprintf "%s\\n" ${PYTHONDONTWRITEBYTECODE:+uncompiled} "$@"\n')
        os.chmod(python, 0o755)
    script, env = folder / "run_local.sh", os.environ | variables
    done = subprocess.run([script, "test", *asked], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("clone")


@pytest.mark.parametrize(
    ("asked", "tier"),
    [
        ([], "not slow and not nightly"),
        (["quick"], "not slow and not nightly"),
        (["all"], "not nightly"),
        (["nightly"], "nightly"),
    ],
)
def test_a_tier_runs_on_all_cores(folder, asked, tier):
    assert words(folder, *asked) == ["-m", "pytest", "-m", tier, *ON_ALL_CORES]


def test_parts_are_left_to_pytest(folder):
    parts = ["tests/unit", "-k", "two words"]
    assert words(folder, *parts) == ["-m", "pytest", *parts]
    assert words(folder, "all", *parts) == ["-m", "pytest", "-m", "not nightly", *parts]


def test_compiled_files_are_kept(folder):
    """Images for containers often say that they are not, and each process would rewrite all tests."""
    assert words(folder, "tests/unit", PYTHONDONTWRITEBYTECODE="1") == ["-m", "pytest", "tests/unit"]


def test_a_submission_runs_all():
    assert "./run_local.sh test all\n" in (ROOT / ".ci" / "run").read_text()


class Item:
    """A test with markers."""

    def __init__(self, *marks):
        self.path, self.nodeid = pathlib.Path("a"), f"a::{'-'.join(marks)}"
        self._marks = [SimpleNamespace(name=mark) for mark in marks]

    def iter_markers(self):
        return iter(self._marks)


def test_a_test_is_in_one_tier():
    conftest.pytest_collection_modifyitems([Item(), Item("slow"), Item("nightly", "runner"), Item("slow", "slow")])
    with pytest.raises(pytest.UsageError, match="must be in one tier, got slow and nightly on a::slow-nightly"):
        conftest.pytest_collection_modifyitems([Item("slow"), Item("slow", "nightly")])
