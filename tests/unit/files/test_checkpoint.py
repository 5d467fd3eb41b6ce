"""Checkpoints are whole or not there, and only the run they are of may go on from them."""

import dataclasses
import json
import os
import re

import numpy as np
import pytest

from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.transforms.files import checkpoint, new_file
from dapple_dp.transforms.files.checkpoint import Checkpoint, CheckpointFolder, RunBinding

BINDING = RunBinding(config_digest="a", input_fingerprint="b", key_digest="c", plan_digest="d")


def after(rounds: int) -> Checkpoint:
    arrays = {"models": np.full((2, 3), rounds / 7.0), "round_number": np.array(rounds)}
    events = [{"count": rounds}]
    return Checkpoint(rounds=rounds, binding=BINDING, plan={"events": [{"count": 9}]}, events=events, arrays=arrays)


def test_the_latest_checkpoint_comes_back(tmp_path):
    folder = CheckpointFolder(str(tmp_path))
    assert folder.latest() is None
    for rounds in (0, 5, 10):
        folder.save(after(rounds))
        found = folder.latest()
        assert (found.rounds, found.binding, found.events) == (rounds, BINDING, [{"count": rounds}])
        np.testing.assert_array_equal(found.arrays["models"], np.full((2, 3), rounds / 7.0))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.json", "round-000010.npz"]
    folder.clear()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("step", ["put_whole", "flush", "replace"])
def test_a_stop_at_any_step_leaves_the_older_one(tmp_path, monkeypatch, step):
    folder = CheckpointFolder(str(tmp_path))
    folder.save(after(5))

    def stop(*_):
        raise KeyboardInterrupt

    holder = {"put_whole": checkpoint, "flush": new_file, "replace": os}[step]
    monkeypatch.setattr(holder, step, stop)
    with pytest.raises(KeyboardInterrupt):
        folder.save(after(10))
    monkeypatch.undo()
    assert folder.latest().rounds == 5


def test_the_manifest_comes_after_the_arrays_are_on_the_disk(tmp_path, monkeypatch):
    done = []
    replace, fsync = os.replace, os.fsync

    def flushed(descriptor):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        done.append(f"flush {re.sub('[.][0-9a-f]{16}$', '', name)}")
        fsync(descriptor)

    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), replace(*paths)))
    monkeypatch.setattr(os, "fsync", flushed)
    CheckpointFolder(str(tmp_path)).save(after(5))
    assert done == [
        "flush round-000005.npz",
        f"flush {tmp_path.name}",
        "replace",
        f"flush {tmp_path.name}",
        "flush checkpoint.json",
        f"flush {tmp_path.name}",
        "replace",
        f"flush {tmp_path.name}",
    ]


def test_the_manifest_is_gone_for_good_before_anything_else_goes(tmp_path, monkeypatch):
    """With the manifest but without its arrays, or without the key, a run could not go on."""
    folder, done, unlink, fsync = CheckpointFolder(str(tmp_path)), [], os.unlink, os.fsync
    folder.save(after(5))
    monkeypatch.setattr(os, "unlink", lambda path: (done.append(os.path.basename(path)), unlink(path)))
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("flush"), fsync(descriptor)))
    folder.clear()
    assert done == ["checkpoint.json", "flush", "round-000005.npz"]


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(RunBinding)])
def test_another_run_is_refused(field):
    with pytest.raises(ConfigError, match="has changed since then"):
        after(5).check(dataclasses.replace(BINDING, **{field: "other"}))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 99}'])
def test_a_manifest_that_was_changed_is_refused(tmp_path, content):
    folder = CheckpointFolder(str(tmp_path))
    folder.save(after(5))
    (tmp_path / "checkpoint.json").write_bytes(content)
    with pytest.raises(InputError, match="must be a checkpoint as it was written"):
        folder.latest()


@pytest.mark.parametrize(("number", "version"), [(1, "0.2.0 or older"), (checkpoint.FORMAT, None), (99, None)])
def test_older_versions_are_known_by_their_format(tmp_path, number, version):
    folder = CheckpointFolder(str(tmp_path))
    assert folder.older_version() is None
    folder.save(after(5))
    path = tmp_path / "checkpoint.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": number, "of_its_own": 1}))
    assert folder.older_version() == version
    with pytest.raises(
        InputError, match=r"instead of format 2; read it|must be a checkpoint as it was written, got unexpected"
    ):
        folder.latest()


def test_arrays_that_are_missing_are_refused(tmp_path):
    folder = CheckpointFolder(str(tmp_path))
    folder.save(after(5))
    (tmp_path / "round-000005.npz").unlink()
    with pytest.raises(InputError, match="must be a checkpoint as it was written"):
        folder.latest()


def test_equal_arrays_give_equal_bytes(tmp_path):
    arrays = {"a": np.arange(3), "b": np.array(0.5)}
    turned = {"b": np.array(0.5), "a": np.arange(3)}
    assert checkpoint.arrays_to_bytes(arrays) == checkpoint.arrays_to_bytes(turned)
    (tmp_path / "state.npz").write_bytes(checkpoint.arrays_to_bytes(arrays))
    found = checkpoint.read_state(str(tmp_path / "state.npz"))
    np.testing.assert_array_equal(found["a"], arrays["a"])


def test_objects_are_not_arrays():
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        checkpoint.arrays_to_bytes({"a": np.array([{}])})


def test_a_manifest_names_plan_events_and_binding(tmp_path):
    CheckpointFolder(str(tmp_path)).save(after(5))
    found = json.loads((tmp_path / "checkpoint.json").read_text())
    assert found["plan"] == {"events": [{"count": 9}]}
    assert found["events"] == [{"count": 5}]
    assert found["binding"] == dataclasses.asdict(BINDING)
