"""Output and files of a run that succeeds."""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.run.folder import KEY_FILE
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.settings.digest import config_digest
from tests.scenes import lake

FILES = {"centers.parquet", "releases.parquet", "privacy.json", "deployment.yaml", "report.html", "run.json"}
EPSILON, DELTA = 2.0, 1e-6


class Done:
    """A finished run of the command."""

    def __init__(self, folder):
        self.folder = folder
        self.points = lake.mixture(60)
        self.path = lake.write_lake(folder / "lake", self.points)
        self.settings = lake.job(self.path, lake.write_server(folder / "server.parquet"))
        self.outcome = lake.run_job(self.settings, folder, "--run_id", "first.run-1")
        self.output = folder / "out"

    def json(self, name):
        return json.loads((self.output / name).read_text())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return Done(tmp_path_factory.mktemp("done"))


def shown_warnings(folder):
    """Returns how many warnings a reader of the page sees."""
    return (folder / "report.html").read_text().count("<strong>Warning</strong>")


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_exit_code_and_summary(done):
    assert done.outcome.code == 0
    summary = json.loads(done.outcome.out.splitlines()[-1])
    spent = done.json("privacy.json")
    assert summary == {
        "run_id": "first.run-1",
        "output": str(done.output),
        "epsilon": spent["epsilon"],
        "delta": spent["delta"],
        "warnings": shown_warnings(done.output),
    }


def test_progress_goes_to_stderr(done):
    assert len(done.outcome.out.splitlines()) == 1
    assert all(line.startswith("dapple: ") for line in done.outcome.lines)
    in_report = re.search(r"(\d+) warnings?", (done.output / "report.html").read_text())
    said = [line for line in done.outcome.lines if line.startswith("dapple: the report has ")]
    assert [line.split()[4] for line in said] == ([in_report[1]] if in_report else [])
    assert done.outcome.lines[-1] == f"dapple: done: {done.output}/report.html"


def test_the_folder_holds_the_contracts_files_and_nothing_else(done):
    assert {path.name for path in done.output.iterdir()} == FILES


def test_no_key_and_no_staging_folder_is_left(done):
    beside = {"lake/part-00.parquet", "server.parquet", "job.yaml"}
    assert files_of(done.folder) == beside | {f"out/{name}" for name in FILES}
    assert KEY_FILE not in {os.path.basename(name) for name in files_of(done.folder)}


def test_centers(done):
    table = pq.read_table(done.output / "centers.parquet")
    assert table.column_names == ["cluster", "center", "noisy_size", "size_stddev", "center_stddev"]
    assert table.schema.types == [pa.int32(), pa.list_(pa.float64(), 4), *[pa.float64()] * 2, pa.list_(pa.float64(), 4)]
    assert table.column("cluster").to_pylist() == [0, 1, 2]
    assert np.isfinite(table.column("center").combine_chunks().flatten().to_numpy()).all()


def test_releases(done):
    model = model_from_tables(*(pq.read_table(done.output / name) for name in ("centers.parquet", "releases.parquet")))
    events = done.json("privacy.json")["events"]
    assert [event["path"] for event in events] == [release.path for release in model.releases]
    assert all(np.isfinite(release.decoded).all() for release in model.releases)
    for event, release in zip(events, model.releases, strict=True):
        assert event["noise_multiplier"] == release.plan.noise_multiplier
        assert event["sensitivity_lattice"] == release.plan.spec.sensitivity
        assert tuple(event["shape"]) == release.values.shape


def test_privacy(done):
    privacy = done.json("privacy.json")
    assert set(privacy) == {
        "format",
        "unit",
        "neighboring_relation",
        "epsilon",
        "delta",
        "events",
        "trust",
        "algorithm",
        "sizes",
    }
    assert (privacy["unit"], privacy["neighboring_relation"]) == ("record", "add_or_remove_one")
    assert privacy["trust"] == "central"
    assert 0.99 * EPSILON <= privacy["epsilon"] <= EPSILON
    assert privacy["delta"] <= DELTA


def test_deployment(done):
    found = yaml.safe_load((done.output / "deployment.yaml").read_text())
    privacy = done.json("privacy.json")
    entry = found["deployment"]
    assert list(found) == ["url_slug", "deployment"]
    assert list(entry) == [
        "basic",
        "dp_variant",
        "privacy_loss",
        "deployment_model",
        "implementation",
        "administrative",
    ]
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": privacy["epsilon"], "delta": privacy["delta"]}
    assert entry["privacy_loss"]["privacy_unit"] == "record"
    assert entry["deployment_model"]["model_name"] == "Central"
    assert f"{len(privacy['events'])} releases" in entry["implementation"]["composition"]
    assert entry["privacy_loss"]["number_of_privacy_units"].startswith("unknown")
    assert {entry["basic"]["intended_use"], entry["implementation"]["justification"]} == {"unknown"}


def test_no_field_of_the_deployment_is_empty(done):
    def leaves(node):
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
        return [node] if children is None else [leaf for child in children for leaf in leaves(child)]

    found = leaves(yaml.safe_load((done.output / "deployment.yaml").read_text()))
    assert len(found) > 30
    assert all(leaf not in (None, "", []) for leaf in found)


def test_report_is_one_file_without_network(done):
    text = (done.output / "report.html").read_text()
    assert "<html" in text
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text)


def test_manifest(done):
    manifest = done.json("run.json")
    expected = {
        "run_id",
        "started",
        "settings",
        "ledger",
        "manifest_digest",
        "warnings",
        "algorithm",
        "features",
        "encoding",
        "clusters",
        "frame",
        "previous",
        "config_digest",
        "input_fingerprint",
        "noisy_cost",
        "snapshot",
        "versions",
        "format",
        "files",
    }
    assert set(manifest) == expected
    assert manifest["run_id"] == "first.run-1"
    assert manifest["config_digest"] == config_digest(validated(done.settings))
    assert set(manifest["files"]) == FILES - {"run.json"}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((done.output / name).read_bytes()).hexdigest() == digest


def test_nothing_shows_a_private_row(done):
    """Row values and exact counts stay inside; the server data are another sample."""
    texts = [done.outcome.out, done.outcome.err]
    texts += [path.read_text() for path in done.output.iterdir() if path.suffix != ".parquet"]
    shown = {f"{value:.6g}" for value in done.points.ravel()}
    assert not [value for value in shown for text in texts if value in text]


def test_the_default_key_is_new_every_time(done, tmp_path):
    again = lake.run_job(done.settings, tmp_path)
    assert again.code == 0
    first, second = lake.released(done.output), lake.released(tmp_path / "out")
    assert all(first[name] != second[name] for name in first)
    manifests = [json.loads((folder / "run.json").read_text()) for folder in (done.output, tmp_path / "out")]
    assert manifests[0]["input_fingerprint"] != manifests[1]["input_fingerprint"]


@pytest.fixture(scope="module")
def keyed(done, tmp_path_factory):
    """A run of the same job under a key that the test knows, into an empty folder that exists."""
    folder = tmp_path_factory.mktemp("keyed")
    (folder / "out").mkdir()
    assert lake.run_job(done.settings | {"key_uri": lake.write_key(folder / "key")}, folder).code == 0
    return folder


def test_a_key_that_exists_is_used_and_kept(keyed, done):
    assert (keyed / "key").read_bytes() == lake.KEY
    assert stat.S_IMODE(os.stat(keyed / "key").st_mode) == 0o600
    assert files_of(keyed) == {"job.yaml", "key"} | {f"out/{name}" for name in FILES}
    expected = lake.chain(lake.planned(done.settings), ClientBlock(done.points), lake.KEY).model()
    found = pq.read_table(keyed / "out" / "centers.parquet")
    assert found.equals(expected.centers_table())


def test_a_key_that_does_not_exist_is_made_and_deleted(done, tmp_path):
    assert lake.run_job(done.settings | {"key_uri": str(tmp_path / "key")}, tmp_path).code == 0
    assert files_of(tmp_path) == {"job.yaml"} | {f"out/{name}" for name in FILES}


def test_invalid_rows_can_be_dropped(keyed, tmp_path):
    """The rows that are left release what they release alone."""
    points = np.insert(lake.mixture(60), [0, 31], 0.0, axis=0)
    columns = {name: points[:, index].tolist() for index, name in enumerate("abcd")}
    columns["b"][0], columns["d"][32] = float("nan"), None
    lake.write_files(tmp_path / "lake", [pa.table(columns)], row_group_size=31)
    lake.write_files(tmp_path / "server", [pa.table(dict(zip("abcd", lake.mixture(60, seed=99).T, strict=True)))])
    settings = lake.job(str(tmp_path / "lake"), str(tmp_path / "server"), key_uri=str(keyed / "key"))
    settings["data"] |= {"features": ["a", "b", "c", "d"], "on_invalid_rows": "drop"}
    assert lake.run_job(settings, tmp_path).code == 0
    assert lake.released(tmp_path / "out") == lake.released(keyed / "out")


@pytest.mark.slow
def test_the_process_returns_code_and_sentence(done, tmp_path):
    """A process of its own writes nothing else to stderr, not even while modules are imported."""
    points = lake.mixture(60)
    points[7, 1] = np.inf
    settings = done.settings | {"data": {"path": lake.write_lake(tmp_path / "lake", points), "features": "x"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))
    words = ["fit", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "out")]
    found = subprocess.run([sys.executable, "-m", "dapple_dp", *words], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert all(line.startswith("dapple: ") for line in found.stderr.splitlines())
    assert found.stderr.splitlines()[-1].startswith("dapple: column 'x' of ")
    assert files_of(tmp_path) == {"job.yaml", "lake/part-00.parquet"}


def test_one_sentence_with_worker_threads(done, tmp_path):
    points = lake.mixture(60)
    points[7, 1] = np.inf
    settings = done.settings | {"data": {"path": lake.write_lake(tmp_path / "lake", points), "features": "x"}}
    flags = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
    outcome = lake.run_job(settings, tmp_path, *flags)
    assert outcome.code == 2
    assert all(line.startswith("dapple: ") for line in outcome.lines)
