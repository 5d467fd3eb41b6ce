"""A broken file of any format is refused in one sentence, soon, and nothing is written; seeded, so the same each time.

`python -m tests.fuzz` does more of it; what it found stands in benchmarks/results/fuzzing.md.
"""

import json
import pathlib
import random

import numpy as np
import pytest

from tests.fuzz import mutations
from tests.fuzz.formats import FORMATS
from tests.fuzz.trial import tried, within
from tests.scenes import lake, models

NUMBER, MANY = 120, 3000
CODES = (0, 2, 3, 4, 5, 66, 130)


@pytest.mark.parametrize("name", FORMATS)
def test_a_broken_file_is_refused(name):
    found = tried(name, NUMBER)
    assert found.failed == []
    assert found.refused, "no file was broken"


@pytest.mark.nightly
@pytest.mark.parametrize("name", FORMATS)
def test_thousands_of_broken_files_are_refused(name):
    assert tried(name, MANY, NUMBER).failed == []


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A lake, a model, and a job of each that reads one file of the user's."""
    folder = tmp_path_factory.mktemp("place")
    data = lake.write_lake(folder / "lake", lake.mixture(30), n_files=1)
    server = lake.write_server(folder / "server.parquet")
    models.write_model(folder / "fit", np.eye(3, 4))
    (folder / "fit.yaml").write_text(json.dumps(lake.job(data, server)))
    assign = {"model": str(folder / "fit"), "data": {"path": data, "features": "x"}}
    (folder / "assign.yaml").write_text(json.dumps(assign))
    return folder


@pytest.mark.parametrize(
    ("job", "file", "ways"),
    [
        ("fit", "fit.yaml", mutations.JSON),
        ("assign", "assign.yaml", mutations.JSON),
        ("assign", "fit/run.json", mutations.JSON),
        ("assign", "fit/centers.parquet", mutations.BYTES),
        ("assign", "lake/part-00.parquet", mutations.BYTES),
    ],
)
def test_a_command_ends_in_a_sentence(place, tmp_path, job, file, ways):
    good = (place / file).read_bytes()
    try:
        for seed in range(12):
            (place / file).write_bytes(mutations.mutated(random.Random(f"{job} {file} {seed}"), good, ways))
            output = tmp_path / f"out-{seed}"
            before = set(place.rglob("*"))
            with within(30.0):
                outcome = lake.run_command(job, "--config", str(place / f"{job}.yaml"), "--output", str(output))
            assert outcome.code in CODES, (seed, outcome.err)
            assert "Traceback" not in outcome.err
            assert set(place.rglob("*")) == before
            assert outcome.code == 0 or not _left(tmp_path, output), seed
    finally:
        (place / file).write_bytes(good)


def _left(folder: pathlib.Path, output: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.iterdir() if path.name.startswith(output.name + ".") or path == output]
