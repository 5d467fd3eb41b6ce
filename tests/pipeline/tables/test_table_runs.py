"""Runs on tables: the released bytes are those of the same files listed by path, and the snapshot is on record."""

import dataclasses
import json
import os
import pathlib
import shutil

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.kmeans.plan.fingerprint import keyed_fingerprint
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.tables.prepared_layout import PreparedManifest
from tests.scenes import lake, tables

N_ROWS = 120
CLIENTS = [f"clinic {index}" for index in range(12)]


class Place:
    """A folder with public data and a key, where jobs run on tables and on paths."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.server = tables.write_server(folder)
        self.key = lake.write_key(folder / "key")
        self.n_runs = 0

    def rows(self, n_rows: int = N_ROWS, seed: int = 0) -> pa.Table:
        names = [CLIENTS[index % len(CLIENTS)] for index in range(n_rows)]
        return tables.columns_of(lake.mixture(n_rows, seed), client=names, dt=["day 1", "day 2"] * (n_rows // 2))

    def job(self, path, unit: str = "record", **settings):
        job = lake.job(str(path), self.server, unit, key_uri=self.key)
        job["data"] |= {"features": tables.NAMES, "client_id": "client"} | settings
        return job

    def fit(self, job) -> dict[str, bytes]:
        """Released bytes; the output folder is `self.out`."""
        self.n_runs += 1
        run = self.folder / f"run-{self.n_runs}"
        run.mkdir()
        outcome = lake.run_job(job, run)
        assert outcome.code == 0, outcome.err
        self.out = run / "out"
        return lake.released(self.out)

    def manifest(self):
        return json.loads((self.out / "run.json").read_text())

    def copy(self, paths, name: str) -> pathlib.Path:
        """The files under other names in a folder of their own."""
        (self.folder / name).mkdir()
        for index, path in enumerate(paths):
            shutil.copy(path, self.folder / name / f"{index}.parquet")
        return self.folder / name


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def parquet_files(folder) -> list[str]:
    return sorted(map(str, pathlib.Path(folder).rglob("*.parquet")))


def write_table(table_format: str, folder: pathlib.Path, parts) -> tuple[str, list[int]]:
    """Path and versions of a table with a snapshot per part."""
    if table_format == "delta":
        return tables.write_delta(folder, parts), list(range(len(parts)))
    table = tables.write_iceberg(folder, parts)
    return tables.metadata_path(table), [each.snapshot_id for each in table.snapshots()]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_snapshot_releases_what_its_files_release(place, table_format, unit):
    parts = [place.rows(), place.rows(seed=1)]
    path, versions = write_table(table_format, place.folder / "table", parts[:1])
    old = place.copy(parquet_files(place.folder / "table"), "old")
    shutil.rmtree(place.folder / "table")
    path, versions = write_table(table_format, place.folder / "table", parts)
    new = place.copy(parquet_files(place.folder / "table"), "new")
    by_path = [place.fit(place.job(folder, unit)) for folder in (old, new)]
    assert place.manifest()["snapshot"] is None
    assert by_path[0] != by_path[1]
    for version, expected in ((versions[0], by_path[0]), (versions[1], by_path[1]), (None, by_path[1])):
        found = place.fit(place.job(path, unit, table={"format": table_format, "version": version}))
        assert found == expected
        wanted = versions[1] if version is None else version
        assert place.manifest()["snapshot"] == {"format": table_format, "version": wanted}


def test_released_files_do_not_name_the_files_of_the_table(place):
    path = tables.write_delta(place.folder / "table", [place.rows()], "dt")
    place.fit(place.job(path, table={"format": "delta"}))
    names = [pathlib.Path(name).name.encode() for name in parquet_files(path)]
    for each in place.out.iterdir():
        assert not any(name in each.read_bytes() for name in [*names, b"day 1", b"day%201"]), each.name


@pytest.mark.slow
def test_partitions_of_a_delta_table_and_clients_in_its_folders(place):
    rows = place.rows()
    path = tables.write_delta(place.folder / "table", [rows], "dt", "client")
    wanted = rows.filter(pa.compute.equal(rows["dt"], "day 2"))
    plain = lake.write_files(place.folder / "plain", [wanted])
    expected = place.fit(place.job(plain, "client"))
    assert place.fit(place.job(path, "client", table={"format": "delta"}, partitions={"dt": "day 2"})) == expected
    shutil.copytree(path, place.folder / "files", ignore=shutil.ignore_patterns("_delta_log"))
    by_path = place.job(place.folder / "files", "client", partitions={"dt": "day%202"})
    assert place.fit(by_path) == expected


def test_a_table_that_grows_while_a_run_goes_on_is_read_as_it_was(place):
    path = tables.write_delta(place.folder / "table", [place.rows()])
    planned = plan_files(validated(place.job(path, table={"format": "delta"})))
    expected = place.fit(place.job(place.copy(parquet_files(path), "old")))
    tables.write_delta(place.folder / "table", [place.rows(seed=1)])
    (place.folder / "late").mkdir()
    lake.execute(planned, beam_options([]), str(place.folder / "late"))
    assert lake.released(place.folder / "late") == expected


def test_prepare_takes_a_snapshot_and_records_it(place):
    path = tables.write_delta(place.folder / "table", [place.rows(), place.rows(seed=1)])
    job = place.job(path, "client", table={"format": "delta", "version": 0})
    (place.folder / "job.yaml").write_text(yaml.safe_dump(job))
    out = place.folder / "prepared"
    assert lake.run_command("prepare", "--config", str(place.folder / "job.yaml"), "--output", str(out)).code == 0
    content = json.loads((out / "manifest.json").read_text())
    assert content["snapshot"] == {"format": "delta", "version": 0}
    manifest = PreparedManifest.from_json((out / "manifest.json").read_text(), "manifest")
    assert dataclasses.asdict(manifest.snapshot) == content["snapshot"]
    assert sum(each.n_rows for each in manifest.files) == N_ROWS
    del content["snapshot"]
    assert PreparedManifest.from_json(json.dumps(content), "manifest").snapshot is None


def test_a_refused_table_leaves_nothing_behind(place):
    table = tables.write_delta(place.folder / "table", [place.rows()])
    job = place.job(table, table={"format": "delta", "version": 5})
    outcome = lake.run_job(job, place.folder)
    assert (outcome.code, outcome.out) == (2, "")
    expected = f"{table} has no version 5 (data.table.version); choose another"
    assert outcome.lines[-1].startswith(f"dapple: {expected}")
    assert not (place.folder / "out").exists()


def fingerprint_of(place, path, **settings) -> str:
    return keyed_fingerprint(plan_files(validated(place.job(path, **settings))), place.key)


def test_the_fingerprint_covers_files_schema_and_config(place):
    rows = place.rows()
    path = lake.write_files(place.folder / "plain", [rows.slice(0, 60), rows.slice(60)])
    found = [fingerprint_of(place, path), fingerprint_of(place, path, name="other")]
    assert fingerprint_of(place, path) == found[0]
    kinds = rows.set_column(0, "a", rows["a"].cast(pa.float32()))
    for name, part in (("part-01", kinds.slice(60)), ("part-00", kinds.slice(0, 60))):
        pq.write_table(part, f"{path}/{name}.parquet")
        found.append(fingerprint_of(place, path))
    os.utime(f"{path}/part-00.parquet")
    found.append(fingerprint_of(place, path))
    shutil.copy(f"{path}/part-00.parquet", f"{path}/part-02.parquet")
    assert len({*found, fingerprint_of(place, path)}) == len(found) + 1


def test_the_fingerprint_of_a_snapshot_is_that_of_its_files(place):
    path = tables.write_delta(place.folder / "table", [place.rows()])
    one = fingerprint_of(place, path, table={"format": "delta"})
    deltalake.DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "7"})
    assert fingerprint_of(place, path, table={"format": "delta"}) == one
    tables.write_delta(place.folder / "table", [place.rows(seed=1)])
    assert len(parquet_files(path)) == 2
    assert fingerprint_of(place, path, table={"format": "delta"}) != one
