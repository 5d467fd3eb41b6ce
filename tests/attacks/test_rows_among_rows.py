"""Attacks by what Dapple itself writes: a copy of rows among the rows counts each of them twice, at one epsilon."""

import os
import shutil

import numpy as np
import pytest
import yaml

from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.tables.source import list_files, would_find
from tests.scenes import lake, stores


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A lake, with a link to it."""
    lake.write_lake(tmp_path / "lake", lake.mixture(60), np.arange(60) // 10, n_files=2)
    (tmp_path / "week [1]").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    return tmp_path


INSIDE = [
    ("lake", "lake/out"),
    ("lake/", "lake"),
    (".", "out"),
    ("link", "lake/a/out"),
    ("lake", "link/out"),
    ("lake/**", "lake/out"),
    ("lake/*/*.parquet", "lake/out"),
    ("lake/dt=*/", "lake/dt=1"),
    ("week [1]", "week [1]/out"),
    ("s3://bucket/lake", "s3://bucket/lake/out"),
]
OUTSIDE = [
    ("lake", "out"),
    ("lake", "lake2"),
    ("week [1]", "week 1/out"),
    ("lake", "lake.partial-a/out"),
    ("lake/*.parquet", "lake/out"),
    ("lake/part-00.parquet", "lake/out"),
    ("lake", "lake/_out"),
    ("s3://bucket/lake", "s3://bucket/out"),
    ("s3://bucket/lake", "lake/out"),
]


@pytest.mark.parametrize(("path", "output"), INSIDE + OUTSIDE)
def test_which_outputs_a_job_would_read(place, path, output):
    assert would_find(path, output) is ((path, output) in INSIDE)


@pytest.mark.parametrize("data", ["lake", "link"])
def test_a_copy_of_the_rows_is_not_made_among_them(place, data):
    job = {"data": {"path": data, "features": "x", "client_id": "client_id"}}
    (place / "prepare.yaml").write_text(yaml.safe_dump(job))
    before = sorted(os.listdir(place / "lake"))
    outcome = lake.run_command("prepare", "--config", "prepare.yaml", "--output", "lake/copy")
    assert outcome.code == 2
    assert outcome.lines[-1].startswith("dapple: --output must be outside of data.path, got lake/copy")
    assert sorted(os.listdir(place / "lake")) == before


@pytest.mark.parametrize("name", ["out.partial-nightly.clients", "out.partial-20261122T204006Z-86252fff"])
def test_files_that_a_killed_run_left_among_the_rows_are_reported(place, name):
    os.mkdir(place / "runs")
    shutil.copytree(place / "lake", place / "runs" / name)
    with pytest.raises(InputError, match=r"data\.path includes .*, a copy of rows that a run keeps or has left"):
        list_files(str(place), {})
    assert len(list_files(str(place / "runs" / name), {})) == 2


def test_on_a_store_the_copy_of_a_run_is_read_by_that_run_alone(monkeypatch):
    """A store knows no folders, so the path of the copy is no file and no folder of it."""
    monkeypatch.setattr(stores.Store, "objects", {})
    root = f"{stores.SCHEME}://bucket/"
    for name in ("lake/part.parquet", "lake/out.partial-r.clients-00ff/shard.parquet"):
        stores.Store.objects[root + name] = b"PAR1"
    assert len(list_files(f"{root}lake/out.partial-r.clients-00ff", {})) == 1
    for path in (f"{root}lake", f"{root}lake/**"):
        with pytest.raises(InputError, match=r"data\.path includes .*, a copy of rows"):
            list_files(path, {})
