"""Files are on the disk, with their names and the folders made for them, before their writer goes on."""

import errno
import os
import stat

import pytest

from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.transforms.files import new_file
from dapple_dp.transforms.files.checkpoint import Checkpoint, CheckpointFolder, RunBinding
from dapple_dp.transforms.files.file_bytes import make_folder, write_bytes, write_once
from dapple_dp.transforms.privacy.key_files import create_key, delete_key, kept_key, read_key
from tests.scenes.power_cut import Disk

WRITERS = {
    "once": write_once,
    "note": lambda path, content: write_once(path, content, private=True),
    "bytes": write_bytes,
    "new": new_file.create,
    "in place": new_file.put_in_place,
}


def left(tmp_path, work):
    """Returns what a power cut leaves that comes right after some work."""
    disk = Disk(tmp_path)
    with disk.recording():
        work()
    return disk.cuts[-1].tree if disk.cuts else {}


@pytest.mark.parametrize("name", list(WRITERS))
def test_written_files_outlast_a_power_cut(tmp_path, name):
    path = str(tmp_path / "file")
    assert left(tmp_path, lambda: WRITERS[name](path, b"content")) == {"file": b"content"}


@pytest.mark.parametrize("name", ["once", "bytes"])
def test_so_do_folders_that_are_made_on_the_way(tmp_path, name):
    path = str(tmp_path / "a" / "b" / "file")
    found = left(tmp_path, lambda: WRITERS[name](path, b"content"))
    assert found == {"a": None, "a/b": None, "a/b/file": b"content"}


def test_so_does_a_folder(tmp_path):
    assert left(tmp_path, lambda: make_folder(str(tmp_path / "a" / "b"))) == {"a": None, "a/b": None}
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "b").st_mode) == 0o700


def test_the_second_writer_knows_that_the_first_is_on_the_disk(tmp_path):
    """The first one may have been killed between making the name and flushing it."""
    path = str(tmp_path / "file")
    disk = Disk(tmp_path)
    with disk.recording():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(new_file, "flush", lambda _: None)
            write_once(path, b"content")
        assert disk.cuts[-1].tree == {}
        write_once(path, b"content")
    assert disk.cuts[-1].tree == {"file": b"content"}


def test_a_key_written_just_before_outlasts_a_power_cut(tmp_path):
    (tmp_path / "kept").mkdir()

    def work():
        (tmp_path / "kept" / "key").write_bytes(bytes(range(32)))
        (tmp_path / "link").symlink_to(tmp_path / "kept" / "key")
        with kept_key(str(tmp_path / "link")):
            pass

    assert left(tmp_path, work)["kept/key"] == bytes(range(32))


def test_a_key_that_is_deleted_does_not_come_back(tmp_path):
    create_key(str(tmp_path / "key"))
    assert left(tmp_path, lambda: delete_key(str(tmp_path / "key"))) == {}


def test_checkpoints_outlast_a_power_cut(tmp_path):
    binding = RunBinding(config_digest="c", input_fingerprint="i", key_digest="k", plan_digest="p")
    state = Checkpoint(rounds=0, binding=binding, plan={}, events=(), arrays={})
    found = left(tmp_path, lambda: CheckpointFolder(str(tmp_path)).save(state))
    assert sorted(found) == ["checkpoint.json", "round-000000.npz"]
    assert all(found.values())


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_where_folders_cannot_be_flushed_all_is(tmp_path, monkeypatch, code):
    synced, fsync = [], os.fsync

    def files_only(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, "folder")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    monkeypatch.setattr(os, "sync", lambda: synced.append(True))
    write_bytes(str(tmp_path / "file"), b"content")
    assert synced


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failing_disk_is_reported(tmp_path, monkeypatch, code):
    def broken(_):
        raise OSError(code, "disk")

    monkeypatch.setattr(os, "fsync", broken)
    for name, write in WRITERS.items():
        with pytest.raises(OSError, match="disk"):
            write(str(tmp_path / name), b"content")


def test_output_that_is_no_file_is_written(capfd):
    write_bytes("/dev/stdout", b"content")
    assert capfd.readouterr().out == "content"


# What others can put in the way: a pipe nobody writes to, or a file without end.


@pytest.fixture(params=["pipe", "endless"])
def in_the_way(request, tmp_path):
    path = tmp_path / "file"
    if request.param == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.touch(0o600)
        os.truncate(path, 1 << 40)
    return str(path)


def test_a_file_is_not_written_over_it(in_the_way):
    with pytest.raises(ProtocolError, match="must be written once"):
        write_once(in_the_way, b"content")


def test_it_is_no_key(in_the_way):
    with pytest.raises(ConfigError, match="key_uri must be a readable file"):
        read_key(in_the_way)


def test_a_kept_key_is_looked_for_without_harm(in_the_way):
    with kept_key(in_the_way):
        pass
    with pytest.raises(ConfigError, match="key_uri must be a new writable file"):
        create_key(in_the_way)
    assert os.path.exists(in_the_way)
    assert not os.path.isfile(in_the_way) or os.path.getsize(in_the_way) == 1 << 40


def test_an_empty_key_of_a_killed_run_is_made_again(tmp_path):
    (tmp_path / "key").touch(0o600)
    with kept_key(str(tmp_path / "key")) as place:
        assert len(read_key(place)) == 32
