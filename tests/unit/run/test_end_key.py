"""A run whose key cannot be deleted keeps its release, and the log and the last line say that the key is left."""

import contextlib
import types

import pytest

from dapple_dp.pipelines.jobs.run_job import reporting
from dapple_dp.pipelines.run.folder import KEY_FILE, MANIFEST, RunFolder
from dapple_dp.pipelines.run.options import parse_job
from dapple_dp.pipelines.run.run_keys import end_key, own_key, run_keys
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.privacy.key_files import create_key
from tests.scenes import lake, stores


def _no_delete(*paths):
    raise OSError("not permitted")


def deleting(monkeypatch, fails):
    """Deletes all but the paths that end like this."""
    delete = STORE.delete

    def attempt(*paths):
        if any(path.endswith(fails) for path in paths):
            _no_delete()
        delete(*paths)

    monkeypatch.setattr(STORE, "delete", attempt)


def test_a_key_beside_the_output_is_told(tmp_path, monkeypatch, caplog):
    folder, key = RunFolder(str(tmp_path / "out[1]"), "r"), str(tmp_path / "team.key")
    folder.open()
    create_key(key)
    monkeypatch.setattr(STORE, "delete", _no_delete)
    end_key(key, folder.staging)
    assert f"the key {key} could not be deleted; delete it by hand" in caplog.text
    folder.publish({})
    assert (tmp_path / "out[1]" / MANIFEST).exists()


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_key_in_the_folder_that_becomes_the_output_is_not_published(tmp_path, monkeypatch, slash):
    folder = RunFolder(str(tmp_path / "out"), "r")
    folder.open()
    create_key(folder.path(KEY_FILE))
    monkeypatch.setattr(STORE, "delete", _no_delete)
    with pytest.raises(ConfigError, match="could not be deleted after the run"):
        end_key(folder.path(KEY_FILE), folder.staging + slash)


def test_a_key_that_stays_on_a_store_is_not_in_the_output(monkeypatch, caplog):
    with stores.store() as root:
        folder = RunFolder(f"{root}bucket/out", "r")
        folder.open()
        folder.write("centers.parquet", b"c")
        create_key(folder.path(KEY_FILE))
        monkeypatch.setattr(STORE, "delete", _no_delete)
        end_key(folder.path(KEY_FILE), folder.staging)
        assert "could not be deleted" in caplog.text
        folder.publish({})
        published = [name for name in stores.names() if ".partial-" not in name]
        assert published == ["bucket/out/centers.parquet", f"bucket/out/{MANIFEST}"]


def test_a_key_is_kept_if_it_was_there(tmp_path):
    uri, kept = str(tmp_path / "key"), lake.write_key(tmp_path / "kept")
    with run_keys(str(tmp_path)) as hold:
        with hold(uri):
            assert (tmp_path / "key").exists()
        assert not (tmp_path / "key").exists()
        with hold(kept):
            pass
    assert (tmp_path / "kept").read_bytes() == lake.KEY


def test_a_key_made_for_one_process_costs_no_result(tmp_path, monkeypatch, caplog):
    """`profile`, `encode`, `prepare`, `sweep` and fits of the trusted zone hold such keys."""
    deleting(monkeypatch, ".key")
    (tmp_path / "staging").mkdir()
    with own_key(str(tmp_path / "staging"), str(tmp_path / "team\n[1].key")):
        pass
    assert "could not be deleted" in caplog.text


@pytest.mark.parametrize("name", ["team.key", KEY_FILE])
def test_what_stopped_a_run_is_what_is_said_of_it(tmp_path, monkeypatch, name):
    (tmp_path / "staging").mkdir()
    deleting(monkeypatch, ".key")
    with pytest.raises(InputError, match="the rows"), own_key(str(tmp_path / "staging"), str(tmp_path / name)):
        raise InputError("the rows are odd")


def test_the_summary_names_the_keys_that_are_left_once(tmp_path, monkeypatch):
    options = parse_job("fit", ["--config=c", f"--output={tmp_path}/out"], ("--output", "--run_id"))
    settings = types.SimpleNamespace(ledger=None)
    deleting(monkeypatch, ".key")

    def work(*names):
        for name in names:
            with contextlib.ExitStack() as stack:
                (tmp_path / name).mkdir()
                stack.enter_context(own_key(str(tmp_path / name), str(tmp_path / f"{name}.key")))
        return {"run_id": "r"}

    with reporting("stream", options, settings) as found:
        with reporting("fit", options, settings):
            work("first")
        found |= work("second")
    assert found == {"run_id": "r", "keys_left": [str(tmp_path / "first.key"), str(tmp_path / "second.key")]}
    with reporting("fit", options, settings) as found:
        found |= work()
    assert found == {"run_id": "r"}
