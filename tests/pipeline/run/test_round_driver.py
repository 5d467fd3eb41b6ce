"""Chunks of rounds: the same result however they are cut, and after being killed between or inside chunks."""

import contextlib
import functools
import json
import os
import pathlib
import signal
import stat
from unittest import mock

import numpy as np
import pytest

from dapple_dp.pipelines.run import round_driver
from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.transforms.files.checkpoint import MANIFEST_FILE
from tests.scenes import crashes, toy_rounds
from tests.scenes.lake import KEY
from tests.scenes.toy_rounds import ToyConfig, ToyProtocol

CONFIG = ToyConfig(rounds=5)


def interrupted(tmp_path, die_in=4):
    """A run of five rounds in chunks of two that was killed in round `die_in`; returns its output folder."""
    output = str(tmp_path / "out")
    run = functools.partial(toy_rounds.run, CONFIG, output, "r", die_in=die_in)
    assert crashes.call(run) == -signal.SIGKILL
    return output


def prepared_key(folder, key=KEY):
    """A staging folder whose key the test knows."""
    os.mkdir(folder.staging, 0o700)
    path = folder.path("run.key")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(key)


@pytest.mark.parametrize("chunk", [1, 2, 5, 9])
def test_cuts_do_not_matter(tmp_path, chunk):
    folder = RunFolder(str(tmp_path / "out"), "r")
    prepared_key(folder)
    total = toy_rounds.run(CONFIG, folder.output, "r", chunk=chunk)
    np.testing.assert_array_equal(total, ToyProtocol(5, "").expected(KEY))


def test_a_finished_run_leaves_outputs_only(tmp_path):
    toy_rounds.run(CONFIG, str(tmp_path / "out"), "r")
    assert sorted(os.listdir(tmp_path)) == ["out"]
    assert sorted(os.listdir(tmp_path / "out")) == ["run.json", "total.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(("die_in", "done"), [(1, 0), (3, 2), (4, 2), (5, 4)])
def test_a_killed_run_goes_on(tmp_path, die_in, done):
    output = interrupted(tmp_path, die_in)
    staging = f"{output}.partial-r"
    assert stat.S_IMODE(os.stat(f"{staging}/run.key").st_mode) == 0o600
    with open(f"{staging}/run.key", "rb") as file:
        key = file.read()
    with open(f"{staging}/{MANIFEST_FILE}") as file:
        manifest = json.load(file)
    assert manifest["rounds"] == done
    assert manifest["events"] == [{"round": number} for number in range(1, done + 1)]
    assert not os.path.exists(output)
    total = toy_rounds.run(CONFIG, output, "r")
    np.testing.assert_array_equal(total, ToyProtocol(5, "").expected(key))
    assert sorted(os.listdir(tmp_path)) == ["out"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Output folder of a run that was killed in its second chunk."""
    return interrupted(tmp_path_factory.mktemp("stopped"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"config": ToyConfig(rounds=5, scale=2)}, "the config has changed"),
        ({"fingerprint": "other"}, "the input has changed"),
    ],
)
def test_a_changed_run_is_refused(stopped, change, what):
    before = sorted(os.listdir(f"{stopped}.partial-r"))
    with pytest.raises(ConfigError, match=what):
        toy_rounds.run(change.pop("config", CONFIG), stopped, "r", **change)
    assert sorted(os.listdir(f"{stopped}.partial-r")) == before


@contextlib.contextmanager
def changed(path, content):
    """A file with other content, and then as it was."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield path
    finally:
        path.touch(0o600)
        path.write_bytes(before)


def test_another_key_is_refused(stopped):
    with changed(pathlib.Path(f"{stopped}.partial-r/run.key"), KEY) as path:
        with pytest.raises(ConfigError, match="the noise key has changed"):
            toy_rounds.run(CONFIG, stopped, "r")
        path.unlink()
        with pytest.raises(ConfigError, match="key_uri must be a readable file"):
            toy_rounds.run(CONFIG, stopped, "r")


def test_a_damaged_checkpoint_is_refused_and_stays(stopped):
    path = pathlib.Path(f"{stopped}.partial-r/round-000002.npz")
    with changed(path, path.read_bytes()[:-1]):
        with pytest.raises(InputError, match="must be a checkpoint as it was written"):
            toy_rounds.run(CONFIG, stopped, "r")
        assert path.exists()


def test_two_processes_do_not_share_a_run(stopped):
    with (
        round_driver.resumable(RunFolder(stopped, "r")),
        pytest.raises(ConfigError, match="is still under way"),
    ):
        toy_rounds.run(CONFIG, stopped, "r")


def test_a_run_killed_after_it_was_sealed_is_finished(tmp_path):
    folder = RunFolder(str(tmp_path / "out"), "r")
    prepared_key(folder)
    folder.write("total.txt", b"1")
    folder.seal({"run_id": "r"})
    with round_driver.resumable(folder):
        assert round_driver.is_sealed(folder)
        assert round_driver.finish(folder)["run_id"] == "r"
    assert sorted(os.listdir(tmp_path / "out")) == ["run.json", "total.txt"]


def test_an_empty_key_is_made_again_before_the_first_round_and_missed_after_it(tmp_path, monkeypatch):
    """A power cut leaves it; after a round a new one would draw other noise for the same charge."""
    folder = RunFolder(str(tmp_path / "out"), "r")
    prepared_key(folder, b"")
    with monkeypatch.context() as patch:
        patch.setattr(round_driver, "run_graph", mock.Mock(side_effect=RuntimeError("bad")))
        with pytest.raises(RuntimeError, match="bad"):
            toy_rounds.run(CONFIG, folder.output, "r")
    key = pathlib.Path(folder.path("run.key"))
    assert len(key.read_bytes()) == 32
    key.write_bytes(b"")
    with pytest.raises(ConfigError, match="must hold exactly 32 bytes, got 0"):
        toy_rounds.run(CONFIG, folder.output, "r")
    assert key.read_bytes() == b""


def test_a_run_that_fails_in_its_first_chunk_keeps_its_key(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("bad")

    with monkeypatch.context() as patch:
        patch.setattr(round_driver, "run_graph", fail)
        with pytest.raises(RuntimeError, match="bad"):
            toy_rounds.run(CONFIG, str(tmp_path / "out"), "r")
    key = (tmp_path / "out.partial-r" / "run.key").read_bytes()
    total = toy_rounds.run(CONFIG, str(tmp_path / "out"), "r")
    np.testing.assert_array_equal(total, ToyProtocol(5, "").expected(key))


def test_a_run_that_fails_before_its_first_round_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError, match="bad"), round_driver.resumable(RunFolder(str(tmp_path / "a" / "out"), "r")):
        raise RuntimeError("bad")
    assert os.listdir(tmp_path) == []
