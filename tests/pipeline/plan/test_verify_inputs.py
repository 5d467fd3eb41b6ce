"""`dapple verify --inputs` says whether the input of a run is still there as it was."""

import json
import pathlib
import shutil

import pytest
import yaml

from tests.scenes import lake
from tests.scenes.lake import run_command
from tests.scenes.ledgers import Place


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A run with a kept key, and its job."""
    place = Place(tmp_path_factory.mktemp("inputs"))
    place.job["key_uri"] = lake.write_key(place.folder / "key")
    assert place.fit().code == 0
    return place, str(place.folder / "out.yaml")


def verify(place, job):
    return run_command("verify", place.path("out"), "--inputs", job)


def test_input_that_was_left_alone_is_that_of_the_run(released):
    place, job = released
    told = verify(place, job)
    assert told.code == 0, told.err
    assert "Input: still that of the run." in told.out
    assert json.loads(told.out.splitlines()[-1])["inputs"]
    assert "Input: not compared" in run_command("verify", place.path("out")).out


@pytest.mark.parametrize("change", ["changed", "added", "removed"])
def test_other_input_is_found(released, change):
    place, job = released
    first, *_ = sorted(pathlib.Path(place.lake).rglob("*.parquet"))
    kept, more = first.read_bytes(), first.with_name("more.parquet")
    try:
        if change == "changed":
            lake.write_files(first.parent / "other", [lake.table_of(lake.mixture(30, seed=8))])
            first.write_bytes(next((first.parent / "other").rglob("*.parquet")).read_bytes())
            shutil.rmtree(first.parent / "other")
        elif change == "added":
            more.write_bytes(kept)
        else:
            first.unlink()
        told = verify(place, job)
    finally:
        first.write_bytes(kept)
        more.unlink(missing_ok=True)
    assert (told.code, "the input has changed since run run" in told.err) == (5, True)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"key_uri": None}, "must name a job with ledger and key_uri, got no key"),
        ({"ledger": None}, "must name a job with ledger and key_uri, got no ledger"),
        ({"n_clusters": 2}, "must name the job of run run, got another job or key"),
    ],
)
def test_what_cannot_be_compared_is_said(released, changes, told, tmp_path):
    place, job = released
    settings = yaml.safe_load(pathlib.Path(job).read_text()) | changes
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({k: v for k, v in settings.items() if v is not None}))
    found = verify(place, str(tmp_path / "job.yaml"))
    assert (found.code, told in found.err) == (2, True)


def test_another_key_is_found(released, tmp_path):
    place, job = released
    settings = yaml.safe_load(pathlib.Path(job).read_text())
    settings["key_uri"] = lake.write_key(tmp_path / "key", bytes(range(32)))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))
    assert "must name the job of run run" in verify(place, str(tmp_path / "job.yaml")).err
