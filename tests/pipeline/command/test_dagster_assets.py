"""The asset for Dagster: its function with Dagster stood in for, and the asset itself where Dagster is installed."""

import importlib.util
import json
import pathlib
import runpy
import sys
import types

import pytest

SCHEDULE = pathlib.Path(__file__).resolve().parents[3] / "schedule"
DATE = "2026-11-20"


class FailedError(Exception):
    """Dagster's `Failure`."""

    def __init__(self, description, *, allow_retries=True):
        super().__init__(description)
        self.allow_retries = allow_retries


def asset_stub(**_):
    return lambda function: function


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The file, for a `dapple` that ends with a given code."""
    stub = types.SimpleNamespace(
        asset=asset_stub,
        DailyPartitionsDefinition=dict,
        RetryPolicy=dict,
        AssetExecutionContext=object,
        MaterializeResult=dict,
        Failure=FailedError,
        Definitions=dict,
    )
    if importlib.util.find_spec("dagster") is None:
        monkeypatch.setitem(sys.modules, "dagster", stub)
    monkeypatch.setenv("DAPPLE_SCHEDULE", str(SCHEDULE))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("JOB", str(tmp_path / "job.yaml"))
    monkeypatch.setenv("DAPPLE", str(tmp_path / "dapple"))
    (tmp_path / "job.yaml").write_text('data: {partitions: {dt: "@DATE@"}}\n')

    def make(code):
        out = tmp_path / "runs" / DATE
        privacy = json.dumps({"epsilon": 1.5, "delta": 1e-6, "unit": "record", "trust": "central", "events": []})
        lines = ["#!/bin/sh", f"mkdir -p {out}", f"echo '{privacy}' > {out}/privacy.json", f"exit {code}"]
        (tmp_path / "dapple").write_text("\n".join(lines) + "\n")
        (tmp_path / "dapple").chmod(0o755)
        return runpy.run_path(str(SCHEDULE / "dagster_assets.py"))

    return make


@pytest.mark.skipif(importlib.util.find_spec("dagster") is not None, reason="dagster is installed")
def test_a_refusal_is_final_and_other_failures_are_tried_again(place):
    context = types.SimpleNamespace(partition_key=DATE)
    for code in (1, 2, 3, 4, 75):
        with pytest.raises(FailedError, match=f"{DATE} .* with exit code {code}; the log says why") as failed:
            place(code)["private_centers"](context)
        assert failed.value.allow_retries is (code not in (3, 4))


@pytest.mark.skipif(importlib.util.find_spec("dagster") is not None, reason="dagster is installed")
def test_the_asset_says_what_the_run_states(place, tmp_path):
    found = place(0)["private_centers"](types.SimpleNamespace(partition_key=DATE))
    assert found["metadata"] == {
        "folder": str(tmp_path / "runs" / DATE),
        "epsilon": 1.5,
        "delta": 1e-6,
        "unit": "record",
        "trust": "central",
    }


@pytest.mark.skipif(importlib.util.find_spec("dagster") is None, reason="dagster is not installed")
@pytest.mark.parametrize("code", [0, 3])
def test_dagster_materializes_a_date(place, code):
    import dagster

    asset = place(code)["private_centers"]
    instance = dagster.DagsterInstance.ephemeral()
    done = dagster.materialize([asset], partition_key=DATE, instance=instance, raise_on_error=False)
    assert done.success is (code == 0)
    if done.success:
        (made,) = done.asset_materializations_for_node("private_centers")
        assert made.metadata["epsilon"].value == 1.5
