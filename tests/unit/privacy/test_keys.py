"""The run key on a local disk: made once, read by its owner only, deleted for good."""

import os
import stat
import subprocess
import sys

import pytest
from apache_beam.internal import pickler
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core import keys
from dapple_dp.transforms.on_beam import noise_stage
from dapple_dp.transforms.privacy import key_files


@pytest.fixture
def uri(tmp_path) -> str:
    return str(tmp_path / "run.key")


def test_a_new_key_is_32_bytes_that_only_the_owner_may_read(uri):
    previous = os.umask(0)
    try:
        key_files.create_key(uri)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(os.stat(uri).st_mode) == 0o600
    assert os.path.getsize(uri) == keys.KEY_BYTES == 32
    with open(uri, "rb") as file:
        assert key_files.read_key(uri) == file.read()


def test_no_two_keys_are_equal(tmp_path):
    uris = [str(tmp_path / name) for name in "ab"]
    for each in uris:
        key_files.create_key(each)
    assert key_files.read_key(uris[0]) != key_files.read_key(uris[1])


def test_an_existing_file_is_refused_and_kept(uri):
    key_files.create_key(uri)
    before = key_files.read_key(uri)
    with pytest.raises(ConfigError, match="key_uri must be a new writable file"):
        key_files.create_key(uri)
    assert key_files.read_key(uri) == before


def test_a_dangling_link_is_refused(tmp_path, uri):
    os.symlink(tmp_path / "elsewhere", uri)
    with pytest.raises(ConfigError, match="new writable file"):
        key_files.create_key(uri)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="new writable file"):
        key_files.create_key(str(tmp_path / "missing" / "run.key"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o777])
def test_a_key_that_others_may_touch_is_refused(uri, mode):
    key_files.create_key(uri)
    os.chmod(uri, mode)
    with pytest.raises(ConfigError, match=r"mode 0600, but others can read it; run chmod 600"):
        key_files.read_key(uri)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_modes_of_the_owner_alone_are_read(uri, mode):
    key_files.create_key(uri)
    os.chmod(uri, mode)
    assert len(key_files.read_key(uri)) == 32


@pytest.mark.parametrize("content", [b"", b"k" * 31, b"k" * 33, b"6b" * 32])
def test_another_length_is_refused_without_a_word_of_the_content(uri, content):
    with open(uri, "wb") as file:
        file.write(content)
    os.chmod(uri, 0o600)
    with pytest.raises(ConfigError, match=f"exactly 32 bytes, got {len(content)}") as refused:
        key_files.read_key(uri)
    assert not content or content.decode() not in str(refused.value)


def test_a_missing_key_is_refused(uri):
    with pytest.raises(ConfigError, match="key_uri must be a readable file"):
        key_files.read_key(uri)


def test_a_deleted_key_is_gone_and_may_be_deleted_again(uri):
    key_files.create_key(uri)
    key_files.delete_key(uri)
    assert not os.path.exists(uri)
    key_files.delete_key(uri)


def test_a_key_of_a_run_is_one_block_of_hkdf_under_the_kept_key(uri):
    key_files.create_key(uri)
    kept, place = key_files.read_key(uri), keys.run_place(uri, "run", bytes(range(32)))
    assert (keys.is_run_place(place), keys.is_run_place(uri)) == (True, False)
    salt = bytes.fromhex(place.partition("#run=")[2])
    info = keys.encode_label("dapple: key of a run", salt)
    assert key_files.read_key(place) == HKDFExpand(SHA256(), 32, info).derive(kept)


def test_the_key_of_a_window_is_its_own_and_that_of_no_run():
    kept = bytes(range(32))
    found = {keys.window_key(kept, *interval) for interval in ((0, 60), (60, 120), (0, 120), (-60, 0))}
    assert len(found | {kept}) == 5
    info = keys.encode_label("dapple: key of a window", 0, 60)
    assert keys.window_key(kept, 0, 60) == HKDFExpand(SHA256(), 32, info).derive(kept)
    assert {len(each) for each in found} == {32}
    assert keys.window_key(bytes(32), 0, 60) not in found


def test_a_pickled_stage_finds_its_key_in_a_process_that_has_imported_nothing(uri):
    key_files.create_key(uri)
    stage = noise_stage._AddNoiseFn("plan", key_files.KeyFile(uri))
    stage.setup()
    pickled = pickler.dumps(stage)
    words = (
        "import sys; from apache_beam.internal import pickler; stage = pickler.loads(sys.stdin.buffer.read()); "
        "assert stage._key is None; stage.setup(); sys.stdout.buffer.write(stage._held_key())"
    )
    found = subprocess.run([sys.executable, "-c", words], input=pickled, capture_output=True, check=True)
    assert found.stdout == stage._held_key()
