"""Jobs on a server that speaks Amazon's protocol: the bytes of a local run, also of a store that throttles."""

import collections
import pathlib

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES
from dapple_dp.transforms.files.places import amazon
from dapple_dp.transforms.files.saved_model import load_model
from dapple_dp.transforms.files.stores import STORE
from tests.scenes import lake, ledgers, object_store, tables

pytestmark = pytest.mark.slow

pytest.importorskip("moto")
ROOT = f"s3://{object_store.BUCKET}"


@pytest.fixture(scope="module")
def store():
    with object_store.object_store() as found:
        yield found


@pytest.fixture
def throttled(store):
    store.every = 5
    yield store
    store.every = 0


@pytest.fixture(scope="module")
def place(store, tmp_path_factory):
    """The same rows, their clients apart, on the disk and on the store; a fit of those on the disk."""
    folder = tmp_path_factory.mktemp("s3")
    points, clients = lake.mixture(240), np.arange(240) % 24
    lake.write_files(folder / "rows", [lake.table_of(points[part::2], clients[part::2] % 20) for part in (0, 1)])
    object_store.upload(str(folder / "rows"), "rows")
    settings = lake.job("rows", lake.write_server(folder / "server.parquet"), "client", lloyd__steps=1)
    settings |= {"key_uri": lake.write_key(folder / "key")}
    place = Place(folder, settings)
    assert place.run("fit", str(folder / "out"), path=str(folder / "rows")).code == 0
    return place


class Place:
    """Jobs of one kind with other paths."""

    def __init__(self, folder: pathlib.Path, settings):
        self.folder = folder
        self.settings = settings

    def run(self, job, output, path, **others):
        """A job with the rows at a path."""
        settings = self.settings | others
        settings |= {"data": settings["data"] | {"path": path}}
        file = self.folder / "job.yaml"
        file.write_text(yaml.safe_dump(settings))
        return lake.run_command(job, "--config", str(file), "--output", output)


def published(prefix):
    """Returns what a fit has released on the store."""
    return {name: object_store.raw(f"{prefix}/{name}") for name in RELEASED_FILES}


def test_a_fit_ends_right_though_every_fifth_request_is_refused(place, throttled):
    outcome = place.run("fit", f"{ROOT}/out", f"{ROOT}/rows")
    assert outcome.code == 0, outcome.err
    assert throttled.refused > 10
    assert published("out") == lake.released(place.folder / "out")
    left = [name for name in object_store.names() if not name.startswith(("out/", "rows/"))]
    assert left == []


def test_a_fit_makes_one_client_and_asks_little_of_each_object(place, store, monkeypatch):
    """With a ledger, for which all bytes are digested."""
    honest, made = amazon._made, []
    monkeypatch.setattr(amazon, "_made", lambda *given: made.append(1) or honest(*given))
    ledgers.new_ledger(place.folder, Limit(epsilon=10.0, delta=1e-5), "rows")
    charged = {"ledger": str(place.folder / "ledger.sqlite"), "data": place.settings["data"] | {"name": "rows"}}
    del store.asked[:]
    outcome = place.run("fit", str(place.folder / "charged"), f"{ROOT}/rows", **charged)
    assert outcome.code == 0, outcome.err
    objects = collections.Counter(each.path for each in store.asked if each.path.endswith(".parquet"))
    assert len(objects) == 2
    assert max(objects.values()) <= 12
    assert len(made) <= 1


def test_a_run_that_follows_one_on_the_store(place):
    object_store.upload(str(place.folder / "out"), "first")
    for where, output in ((str(place.folder), str(place.folder / "next")), (ROOT, f"{ROOT}/next")):
        previous = f"{where}/{'out' if where != ROOT else 'first'}"
        outcome = place.run("fit", output, f"{where}/rows", recurring={"previous": previous})
        assert outcome.code == 0, outcome.err
    assert published("next") == lake.released(place.folder / "next")


def test_prepare_writes_the_same_files(place):
    for where in (str(place.folder), ROOT):
        outcome = place.run("prepare", f"{where}/prepared", f"{where}/rows", prepare={"shards": 2})
        assert outcome.code == 0, outcome.err
    local = {each.name: each.read_bytes() for each in (place.folder / "prepared").iterdir()}
    assert {name: object_store.raw(f"prepared/{name}") for name in local} == local
    assert [name.removeprefix("prepared/") for name in object_store.names("prepared")] == sorted(local)


def test_rows_are_assigned_alike(place):
    object_store.upload(str(place.folder / "out"), "model")
    outcome = place.run("assign", f"{ROOT}/assigned", f"{ROOT}/rows", model=f"{ROOT}/model")
    assert outcome.code == 0, outcome.err
    for name in object_store.names("assigned/assignments.parquet/"):
        target = place.folder / "copy" / pathlib.Path(name).name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(object_store.raw(name))
    found = pq.read_table(place.folder / "copy")["cluster"].to_pylist()
    model = load_model(str(place.folder / "out"))
    distances = ((lake.mixture(240)[:, None] - model.centers) ** 2).sum(axis=2)
    assert sorted(found) == sorted(distances.argmin(axis=1).tolist())


def test_a_delta_table_on_the_store_is_that_on_the_disk(place):
    rows = tables.columns_of(lake.mixture(60))
    root = tables.write_delta(place.folder / "delta", [rows.slice(0, 30), rows.slice(30)])
    settings = lake.job(root, None)
    settings["data"] |= {"features": tables.NAMES, "table": {"format": "delta"}}
    local = lake.planned(settings).source
    settings["data"]["path"] = object_store.upload(root, "delta")
    beam_options([])
    found = lake.planned(settings).source
    assert [path.removeprefix(f"{ROOT}/delta/") for path in found.files] == [
        path.removeprefix(f"{root}/") for path in local.files
    ]
    assert found.snapshot == local.snapshot
    assert len(list(found.listed.files)) == 2


def test_an_unfinished_output_does_not_count(place, store, monkeypatch):
    beam_options([])
    folder = RunFolder(f"{ROOT}/half", "r")
    folder.open()
    folder.write("centers.parquet", b"c")
    folder.write("releases.parquet", b"r")
    rename = STORE.rename

    def cut(path, other):
        if other.endswith("run.json"):
            raise KeyboardInterrupt
        rename(path, other)

    monkeypatch.setattr(STORE, "rename", cut)
    with pytest.raises(KeyboardInterrupt):
        folder.publish({"run_id": "r"})
    assert object_store.names("half/") == ["half/centers.parquet", "half/releases.parquet"]
    with pytest.raises(ConfigError, match="model must be the output folder of a finished fit"):
        load_model(f"{ROOT}/half")


def test_a_key_goes_where_beam_writes_whatever_the_environment_says(store, monkeypatch):
    endpoint = object_store.client().meta.endpoint_url
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    beam_options([f"--s3_endpoint_url={endpoint}"])
    STORE.put_new(f"{ROOT}/made/once", b"one")
    with pytest.raises(FileExistsError):
        STORE.put_new(f"{ROOT}/made/once", b"two")
    monkeypatch.undo()
    beam_options([])
    assert object_store.raw("made/once") == b"one"
