"""The output folder appears at once and complete, or not at all."""

import hashlib
import json
import os
import stat

import pytest

from dapple_dp.pipelines.run.folder import MANIFEST, RunFolder, absolute
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.format_number import FORMAT
from dapple_dp.transforms.files.file_bytes import write_bytes
from tests.scenes.power_cut import Disk


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder(str(tmp_path / "deep" / "out"), "run-1")


def siblings(folder: RunFolder) -> list[str]:
    return sorted(os.listdir(os.path.dirname(folder.output)))


def test_staging_is_private_and_beside_the_output(folder):
    previous = os.umask(0)
    try:
        folder.open()
    finally:
        os.umask(previous)
    assert stat.S_IMODE(os.stat(folder.staging).st_mode) == 0o700
    assert siblings(folder) == ["out.partial-run-1"]


def test_nothing_is_published_before_the_end(folder):
    folder.open()
    folder.write_privacy({})
    assert siblings(folder) == ["out.partial-run-1"]
    folder.publish({"run_id": "run-1"})
    assert siblings(folder) == ["out"]
    assert sorted(os.listdir(folder.output)) == ["privacy.json", MANIFEST]


def test_the_manifest_holds_the_digest_of_every_file(folder):
    folder.open()
    folder.write_privacy({})
    with open(folder.path("centers.parquet"), "wb") as file:
        file.write(b"made by the pipeline")
    folder.adopt("centers.parquet")
    folder.publish({"run_id": "run-1"})
    with open(os.path.join(folder.output, MANIFEST), encoding="utf-8") as file:
        manifest = json.load(file)
    assert manifest["run_id"] == "run-1"
    assert set(manifest["files"]) == {"privacy.json", "centers.parquet"}
    for name, digest in manifest["files"].items():
        with open(os.path.join(folder.output, name), "rb") as file:
            assert hashlib.sha256(file.read()).hexdigest() == digest


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_manifest_is_whole_or_absent_and_as_readable_as_what_it_lists(folder, monkeypatch, umask):
    """A run that resumes takes a manifest for whole."""
    previous = os.umask(umask)
    try:
        folder.open()
        folder.write_privacy({})
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                folder.seal({})
        assert not os.path.exists(folder.path(MANIFEST))
        folder.seal({})
    finally:
        os.umask(previous)
    assert os.stat(folder.path(MANIFEST)).st_mode == os.stat(folder.path("privacy.json")).st_mode
    folder.keep_only(["privacy.json", MANIFEST])
    assert sorted(os.listdir(folder.staging)) == ["privacy.json", MANIFEST]


def test_an_empty_output_folder_may_be_used(folder):
    os.makedirs(folder.output)
    folder.check()
    folder.open()
    folder.write_privacy({})
    folder.publish({})
    assert sorted(os.listdir(folder.output)) == ["privacy.json", MANIFEST]


def test_an_occupied_output_folder_is_refused(folder):
    os.makedirs(folder.output)
    with open(os.path.join(folder.output, "precious"), "w", encoding="utf-8") as file:
        file.write("data")
    with pytest.raises(ConfigError, match="--output must be a new or empty folder"):
        folder.check()


def test_whoever_names_the_folder_of_a_release_hears_that_another_run_costs_again(folder):
    folder.open()
    folder.write_privacy({})
    folder.publish({})
    with pytest.raises(ConfigError, match=r"choose another one\. It holds a private release, and a further one spends"):
        folder.check()


def test_a_file_as_output_is_refused(folder):
    os.makedirs(os.path.dirname(folder.output))
    with open(folder.output, "w", encoding="utf-8") as file:
        file.write("data")
    with pytest.raises(ConfigError, match="--output must be a new or empty folder"):
        folder.check()


def test_a_folder_filled_during_the_run_is_not_overwritten(folder):
    folder.open()
    folder.write_privacy({})
    os.makedirs(folder.output)
    with open(os.path.join(folder.output, "precious"), "w", encoding="utf-8") as file:
        file.write("data")
    with pytest.raises(OSError, match="not empty"):
        folder.publish({})
    assert os.listdir(folder.output) == ["precious"]


def test_the_same_run_id_cannot_be_staged_twice(folder):
    folder.open()
    with pytest.raises(ConfigError, match=r"--run_id must be new, got that of an attempt that left .*partial-run-1;"):
        RunFolder(folder.output, "run-1").open()


def test_an_output_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("data")
    with pytest.raises(ConfigError, match="could not be created"):
        RunFolder(str(tmp_path / "file" / "out"), "run-1").open()


def test_discard_leaves_nothing_and_may_be_repeated(folder):
    folder.open()
    folder.write_privacy({})
    folder.discard()
    assert not os.path.exists(os.path.dirname(folder.output))
    folder.discard()


def test_discard_removes_the_parents_it_made_and_no_others(tmp_path):
    (tmp_path / "there").mkdir()
    folder = RunFolder(str(tmp_path / "there" / "new" / "deep" / "out"), "r1")
    folder.open()
    folder.discard()
    assert list(tmp_path.rglob("*")) == [tmp_path / "there"]


def test_an_output_to_which_another_run_writes_is_refused_before_anything_is_charged(folder):
    """Two run ids with one output once were both charged, and one was stuck."""
    other = RunFolder(folder.output, "run-2")
    with folder.claimed():
        running = folder.opened()
        running.__enter__()
    with pytest.raises(
        ConfigError, match=r"--output must be used by one run at a time, .*out\.partial-run-1 is writing"
    ):
        other.claimed().__enter__()
    running.__exit__(None, None, None)
    with other.claimed():
        pass


def test_what_a_killed_run_left_does_not_keep_others_from_its_output(folder):
    folder.open()
    with RunFolder(folder.output, "run-2").claimed():
        pass


def test_runs_claim_one_after_the_other(folder, monkeypatch):
    """Neither sees an output that the other has not yet taken."""
    monkeypatch.setattr("dapple_dp.pipelines.run.folder._CLAIM_SECONDS", 0.0)
    other = RunFolder(folder.output, "run-2")
    with folder.claimed(), pytest.raises(ConfigError, match="another run has locked"):
        other.claimed().__enter__()


def test_an_output_that_was_written_meanwhile_is_refused(folder):
    os.makedirs(os.path.join(folder.output, "results"))
    with pytest.raises(ConfigError, match="must be a new or empty folder"):
        folder.claimed().__enter__()


@pytest.mark.parametrize("output", ["deep/out", "./deep/out", "file://{here}/deep/out", "{here}/deep/out"])
def test_staging_does_not_depend_on_the_working_folder(tmp_path, monkeypatch, output):
    """Workers elsewhere once wrote releases, and rows, into working folders of their own."""
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(output.format(here=tmp_path), "run-1")
    assert folder.staging == str(tmp_path / "deep" / "out.partial-run-1")
    with folder.opened():
        folder.write_privacy({})
        folder.publish({})
    assert sorted(os.listdir(tmp_path / "deep" / "out")) == ["privacy.json", MANIFEST]
    contents = [json.loads((tmp_path / "deep" / "out" / name).read_text()) for name in ("privacy.json", MANIFEST)]
    assert [each["format"] for each in contents] == [FORMAT, FORMAT]
    assert absolute("s3://bucket/out") == "s3://bucket/out"


def test_what_has_gone_before_a_run_is_published_does_not_come_back(tmp_path):
    """After a power cut, keys and nonces would be in the output."""
    disk, folder = Disk(tmp_path), RunFolder(str(tmp_path / "out"), "run-1")
    with disk.recording(), folder.opened():
        write_bytes(folder.path("run.nonce"), b"nonce")
        folder.write_privacy({})
        folder.seal({})
        os.unlink(folder.path("run.nonce"))
        folder.move(["privacy.json", MANIFEST])
    published = [cut.tree for cut in disk.cuts if "out" in cut.tree]
    assert [sorted(tree) for tree in published] == [["out", "out/privacy.json", f"out/{MANIFEST}"]]
