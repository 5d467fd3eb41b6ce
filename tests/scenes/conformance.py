"""Jobs of a small lake that every runner must run alike: their published bytes are compared with one reference.

The reference is the in-memory runner on rows in another layout. All runs have one key that the test knows.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import yaml

from dapple_dp.beam import KMeans
from dapple_dp.pipelines.kmeans.plan import file_digests
from dapple_dp.pipelines.run.options import DEFAULT_RUNNER, beam_options
from dapple_dp.pipelines.tables.private_source import private_source
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, RELEASED_FILES
from dapple_dp.schemas.tables.data_section import DataConfig
from deploy.local.downloads import UnavailableError
from tests.scenes import lake, reports

N_ROWS, CLIENT_ROWS = 360, 10
REFERENCE = (f"--runner={DEFAULT_RUNNER}",)
Settings = dict[str, Any]


@contextlib.contextmanager
def needed(name: str) -> Iterator[None]:
    """Skips, and says why, where something cannot be had on this machine.

    Fails instead under `.ci/run`, unless DAPPLE_WITHOUT has the name.
    """
    try:
        yield
    except UnavailableError as error:
        without = os.environ.get("DAPPLE_WITHOUT")
        if without is not None and name not in without.split():
            pytest.fail(f"{name} is missing, and DAPPLE_WITHOUT does not name it: {error}")
        pytest.skip(str(error))


class Bench:
    """A lake, its key, a model and reports of it; runs jobs on them and keeps what the reference published."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.key_uri = lake.write_key(folder / "key")
        self.secret_uri = lake.write_key(folder / "secret", bytes(range(51, 83)))
        self.server = lake.write_server(folder / "server.parquet")
        points, clients = lake.mixture(N_ROWS), np.arange(N_ROWS) // CLIENT_ROWS
        layout: dict[str, Any] = {"n_files": 3, "row_group_size": 60}
        self.whole = lake.write_lake(folder / "whole", points, clients, **layout)
        order = np.random.default_rng(3).permutation(N_ROWS)
        parts = [lake.table_of(points[rows], clients[rows]) for rows in np.array_split(order, 4)]
        self.split = lake.write_files(folder / "split", parts, row_group_size=25)
        self._published: dict[str, dict[str, bytes]] = {}
        self._transformed: dict[str, list[tuple[str, bytes]]] = {}
        self._runs = 0

    def run(self, job: str, settings: Settings, *flags: str) -> tuple[lake.Outcome, pathlib.Path]:
        """A job in a folder of its own; what it said, and its output folder."""
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        folder.mkdir()
        (folder / "job.yaml").write_text(yaml.safe_dump(settings))
        words = ("--config", str(folder / "job.yaml"), "--output", str(folder / "out"))
        return lake.run_command(job, *words, *flags), folder / "out"

    def publish(self, case: str, data: str, *flags: str) -> dict[str, bytes]:
        """The files of a case that must not depend on the runner."""
        job, settings, names = CASES[case]
        outcome, output = self.run(job, settings(self, data), *flags)
        assert outcome.code == 0, outcome.err
        return {name: (output / name).read_bytes() for name in names}

    def reference(self, case: str) -> dict[str, bytes]:
        """Returns what the reference publishes."""
        if case not in self._published:
            self._published[case] = self.publish(case, self.whole, *REFERENCE)
        return self._published[case]

    def transformed(self, unit: str) -> list[tuple[str, bytes]]:
        """Returns what a transform releases under the reference."""
        if unit not in self._transformed:
            self._transformed[unit] = transformed(self, unit, self.folder / f"transformed-{unit}", REFERENCE)
        return self._transformed[unit]

    def fit(self, data: str, unit: str, **changes: Any) -> Settings:
        """A fit of three noise stages and a Lloyd step."""
        return lake.job(data, self.server, unit, lloyd={"steps": 1}, key_uri=self.key_uri, **changes)

    def reports(self) -> str:
        """Folder of private reports of the lake, made once."""
        output = self.folder / "reports"
        if not output.exists():
            job = reports.settings(self.whole, key_uri=self.key_uri)
            job["reports"]["min_batch"] = N_ROWS // CLIENT_ROWS
            (self.folder / "encode.yaml").write_text(yaml.safe_dump(job))
            words = ("--config", str(self.folder / "encode.yaml"), "--output", str(output))
            outcome = lake.run_command("encode", *words)
            assert outcome.code == 0, outcome.err
        return str(output)

    def model(self) -> str:
        """Folder with the released centers of the reference at record level."""
        folder = self.folder / "model"
        if not folder.exists():
            outcome, output = self.run("fit", self.fit(self.whole, "record"), *REFERENCE)
            assert outcome.code == 0, outcome.err
            output.rename(folder)
        return str(folder)


def _masked(bench: Bench, data: str) -> Settings:
    """Always in the same place: masks, and with them the noise, are bound to the files that messages come from."""
    return bench.fit(bench.whole, "client", trust="masked", masked={"secret_uri": bench.secret_uri})


def _decode(bench: Bench, data: str) -> Settings:
    job = reports.settings(data)
    job["reports"] = {"path": bench.reports(), "min_batch": N_ROWS // CLIENT_ROWS}
    return job


def _evaluate(bench: Bench, data: str) -> Settings:
    return {"model": bench.model(), "data": {"path": data, "features": "x"}, "evaluate": {"silhouette_rows": N_ROWS}}


CASES: dict[str, tuple[str, Callable[[Bench, str], Settings], tuple[str, ...]]] = {
    "record": ("fit", lambda bench, data: bench.fit(data, "record"), RELEASED_FILES),
    "client": ("fit", lambda bench, data: bench.fit(data, "client"), RELEASED_FILES),
    "masked": ("fit", _masked, RELEASED_FILES),
    "decode": ("decode", _decode, (CENTERS_FILE,)),
    "evaluate": ("evaluate", _evaluate, ("metrics.json",)),
}


class Conformance:
    """Subclassed for every runner; a subclass has a fixture `flags`, what a job is started with to run there."""

    @pytest.mark.parametrize("case", CASES)
    def test_published_bytes_are_those_of_the_reference(self, bench, flags, case):
        """Rows are elsewhere, too: where clients must be whole, this runner's own shuffle brings them together."""
        assert bench.publish(case, bench.split, *flags) == bench.reference(case)

    def test_a_bad_row_stops_the_job_in_one_sentence_and_nothing_is_written(self, bench, flags, tmp_path):
        points = lake.mixture(60)
        points[37, 2] = np.nan
        path = lake.write_lake(tmp_path / "bad", points, n_files=2, row_group_size=10)
        outcome, output = bench.run("fit", bench.fit(path, "record"), *flags)
        assert outcome.code == 2, outcome.err
        assert outcome.lines[-1] == bench.run("fit", bench.fit(path, "record"), *REFERENCE)[0].lines[-1]
        assert "part-01.parquet, row group 0" in outcome.lines[-1]
        assert sorted(path.name for path in output.parent.iterdir()) == ["job.yaml"]

    def test_workers_find_the_digests_of_the_bytes(self, bench, flags, tmp_path):
        """Digests of all input, which a ledger keeps, are found by the workers of a cluster, and the same on each."""
        files = private_source(SimpleNamespace(data=DataConfig(path=bench.split, features="x"))).listed.files
        (tmp_path / "staging").mkdir()
        digests = dict(file_digests._by_workers(files, beam_options(flags), str(tmp_path / "staging" / "run")))
        expected = {each: hashlib.sha256(pathlib.Path(each.file).read_bytes()).hexdigest() for each in files}
        assert digests == expected
        assert not list((tmp_path / "staging").iterdir())

    def test_a_key_of_the_run_publishes_something_else_and_is_gone_when_it_is_over(self, bench, flags):
        """The comparison is not blind."""
        settings = bench.fit(bench.whole, "record")
        del settings["key_uri"]
        outcome, output = bench.run("fit", settings, *flags)
        assert outcome.code == 0, outcome.err
        assert {path.name for path in output.iterdir()} == {
            *json.loads((output / "run.json").read_text())["files"],
            "run.json",
        }
        assert lake.released(output)["releases.parquet"] != bench.reference("record")["releases.parquet"]

    @pytest.mark.parametrize("unit", ["record", "client"])
    def test_a_transform_releases_the_same_bytes(self, bench, flags, unit, tmp_path):
        """In a pipeline of its user's, whose batches are in any order."""
        assert transformed(bench, unit, tmp_path / "released", flags) == bench.transformed(unit)


def transformed(bench: Bench, unit: str, path: pathlib.Path, flags: Sequence[str]) -> list[tuple[str, bytes]]:
    """Returns what `dapple_dp.beam.KMeans` releases of the rows of the bench."""
    points, clients = lake.mixture(N_ROWS), np.arange(N_ROWS) // CLIENT_ROWS
    batches = [
        pa.record_batch(list(part.T), names=list("abcd")) for part in np.array_split(points, 2 * N_ROWS // CLIENT_ROWS)
    ]
    elements = batches if unit == "record" else list(zip(clients[:: CLIENT_ROWS // 2].tolist(), batches, strict=True))
    more = {} if unit == "record" else {"unit": unit, "client_rows": CLIENT_ROWS}

    def keep(model: Any, path: str) -> None:  # a local function travels to workers by value
        with open(path, "wb") as file:
            pickle.dump([(each.path, each.values.tobytes()) for each in model.releases_], file)

    with beam.Pipeline(options=beam_options(flags)) as pipeline:
        step = KMeans(3, epsilon=2.0, delta=1e-6, domain=(-8, 8), columns=list("abcd"), key_uri=bench.key_uri, **more)
        _ = pipeline | beam.Create(elements) | step | "Keep" >> beam.Map(keep, str(path))
    found: list[tuple[str, bytes]] = pickle.loads(path.read_bytes())
    assert found
    return found
