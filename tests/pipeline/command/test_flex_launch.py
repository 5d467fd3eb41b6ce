"""A launch by the Flex Template's parameters runs the job."""

import json
import subprocess
import sys

import pytest

from tests.scenes import lake


@pytest.mark.slow
def test_a_launch_runs_the_job(tmp_path):
    """On this machine's runner, in a process of its own; the folder is no bucket, which only the console would mind."""
    path = lake.write_lake(tmp_path / "lake", lake.mixture(300))
    given = {
        "algorithm": "sphere_packing",
        "data_path": path,
        "data_features": "x",
        "n_clusters": "3",
        "privacy_unit": "record",
        "privacy_epsilon": "1",
        "privacy_delta": "1e-6",
        "clipping_norm": "10",
        "clipping_center": "none",
        "lloyd_steps": "1",
        "output": f"{tmp_path}/out",
        "run_id": "by-template",
        "runner": "FnApiRunner",
    }
    words = [
        sys.executable,
        "-m",
        "pipelines.command.flex_template",
        *(f"--{name}={text}" for name, text in given.items()),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "run.json").read_text())["run_id"] == "by-template"
