"""One small job under one key of the test, by each way to start it: all release the same centers, byte for byte.

The ways of other tools start the command by their own code, with the tool itself stood in for where it is not there;
`python -m tests.own_environments` runs them by the tools. Masked jobs are no part of it: their noise is bound to masks.
"""

import pathlib
import shlex
import subprocess
import sys

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions

import dapple_dp
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE
from tests.scenes import airflow, lake
from tests.scenes.known_key_command import one_key_draws

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[3]
DATE = "2026-11-20"


class World:
    """Rows, a job for them, a key, and a command that draws under it."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.key = lake.write_key(folder / "key")
        self.points, self.public = lake.mixture(600), lake.mixture(90, seed=99)
        data = lake.write_lake(folder / "lake", self.points, n_files=2)
        self.job = lake.job(data, lake.write_server(folder / "server.parquet", self.public))
        self.config = folder / "job.yaml"
        self.config.write_text(yaml.safe_dump(self.job))
        self.command = folder / "dapple"
        words = f'{sys.executable} -m tests.scenes.known_key_command {shlex.quote(self.key)} "$@"'
        self.command.write_text(f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {words}\n")
        self.command.chmod(0o755)

    def out(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("ways"))


def of(folder) -> list[bytes]:
    """Bytes of the centers in an output folder, cluster by cluster."""
    return raw(pq.read_table(pathlib.Path(folder) / CENTERS_FILE))


def raw(table) -> list[bytes]:
    return [np.array(each, dtype=np.float64).tobytes() for each in table["center"].to_pylist()]


def by_command(world, monkeypatch):
    outcome = lake.run_command("fit", "--config", str(world.config), "--output", world.out("command"))
    assert outcome.code == 0, outcome.err
    return of(world.out("command"))


def by_python(world, monkeypatch):
    result = dapple_dp.fit(dapple_dp.validated(world.job))
    return [row.tobytes() for row in result.model.centers]


def by_estimator(world, monkeypatch):
    model = dapple_dp.DPKMeans(
        3,
        epsilon=2.0,
        delta=1e-6,
        algorithm="feddp_kmeans",
        settings={"feddp_kmeans": {"restarts": 20}},
    ).fit(world.points, server_data=world.public)
    return [row.tobytes() for row in model.cluster_centers_]


def by_transform(world, monkeypatch):
    """The transform of the Beam YAML provider, in a Beam pipeline."""
    with beam.Pipeline(options=beam_options([])) as pipeline:
        centers = pipeline | dapple_dp.DappleFit(world.job, world.out("transform"), "one")
        _ = centers | beam.io.WriteToParquet(world.out("rows-of-centers"))
    table = pq.read_table(next(world.folder.glob("rows-of-centers*"))).sort_by("cluster")
    assert raw(table) == of(world.out("transform"))
    return of(world.out("transform"))


def by_airflow(world, monkeypatch):
    operator = airflow.stand_in(monkeypatch).DappleOperator(
        task_id="fit",
        config=str(world.config),
        output_folder=world.out("airflow"),
        run_id=DATE,
        command=str(world.command),
    )
    assert operator.execute({})["run_id"] == DATE
    return of(world.out("airflow"))


def by_script(world, monkeypatch):
    """Returns what cron and Airflow's DAG start."""
    return of(_partition(world, "script", lambda words: subprocess.run(words, check=True)))


def _partition(world, name, start):
    variables = {"DAPPLE": str(world.command), "JOB": str(world.config), "RUNS": world.out(name)}
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in variables.items():
            patch.setenv(variable, value)
        start([str(ROOT / "schedule" / "run_partition.sh"), DATE])
    return pathlib.Path(world.out(name)) / DATE


def by_delta(world, monkeypatch):
    """A table of a run holds the centers that the run has released."""
    deltalake = pytest.importorskip("deltalake")
    folder = world.folder / "for-delta"
    folder.mkdir()
    outcome = lake.run_job(world.job, folder)
    assert outcome.code == 0, outcome.err
    dapple_dp.write_delta(str(folder / "out"), world.out("table"))
    table = deltalake.DeltaTable(world.out("table")).to_pyarrow_table().sort_by("cluster")
    return raw(table)


WAYS = (
    by_python,
    by_estimator,
    by_transform,
    by_airflow,
    by_script,
    by_delta,
)


@pytest.fixture(scope="module")
def centers(world):
    """Returns the centers of a run by the command."""
    with pytest.MonkeyPatch.context() as patch, one_key_draws(world.key):
        return by_command(world, patch)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_releases_the_same_centers(world, centers, way, monkeypatch):
    with one_key_draws(world.key):
        assert way(world, monkeypatch) == centers
    assert len(centers) == 3


def test_another_key_gives_other_centers(world, centers):
    """So the test above would fail."""
    other = lake.write_key(world.folder / "other", bytes(range(32)))
    with one_key_draws(other):
        result = dapple_dp.fit(dapple_dp.validated(world.job), PipelineOptions([]))
    assert [row.tobytes() for row in result.model.centers] != centers
