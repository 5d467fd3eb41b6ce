"""Jobs on CSV files: what they release is what they release of the same rows as Parquet."""

import gzip
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import csv_lakes, lake, ledgers
from tests.scenes.csv_lakes import FORMATS, NAMES

pytestmark = pytest.mark.slow

DOMAIN = {"algorithm": "dp_lloyd", "dp_lloyd": {"domain": {name: [-2, 8] for name in NAMES}}, "server_data": "none"}
ENCODE = {
    "a": {"kind": "standardize", "from": "server"},
    "b": {"kind": "quantile_bins", "bins": 3},
    "c": {"kind": "bounds", "lower": -2, "upper": 8},
    "town": {"kind": "one_hot", "vocabulary": "server"},
    "level": {"kind": "one_hot", "vocabulary": [1, 2, 3]},
    "member": {"kind": "one_hot", "vocabulary": [False, True]},
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return csv_lakes.Desk(tmp_path_factory.mktemp("csv"))


def without(job, *names):
    return {name: value for name, value in job.items() if name not in names}


JOBS = {
    "records": {},
    "clients": {"unit": "client"},
    "dp_lloyd": DOMAIN,
    "encoded": {"data__features": [*NAMES, "town", "level", "member"], "encode": ENCODE},
    "patterns": {"data__features": ["*"], "data__except": ["client_id", "town", "level", "member", "signed"]},
    "central tree": {"algorithm": "central_tree", "tree": {"radius": 8.0}, "server_data": "none"},
}


@pytest.mark.parametrize("settings", JOBS.values(), ids=JOBS.keys())
def test_the_same_integers_are_released_of_csv_and_of_parquet(desk, tmp_path, settings):
    found = {}
    for kind in FORMATS:
        job = desk.job(kind, settings.get("unit", "record"), **without(settings, "unit"))
        if job["algorithm"] != "feddp_kmeans":
            job = without(job, "feddp_kmeans", "clipping")
        name = f"{tmp_path.name}-{kind}"
        found[kind] = lake.released(desk.done("fit", job, name))
        verified = lake.run_command("verify", str(desk.folder / name))
        assert verified.code == 0, verified.err
    assert found["csv"] == found["parquet"]


def test_delimiters_and_archives_do_not_matter(desk, tmp_path):
    plain = desk.done("fit", without(desk.job("csv", **DOMAIN), "feddp_kmeans", "clipping"), f"{tmp_path.name}-plain")
    csv_lakes.write(tmp_path / "lake", "csv", [desk.table.slice(0, 250)], ";")
    with pa.CompressedOutputStream(str(tmp_path / "lake/part-01.csv.gz"), "gzip") as file:
        pa_csv.write_csv(desk.table.slice(250), file, pa_csv.WriteOptions(delimiter="\t"))
    job = desk.job("csv", **DOMAIN, data__path=str(tmp_path / "lake"))
    other = desk.done("fit", without(job, "feddp_kmeans", "clipping"), f"{tmp_path.name}-other")
    assert lake.released(other) == lake.released(plain)


def test_a_dialect_of_the_rows_goes_beside_server_rows_that_are_parquet(desk, tmp_path):
    """Also with bounds of clients and a quality: a plan, the fit, what it releases, and `verify`; wrong is refused."""
    csv_lakes.write(tmp_path / "lake", "csv", [desk.table], ";")
    more = {"quality": {"share": 0.1}, "server_data": {"path": str(desk.folder / "server-parquet")}}
    plain = lake.released(desk.done("fit", desk.job("parquet", "client", **more), f"{tmp_path.name}-plain"))
    data = {"data__path": str(tmp_path / "lake"), "data__csv": {"delimiter": ";"}}
    job = desk.job("csv", "client", **more, **data)
    output = desk.done("fit", job, f"{tmp_path.name}-dialect")
    assert lake.released(output) == plain
    assert lake.run_command("verify", str(output)).code == 0
    planned = lake.run_command("plan", "--config", str(desk.folder / f"{tmp_path.name}-dialect.yaml"))
    assert planned.code == 0, planned.err
    nowhere = desk.run("fit", desk.job("parquet", data__csv={"delimiter": ";"}, **more), f"{tmp_path.name}-nowhere")
    assert (nowhere.code, "data.csv is set" in nowhere.err) == (2, True)


def test_folders_name_days_and_clients(desk, tmp_path):
    table = desk.table.select(NAMES)
    for client in range(6):
        day = "2026-01-01" if client < 4 else "2026-01-02"
        place = tmp_path / "lake" / f"day={day}" / f"client_id={client}"
        csv_lakes.write(place, "csv", [table.slice(100 * client, 100)])
        csv_lakes.write(tmp_path / "plain" / f"client_id={client}", "parquet", [table.slice(100 * client, 100)])
    found = []
    shutil.rmtree(tmp_path / "plain/client_id=4")
    shutil.rmtree(tmp_path / "plain/client_id=5")
    for path, more in (("lake", {"data__partitions": {"day": "2026-01-01"}}), ("plain", {})):
        job = desk.job("csv", "client", data__path=str(tmp_path / path), **more)
        found.append(lake.released(desk.done("fit", job, f"{tmp_path.name}-{path}")))
    assert found[0] == found[1]


def test_a_ledger_charges_runs_that_follow_each_other(desk, tmp_path):
    ledger = ledgers.new_ledger(tmp_path, Limit(epsilon=3.2, delta=1e-5), "census")
    charged = {"ledger": str(tmp_path / "ledger.sqlite"), "data__name": "census", "lloyd": {"steps": 1}}
    first = desk.done("fit", without(desk.job("csv", **charged), "key_uri"), f"{tmp_path.name}-1")
    job = without(desk.job("csv", recurring={"previous": str(first)}, **charged), "key_uri")
    second = desk.done("fit", job, f"{tmp_path.name}-2")
    assert json.loads((second / "run.json").read_text())["previous"] is not None
    refused = desk.run("fit", without(desk.job("csv", **charged), "key_uri"), f"{tmp_path.name}-3")
    assert refused.code == 3, refused.err
    assert ledgers.kinds(ledger).count("commit") == 2


def test_plan_reads_the_names_that_patterns_stand_for(desk):
    job = desk.job("csv", **JOBS["patterns"])
    (desk.folder / "plan.yaml").write_text(json.dumps(job))
    outcome = lake.run_command("plan", "--config", str(desk.folder / "plan.yaml"), "--rows", "600")
    assert outcome.code == 0, outcome.err


@pytest.fixture(scope="module")
def model(desk):
    return str(desk.done("fit", desk.job("parquet"), "model"))


def test_prepare_groups_the_rows_of_each_client(desk):
    for kind in FORMATS:
        desk.done("prepare", desk.job(kind, "client") | {"prepare": {"shards": 2}}, f"prepared-{kind}")
    found = [
        [path.read_bytes() for path in sorted((desk.folder / f"prepared-{kind}").glob("*.parquet"))] for kind in FORMATS
    ]
    assert found[0] == found[1]
    again = desk.job("csv", "client", data__path=str(desk.folder / "prepared-csv"))
    assert lake.released(desk.done("fit", again, "of-prepared")) == lake.released(
        desk.done("fit", desk.job("csv", "client"), "of-csv")
    )


def test_rows_are_assigned_with_their_ids_or_their_places(desk, model):
    for kind in FORMATS:
        data = {"path": str(desk.folder / kind), "features": list(NAMES)}
        for name, ids in {"ids": ["client_id", "town"], "places": []}.items():
            desk.done("assign", {"model": model, "data": data, "assign": {"id_columns": ids}}, f"{name}-{kind}")
    found = {
        (name, kind): pq.read_table(desk.folder / f"{name}-{kind}/assignments.parquet", partitioning=None)
        for name in ("ids", "places")
        for kind in FORMATS
    }
    key = [(name, "ascending") for name in ("client_id", "town", "cluster")]
    assert found["ids", "csv"].sort_by(key).equals(found["ids", "parquet"].sort_by(key))
    csv, parquet = found["places", "csv"], found["places", "parquet"]
    assert set(csv["file"].to_pylist()) == {str(desk.folder / f"csv/part-0{index}.csv") for index in (0, 1)}
    order = [("row", "ascending"), ("cluster", "ascending")]
    assert csv.drop(["file"]).sort_by(order).equals(parquet.drop(["file"]).sort_by(order))


def test_evaluations_agree_with_those_of_parquet(desk, model):
    found = []
    for kind in FORMATS:
        data = {"path": str(desk.folder / kind), "features": list(NAMES)}
        job = {"model": model, "data": data, "evaluate": {"label": "level"}}
        found.append(json.loads((desk.done("evaluate", job, f"scores-{kind}") / "metrics.json").read_text()))
    for each in found:
        each.pop("separation", None)
    assert {name for name in found[0] if found[0][name] != found[1][name]} <= {"run_id", "input", "digest"}


@pytest.mark.parametrize("unit", ["record", "client"])
def test_clusters_are_described(desk, model, unit):
    found = []
    for kind in FORMATS:
        rows = {"max_rows_per_client": 10} if unit == "client" else {}
        job = {
            "model": model,
            "data": {"path": str(desk.folder / kind), "features": list(NAMES), "client_id": "client_id"},
            "privacy": {"unit": unit, "epsilon": 200.0, "delta": 1e-6},
            "profile": {
                "numeric": {"level": {"lower": 0, "upper": 4}},
                "categorical": {"town": {"values": ["Bern", "Chur\nGR"]}, "member": {"values": [False, True]}},
            }
            | rows,
        }
        found.append(desk.done("profile", job, f"profile-{unit}-{kind}"))
    sizes = [pq.read_table(folder / "profile.parquet") for folder in found]
    assert sizes[0].schema == sizes[1].schema
    assert sizes[0].num_rows == sizes[1].num_rows


def test_a_sweep_costs_what_it_costs_on_parquet(desk, tmp_path):
    from tests.scenes import sweeps

    costs = []
    for kind in FORMATS:
        job = sweeps.settings(
            str(desk.folder / kind),
            str(desk.folder / f"server-{kind}"),
            {
                "rows": sweeps.METHODS["rows"],
                "optimum": sweeps.METHODS["optimum"],
            },
        )
        job["data"]["features"] = list(NAMES)
        (tmp_path / kind).mkdir()
        outcome = sweeps.run(job, tmp_path / kind)
        assert outcome.code == 0, outcome.err
        costs.append([row["cost"] for row in sweeps.rows(tmp_path / kind) if row["method"] == "optimum"])
    np.testing.assert_allclose(costs[0], costs[1])


MIXED = "must name files of one format, and"


def test_a_folder_of_both_formats_is_refused(desk, tmp_path):
    for kind in FORMATS:
        csv_lakes.write(tmp_path / "lake", kind, [desk.table])
    outcome = desk.run("fit", desk.job("csv", data__path=str(tmp_path / "lake")), f"{tmp_path.name}-mixed")
    assert outcome.code == 2
    assert (
        f"dapple: data.path {MIXED} {tmp_path}/lake has both Parquet and CSV, so rows might count twice;" in outcome.err
    )
    desk.done("fit", desk.job("csv", data__path=f"{tmp_path}/lake/*.csv"), f"{tmp_path.name}-one")
    job = desk.job("csv", server_data={"path": str(tmp_path / "lake")})
    outcome = desk.run("fit", job, f"{tmp_path.name}-server")
    assert (outcome.code, f"server_data.path {MIXED}" in outcome.err) == (2, True)


@pytest.mark.parametrize("name", ["part-00.csv.gz", "part-00.csv.GZ"])
def test_a_file_beside_itself_packed_is_refused(desk, tmp_path, name):
    folder = shutil.copytree(desk.folder / "csv", tmp_path / "lake")
    (folder / name).write_bytes(gzip.compress((folder / "part-00.csv").read_bytes()))
    outcome = desk.run("fit", desk.job("csv", data__path=str(folder)), f"{tmp_path.name}-packed")
    assert outcome.code == 2
    assert f"data.path names {folder}/part-00.csv both plain and packed" in outcome.err
    desk.done("fit", desk.job("csv", data__path=f"{folder}/*.csv"), f"{tmp_path.name}-one")


def test_a_column_of_lists_is_refused(desk, tmp_path):
    job = desk.job("csv", server=False, data__features="a", data__width=4)
    outcome = desk.run("fit", job, f"{tmp_path.name}-lists")
    assert outcome.code == 2
    assert "column 'a' of" in outcome.err
    assert "must be a list of numbers, got string" in outcome.err


def test_the_message_on_a_csv_file_of_another_name_says_how_to_name_it(desk, tmp_path):
    shutil.copy(desk.folder / "csv/part-00.csv", tmp_path / "people.txt")
    outcome = desk.run("fit", desk.job("csv", data__path=str(tmp_path / "people.txt")), f"{tmp_path.name}-txt")
    assert outcome.code == 2
    assert "end the name of a CSV file in .csv, .tsv, .csv.gz, .tsv.gz" in outcome.lines[-1]


def test_hidden_files_and_markers_are_no_data(desk, tmp_path):
    csv_lakes.write(tmp_path / "lake", "csv", [desk.table])
    for name in ("_SUCCESS", ".part-00.csv.crc", "_tmp.csv", ".x.csv"):
        (tmp_path / "lake" / name).write_text("4711")
    desk.done("fit", desk.job("csv", data__path=str(tmp_path / "lake")), f"{tmp_path.name}-hidden")


def test_rows_without_a_value_are_dropped_or_refused(desk, tmp_path):
    table = desk.table.set_column(0, "a", pa.array([None, *desk.table["a"].to_pylist()[1:]], pa.float64()))
    found = []
    for kind in FORMATS:
        path = csv_lakes.write(tmp_path / kind, kind, [table])
        outcome = desk.run("fit", desk.job(kind, data__path=path), f"{tmp_path.name}-fail-{kind}")
        assert (outcome.code, "must hold finite numbers only, got a null, NaN or infinity" in outcome.err) == (2, True)
        job = desk.job(kind, data__path=path, data__on_invalid_rows="drop")
        found.append(lake.released(desk.done("fit", job, f"{tmp_path.name}-drop-{kind}")))
    assert found[0] == found[1]
