"""Files of sixteen programs go from `init` to labels, and release what the plainest of them does."""

import json
import pathlib

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.settings import yaml_text
from tests.scenes import csv_dialects, lake
from tests.scenes.csv_dialects import DIALECTS, DOMAINS, NAMES
from tests.scenes.terminal import ROOT

PAGE = ROOT / "docs/jobs/data.md"


def done(word, folder, name, *flags):
    outcome = lake.run_command(word, "--output", str(folder / name), *flags)
    assert outcome.code == 0, outcome.err
    return outcome


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dialects")
    lake.write_key(folder / "key")
    return folder


def job_of(folder: pathlib.Path, name: str) -> str:
    """The job that init writes; a person has said public bounds, and what becomes of gaps."""
    path = csv_dialects.write(folder, name)
    flags = [word for column, ends in DOMAINS.items() for word in ("--domain", f"{column}={ends}")]
    if DIALECTS[name].missing is not None:
        flags += ["--on_invalid_rows", "drop"]
    given = ("--data", str(path), "--clusters", "3", "--epsilon", "20", "--unit", "record", *flags)
    said = done("init", folder, f"{name}.yaml", *given)
    assert json.loads(said.out.splitlines()[-1])["complete"] is True
    return (folder / f"{name}.yaml").read_text()


@pytest.fixture(scope="module")
def usual(place):
    return fitted(place, "pandas")


def fitted(place, name):
    """Returns what is released of a file, and the labels of its rows in their order."""
    job = place / f"{name}-fit.yaml"
    job.write_text(f"{job_of(place, name)}key_uri: {place / 'key'}\nmodel: {place / f'{name}-fit'}\n")
    fit = place / f"{name}-fit-only.yaml"
    fit.write_text(job.read_text().rpartition("model:")[0])
    done("fit", place, f"{name}-fit", "--config", str(fit))
    done("assign", place, f"{name}-labels", "--config", str(job))
    labels = pq.read_table(place / f"{name}-labels/assignments.parquet", partitioning=None)
    return lake.released(place / f"{name}-fit"), labels.sort_by("row")["cluster"].to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALECTS)
def test_every_program_ends_in_the_same_release_and_labels(place, usual, name):
    released, labels = fitted(place, name) if name != "pandas" else usual
    assert released == usual[0]
    assert labels == usual[1]
    assert len(set(zip(labels, np.arange(len(labels)) % 3, strict=True))) == 3


@pytest.mark.parametrize("name", DIALECTS)
def test_init_writes_what_it_recognizes(tmp_path, name):
    found = yaml_text.parse(job_of(tmp_path, name))
    assert found["data"].get("csv", {}) == DIALECTS[name].recognized
    assert found["data"]["features"] == list(NAMES)
    assert found["dp_lloyd"]["domain"] == {column: yaml.safe_load(f"[{ends}]") for column, ends in DOMAINS.items()}


def test_the_page_lists_all_of_them():
    rows = [
        f"| {each.called} | {f'`{yaml_text.flow(each.recognized, 200)}`' if each.recognized else 'nothing'} |"
        for each in DIALECTS.values()
    ]
    assert "\n".join(rows) in PAGE.read_text()
