"""Rows in CSV beside masks, reports, silos and stores: the jobs end as they do on Parquet, or in one sentence."""

import functools
import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.tables.read import _list_row_groups
from dapple_dp.transforms.tables.shard_rows import read_blocks
from tests.pipeline.masked import test_masked_jobs as one_mask
from tests.pipeline.masked import test_pairwise_jobs as pairwise
from tests.scenes import csv_lakes, federation, lake, object_store, reports
from tests.scenes.csv_lakes import FORMATS, NAMES

pytestmark = pytest.mark.slow


def as_csv(folder):
    """Puts CSV files with a column per number in the place of Parquet files with lists, a file per row group."""
    for path in sorted(folder.rglob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                points = table["x"].combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1)
                found = pa.table(dict(zip(NAMES, points.T, strict=True)))
                pa_csv.write_csv(found, path.with_name(f"{path.stem}-{group:02d}.csv"))
        path.unlink()


def with_columns(parties, jobs):
    """The parties' rows and server rows as CSV, and jobs that say so."""
    for place in parties.folder.glob("lake-*"):
        as_csv(place)
    server = parties.folder / "server"
    server.mkdir()
    (parties.folder / "server.parquet").rename(server / "server.parquet")
    as_csv(server)
    for path in parties.folder.glob(jobs):
        job = yaml.safe_load(path.read_text())
        job["data"]["features"] = list(NAMES)
        if job["server_data"] != "none":
            job["server_data"] = {"path": str(server / "server-00.csv")}
        path.write_text(yaml.safe_dump(job))
    parties.job = job
    return parties


def rows_read(path):
    """Rows of a party by sender, and what its first round adds up from them and from server rows."""
    fit = plan_files(validated(yaml.safe_load(path.read_text())))
    shards = [shard for each in fit.source.listed.files for shard in _list_row_groups(each, fit.contract)]
    senders = [np.concatenate([block.points for block in read_blocks(shard, fit.contract)]) for shard in shards]
    return senders, fit.rounds[0].statistic(lake.ClientBlock(np.concatenate(senders)), fit.initial)


@pytest.mark.parametrize(
    ("parties", "jobs"),
    [(one_mask.Parties, "client-*.yaml"), (functools.partial(pairwise.Parties, **pairwise.LLOYD), "job-*.yaml")],
    ids=["one secret", "pairwise"],
)
def test_parties_read_the_rows_of_csv_that_they_read_of_parquet(tmp_path, parties, jobs):
    """Masks begin behind the reader, so their jobs need not run on both."""
    made = parties(tmp_path)
    before = {path.name: rows_read(path) for path in sorted(tmp_path.glob(jobs))}
    with_columns(made, jobs)
    assert len(before) >= 3
    assert not list(tmp_path.glob("lake-*/*.parquet"))
    for name, (senders, sums) in before.items():
        again, same = rows_read(tmp_path / name)
        assert len(again) == len(senders) > 0
        for one, other in zip(senders, again, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(sums, same)


def test_later_legs_need_no_csv(tmp_path):
    """They are planned by the columns that a party has kept, once its rows are gone."""
    parties = with_columns(pairwise.Parties(tmp_path, **pairwise.LLOYD), "job-*.yaml")
    assert parties.unmask().code == 0
    for leg in pairwise.Leg:
        parties.leg(list(pairwise.EVERYBODY), close=leg is not pairwise.Leg.SHARES)
        if leg is pairwise.Leg.MESSAGES:
            for path in (tmp_path / "lake-1").iterdir():
                path.unlink()
    outcome = parties.unmask()
    assert outcome.code == 0, outcome.err


def test_a_message_is_sent_again_without_the_file(tmp_path):
    parties = one_mask.opened(with_columns(one_mask.Parties(tmp_path), "client-*.yaml"))
    assert parties.upload(0).code == 0
    sent = one_mask.messages_of(parties)
    (tmp_path / "lake-0/part-00-00.csv").write_text("a,b,c,d\n4711,1,1,1\n")
    assert parties.upload(0).code == 0
    assert one_mask.messages_of(parties) == sent


def test_reports_of_csv_are_those_of_parquet(tmp_path):
    rows = csv_lakes.people(1200).select([*NAMES, "client_id"])
    rows = rows.set_column(4, "client_id", pa.array([f"c{index}" for index in range(1200)]))
    found = []
    for kind in FORMATS:
        path = csv_lakes.write(tmp_path / kind, kind, [rows])
        job = reports.settings(path, key_uri=lake.write_key(tmp_path / f"key-{kind}"))
        job["data"]["features"] = list(NAMES)
        if found:
            job["reports"]["parameters"] = str(tmp_path / "csv-out/parameters.json")
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        words = ("--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / f"{kind}-out"))
        outcome = lake.run_command("encode", *words)
        assert outcome.code == 0, outcome.err
        found.append(pq.read_table(tmp_path / f"{kind}-out/reports.parquet"))
    assert found[0].equals(found[1])


def test_reports_themselves_are_no_csv(tmp_path):
    public = reports.parameters()
    (tmp_path / "parameters.json").write_text(public.to_json())
    (tmp_path / "reports.parquet").mkdir()
    (tmp_path / "reports.parquet/part-00.csv").write_text("nonce,index\n1,2\n")
    job = reports.settings(str(tmp_path), reports__path=str(tmp_path))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    outcome = lake.run_command("decode", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "out"))
    assert outcome.code == 2
    refusal = "part-00.csv must be a readable Parquet file, got something else; check the file or leave it out"
    assert refusal in outcome.lines[-1]


def test_silos_train_the_same_models_on_csv(tmp_path):
    found = []
    for kind in FORMATS:
        tables = []
        for client in range(federation.N_CLIENTS):
            table = federation.table_of([client])
            points = table["x"].combine_chunks().flatten().to_numpy().astype(float).reshape(table.num_rows, -1)
            numbers = {f"x{index}": column for index, column in enumerate(points.T)}
            tables.append(pa.table(numbers | {name: table[name] for name in ("y", "client_id", "kind")}))
        path = csv_lakes.write(tmp_path / kind, kind, tables)
        job = federation.job(path, data__group="kind", key_uri=lake.write_key(tmp_path / f"key-{kind}"))
        job["data"]["features"] = [f"x{index}" for index in range(federation.N_FEATURES)]
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        words = ("--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / f"{kind}-out"))
        outcome = lake.run_command("clustered_fl", *words)
        assert outcome.code == 0, outcome.err
        found.append(json.loads((tmp_path / f"{kind}-out/run.json").read_text())["models_digest"])
    assert found[0] == found[1]


def test_a_fit_of_csv_on_a_store_is_that_of_the_disk(tmp_path):
    """One file is small enough to be read at once, the other one is read in parts."""
    pytest.importorskip("moto")
    desk = csv_lakes.Desk(tmp_path)
    large = csv_lakes.people(20_000, seed=5)
    csv_lakes.write(tmp_path / "csv", "csv", [desk.table, large])
    assert pathlib.Path(tmp_path / "csv/part-01.csv").stat().st_size > 1 << 20
    job = desk.job("csv", n_clusters=3)
    with object_store.object_store() as store:
        object_store.upload(str(tmp_path / "csv"), "rows-of-csv")
        store.every = 7
        for name, path in {"there": f"s3://{object_store.BUCKET}/rows-of-csv", "here": str(tmp_path / "csv")}.items():
            desk.done("fit", job | {"data": job["data"] | {"path": path}}, name)
    assert lake.released(tmp_path / "there") == lake.released(tmp_path / "here")


def test_rows_of_a_large_file_are_those_of_many_row_groups(tmp_path, monkeypatch):
    """Blocks and batches of a file do not matter, at client level neither."""
    from dapple_dp.transforms.files.formats import csv_file

    desk = csv_lakes.Desk(tmp_path)
    found = []
    for size in (1 << 22, 5000):
        monkeypatch.setattr(csv_file, "_BLOCK_BYTES", size)
        for unit in ("record", "client"):
            found.append(lake.released(desk.done("fit", desk.job("csv", unit), f"{unit}-{size}")))
    assert found[:2] == found[2:]
    assert np.unique([len(each) for each in found]).size == 1
