"""A fit in a control group of little memory: through, or ended by its sentence, and never more than it may take."""

import os
import subprocess
import sys

import numpy as np
import pytest
import yaml

from dapple_dp.transforms.rounds import machine
from tests.scenes import lake

LIMITS = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}


@pytest.fixture
def small():
    """A group of 300 MiB, where this process may make one."""
    kind, above = next(machine._groups("memory", machine._SELF), ("", None))
    folder = above / f"dapple-{os.getpid()}" if above else None
    try:
        folder.mkdir()
        (folder / LIMITS[kind]).write_text(str(300 << 20))
    except (OSError, AttributeError):
        pytest.skip("no control group of memory can be made here")
    yield folder
    folder.rmdir()


@pytest.mark.slow
def test_a_fit_plans_for_the_memory_of_its_group(tmp_path, small):
    path = lake.write_lake(tmp_path / "lake", lake.mixture(20_000), np.arange(20_000), n_files=2, row_group_size=5_000)
    settings = lake.job(path, lake.write_server(tmp_path / "server.parquet"), "record")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))
    words = ["-m", "dapple_dp", "fit", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "out")]
    enter = ["sh", "-c", f'echo $$ > {small}/cgroup.procs && exec "$@"', "sh", sys.executable, *words]
    ended = subprocess.run(enter, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    (line,) = (each for each in ended.stderr.splitlines() if "this job uses" in each)
    free = int(line.partition(" MiB of ")[2].split()[0])
    assert free < 300
