"""Attacks on where a run writes: links, what is below a file, and what takes the place of the output meanwhile.

A run whose output was a link once worked for seconds, spent its budget, and died with exit code 1 and nothing written.
"""

import json
import os
import shutil

import numpy as np
import pytest
import yaml

from dapple_dp.pipelines.command import main
from dapple_dp.pipelines.kmeans.report import files
from dapple_dp.pipelines.run.folder import RunFolder, check_no_link
from dapple_dp.pipelines.run.options import OUTPUT_FLAGS
from dapple_dp.pipelines.trusted_zone.sweep_folder import SweepFolder
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.trusted_zone.sweep_config import sweep_config
from tests.scenes import federation, lake, ledgers, reports, sweeps


@pytest.fixture
def place(tmp_path):
    return ledgers.Place(tmp_path)


def no_work(*_):
    pytest.fail("work began")


LINKS = {
    "empty folder": lambda folder: (folder / "real").mkdir(),
    "full folder": lambda folder: ((folder / "real").mkdir(), (folder / "real" / "notes").write_text("mine")),
    "dangling": lambda folder: None,
    "file": lambda folder: (folder / "real").write_text("mine"),
    "itself": lambda folder: (folder / "real").symlink_to(folder / "out"),
}


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize("target", LINKS)
def test_a_link_as_output_is_refused_before_any_work(place, monkeypatch, target, ledger):
    LINKS[target](place.folder)
    (place.folder / "out").symlink_to(place.folder / "real")
    if not ledger:
        del place.job["ledger"]
    monkeypatch.setattr("dapple_dp.pipelines.kmeans.fit.plan_files", no_work)
    before = sorted(os.listdir(place.folder))
    for output in ("out", f"{place.folder}/out/", f"{place.folder}/./out"):
        outcome = place.fit(output)
        assert (outcome.code, "which is a link" in outcome.err) == (2, True), outcome.err
    assert place.spent() == 0
    assert set(before) == {name for name in os.listdir(place.folder) if not name.endswith(".yaml")}


def test_links_above_the_output_are_followed(place):
    (place.folder / "mount").mkdir()
    (place.folder / "link").symlink_to(place.folder / "mount")
    assert place.fit(f"{place.folder}/link/out").code == 0
    assert (place.folder / "mount" / "out" / "run.json").exists()


def test_an_output_below_what_is_no_folder_costs_nothing(place, monkeypatch):
    monkeypatch.setattr("dapple_dp.pipelines.kmeans.fit.plan_files", no_work)
    (place.folder / "file").write_text("mine")
    (place.folder / "dangling").symlink_to(place.folder / "nowhere")
    for parent in ("file", "dangling", "file/deeper", "dangling/deeper"):
        outcome = place.fit(f"{place.folder}/{parent}/out")
        assert (outcome.code, "is not a folder" in outcome.err) == (2, True), outcome.err
    assert place.spent() == 0


def _stream(folder, data):
    job = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": {"path": data, "features": "x", "name": "days"},
        "n_clusters": 3,
    }
    job |= {"privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}, "dp_lloyd": {"domain": [-9, 9]}}
    calendar = {
        "start": "none",
        "name": "e",
        "column": "dt",
        "first": "2026-01-01",
        "windows": 2,
        "once": "made for it",
    }
    return job | {"ledger": str(folder / "ledger.sqlite"), "stream": calendar}


def jobs(folder):
    """A job of every word that writes a folder, as far as its settings are read before its output is looked at."""
    data = lake.write_lake(folder / "lake", lake.mixture(60), np.arange(60) // 5)
    server = lake.write_server(folder / "server.parquet")
    rows = {"path": data, "features": "x", "client_id": "client_id"}
    model = {"model": str(folder / "model"), "data": rows}
    described = {"numeric": {}, "categorical": {}}
    topics = {"algorithm": "spherical", "clipping": {"norm": 1.0, "client_rows": 5}}
    topics["names"] = {"column": "tags", "words": ["cat", "dog"]}
    return {
        "fit": lake.job(data, server),
        "topics": lake.job(data, None, "client", **topics),
        "fit (pooled)": {"experimental": True, "algorithm": "optimal", "data": rows, "n_clusters": 3},
        "stream": _stream(folder, data),
        "prepare": {"data": rows, "prepare": {"shards": 2}},
        "assign": model | {"assign": {}},
        "evaluate": model | {"evaluate": {}},
        "profile": model | {"privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}, "profile": described},
        "sweep": sweeps.settings(data, server),
        "encode": reports.settings(data),
        "shuffle": {"reports": {"arrived": data, "parameters": str(folder / "parameters.json")}},
        "decode": {"reports": {"path": data}},
        "clustered_fl": federation.job(data),
    }


def test_no_job_takes_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    cases = jobs(tmp_path)
    assert {name.partition(" ")[0] for name in cases} == set(main.JOBS) - {"upload", "aggregate", "unmask"}
    for name, settings in cases.items():
        config = tmp_path / "job.yaml"
        config.write_text(yaml.safe_dump(settings))
        named = () if name == "stream" else ("--run_id", "r")
        outcome = lake.run_command(
            name.partition(" ")[0], "--config", str(config), "--output", str(tmp_path / "out"), *named
        )
        assert outcome.code == 2, (name, outcome.err)
        assert "which is a link" in outcome.err, (name, outcome.err)
        assert os.listdir(tmp_path / "real") == []
        assert not list(tmp_path.glob("out.partial*"))


def test_flags_of_outputs_are_those_that_are_looked_at():
    """A further flag that names a folder would need the same look."""
    assert OUTPUT_FLAGS == ("--output", "--run_id")


# What changes while a run is under way.


def swapped(place, monkeypatch, change):
    """A run at whose end something else is where its output goes."""
    write = files.write_outputs

    def late(*args):
        write(*args)
        change()

    monkeypatch.setattr("dapple_dp.pipelines.kmeans.report.files.write_outputs", late)
    outcome = place.fit()
    monkeypatch.setattr("dapple_dp.pipelines.kmeans.report.files.write_outputs", write)
    return outcome


def test_a_link_put_there_meanwhile_is_reported_in_a_sentence(place, monkeypatch):
    (place.folder / "real").mkdir()
    out = place.folder / "out"
    outcome = swapped(place, monkeypatch, lambda: out.symlink_to(place.folder / "real"))
    assert (outcome.code, "which is a link" in outcome.err) == (2, True), outcome.err
    assert os.listdir(place.folder / "real") == []
    out.unlink()
    assert place.fit().code == 0, "what was paid for is published when the link is gone"
    assert place.spent() == 1
    assert json.loads((out / "run.json").read_text())["run_id"] == "run"


def test_without_a_ledger_such_a_run_leaves_nothing(place, monkeypatch):
    del place.job["ledger"]
    (place.folder / "real").mkdir()
    out = place.folder / "out"
    outcome = swapped(place, monkeypatch, lambda: out.symlink_to(place.folder / "real"))
    assert outcome.code == 2, outcome.err
    assert os.listdir(place.folder / "real") == []
    assert not list(place.folder.glob("out.partial*"))


def test_a_staging_folder_that_is_a_link_is_refused(place, tmp_path_factory):
    """Anyone who can guess a run id could otherwise have rows and keys written elsewhere."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (place.folder / "out.partial-run").symlink_to(elsewhere)
    assert place.fit().code == 2
    assert place.spent() == 0
    del place.job["ledger"]
    assert place.fit().code == 2
    config = place.folder / "silos.yaml"
    config.write_text(yaml.safe_dump(federation.job(place.lake)))
    words = ("--config", str(config), "--output", str(place.folder / "out"), "--run_id", "run")
    assert lake.run_command("clustered_fl", *words).code == 2
    assert os.listdir(elsewhere) == []


def test_a_copy_of_rows_is_not_written_through_a_link(place, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (place.folder / "out.partial-run.clients").symlink_to(elsewhere)
    del place.job["ledger"]
    outcome = place.fit(privacy=place.job["privacy"] | {"unit": "client"}, **_by_client(place))
    assert outcome.code == 2, outcome.err
    assert os.listdir(elsewhere) == []


def _by_client(place):
    return {
        "data": place.job["data"] | {"client_id": "client_id"},
        "clipping": place.job["clipping"] | {"client_rows": 10},
    }


@pytest.mark.parametrize("output", ["out", "./out", "deep/er/out", "file://{folder}/out"])
def test_outputs_that_are_no_links_pass(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    check_no_link(output.format(folder=tmp_path))


def test_a_run_folder_refuses_links_on_its_own(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="which is a link"):
        RunFolder(str(tmp_path / "out"), "r").check()


# Logs.


def said(folder, clients):
    """Returns what a fit by client says on stderr, without the name of its folder and what follows from drawn noise."""
    folder.mkdir()
    points = lake.mixture(len(clients))
    halves = np.array_split(np.arange(len(clients)), 2)
    data = lake.write_files(folder / "lake", [lake.table_of(points[rows], clients[rows]) for rows in halves])
    settings = lake.job(data, None, "client", **lake.packed(1))
    outcome = lake.run_job(settings, folder, "--run_id", "r")
    assert outcome.code == 0, outcome.err
    shutil.rmtree(folder / "lake")
    lines = outcome.err.replace(str(folder), "").splitlines()
    # What a machine has free changes from second to second.
    return [line for line in lines if "the report has" not in line and " available, then up to " not in line]


def test_the_log_does_not_reveal_whether_a_client_is_in_two_files(tmp_path):
    """One client more, with rows in both files, once added a line: a bit about one client, exactly."""
    whole = np.arange(120) // 2
    split = np.append(np.insert(whole, 60, 60), 60)
    assert said(tmp_path / "a", whole) == said(tmp_path / "b", split)


def test_two_sweeps_of_one_folder_do_not_meet(tmp_path):
    """The second one once deleted the key of the first, and both were charged for parts of one name."""
    methods = {"optimum": {"algorithm": "optimal"}}
    server = lake.write_server(tmp_path / "server.parquet")
    config = sweep_config(sweeps.settings(str(tmp_path / "lake"), server, methods))
    first, second = (SweepFolder(str(tmp_path / "out"), config) for _ in range(2))
    # What a power cut leaves before it is known which sweep it is.
    (tmp_path / "out" / "parts").mkdir(parents=True)
    first.open()
    with first.private() as private:
        (tmp_path / "link").symlink_to(tmp_path)
        for other in (second, SweepFolder(str(tmp_path / "link" / "out"), config)):
            with pytest.raises(ConfigError, match="must be used by one run at a time"):
                other.open()
        assert os.path.isdir(private)
    first.release()
    second.open()
    second.release()
