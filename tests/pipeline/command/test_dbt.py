"""The post-hook of dbt: its function without dbt, and the whole example where dbt-duckdb is installed.

`python -m tests.own_environments dbt` makes the environment; Dapple's own packages are not in it.
"""

import importlib.util
import json
import pathlib
import runpy
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "dbt"
HAS_DBT = all(importlib.util.find_spec(each) is not None for each in ("dbt", "duckdb"))
with_dbt = pytest.mark.skipif(not HAS_DBT, reason="dbt-duckdb is not installed; python -m tests.own_environments dbt")


@pytest.fixture
def hook(monkeypatch):
    """The function, with the base class of dbt's plugins stood in for."""
    if not HAS_DBT:
        plugins = types.SimpleNamespace(BasePlugin=object)
        monkeypatch.setitem(sys.modules, "dbt.adapters.duckdb.plugins", plugins)
    return runpy.run_path(str(EXAMPLE / "dapple_plugin.py"))["dapple"]


@pytest.fixture
def dapple(tmp_path, monkeypatch):
    """A `dapple` that notes its words and ends with a given code."""

    def make(code):
        lines = ["#!/bin/sh", f'echo "$@" >> {tmp_path / "words"}', """echo '{"epsilon": 1.5}'""", f"exit {code}\n"]
        (tmp_path / "dapple").write_text("\n".join(lines))
        (tmp_path / "dapple").chmod(0o755)
        monkeypatch.setenv("DAPPLE", str(tmp_path / "dapple"))

    return make


def test_the_function_runs_the_job(hook, dapple, tmp_path):
    dapple(0)
    assert json.loads(hook("fit", "job.yaml", str(tmp_path / "fit"), "one")) == {"epsilon": 1.5}
    assert (tmp_path / "words").read_text() == f"fit --config job.yaml --output {tmp_path}/fit --run_id one\n"


@pytest.mark.parametrize("code", [1, 3])
def test_a_job_that_fails_ends_the_model(hook, dapple, tmp_path, code):
    dapple(code)
    with pytest.raises(RuntimeError, match=f"ended with exit code {code}"):
        hook("fit", "job.yaml", str(tmp_path / "fit"), "one")


def test_a_run_that_is_done_is_not_run_again(hook, dapple, tmp_path):
    dapple(1)
    (tmp_path / "run.json").write_text('{"run_id": "one"}')
    assert json.loads(hook("fit", "job.yaml", str(tmp_path), "one"))["run_id"] == "one"
    with pytest.raises(RuntimeError, match="got run one"):
        hook("fit", "job.yaml", str(tmp_path), "two")
    assert not (tmp_path / "words").exists()


def test_the_example_says_what_it_lacks(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    from examples.dbt import __main__ as example

    monkeypatch.setattr(example, "OUTPUT", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "dbt", None)
    monkeypatch.setitem(sys.modules, "dbt.adapters.duckdb", None)
    assert example.main() == 3
    assert "pip install dbt-duckdb numpy first" in capsys.readouterr().err


@with_dbt
def test_dbt_runs_the_hook_once_for_one_run_id(tmp_path, monkeypatch, capfd):
    """By the very job: DAPPLE names a command of an environment with Dapple, as `own_environments` sets it."""
    monkeypatch.syspath_prepend(ROOT)
    from examples.dbt.__main__ import build, dbt

    for _ in range(2):
        assert build(tmp_path / "out", "one")
        manifests = list((tmp_path / "out" / "fit").glob("run.json"))
        assert json.loads(manifests[0].read_text())["run_id"] == "one"
    assert not build(tmp_path / "out", "two")
    assert dbt(tmp_path / "out", "show", "--inline", "SELECT count(*) AS n FROM {{ ref('centers') }}")
    assert "| 3 |" in capfd.readouterr().out
