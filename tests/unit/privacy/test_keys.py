"""The run key on a local disk: made once, read by its owner only, deleted for good."""

import os
import stat

import pytest

from schemas.errors import ConfigError
from transforms.privacy import keys


@pytest.fixture
def uri(tmp_path) -> str:
    return str(tmp_path / "run.key")


def test_a_new_key_is_32_bytes_that_only_the_owner_may_read(uri):
    previous = os.umask(0)
    try:
        keys.create_key(uri)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(os.stat(uri).st_mode) == 0o600
    assert os.path.getsize(uri) == keys.KEY_BYTES == 32
    with open(uri, "rb") as file:
        assert keys.read_key(uri) == file.read()


def test_no_two_keys_are_equal(tmp_path):
    uris = [str(tmp_path / name) for name in "ab"]
    for each in uris:
        keys.create_key(each)
    assert keys.read_key(uris[0]) != keys.read_key(uris[1])


def test_an_existing_file_is_refused_and_kept(uri):
    keys.create_key(uri)
    before = keys.read_key(uri)
    with pytest.raises(ConfigError, match="key_uri must be a new writable file"):
        keys.create_key(uri)
    assert keys.read_key(uri) == before


def test_a_dangling_link_is_refused(tmp_path, uri):
    os.symlink(tmp_path / "elsewhere", uri)
    with pytest.raises(ConfigError, match="new writable file"):
        keys.create_key(uri)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="new writable file"):
        keys.create_key(str(tmp_path / "missing" / "run.key"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o777])
def test_a_key_that_others_may_touch_is_refused(uri, mode):
    keys.create_key(uri)
    os.chmod(uri, mode)
    with pytest.raises(ConfigError, match=r"mode 0600, got one that others may read; chmod 600"):
        keys.read_key(uri)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_modes_of_the_owner_alone_are_read(uri, mode):
    keys.create_key(uri)
    os.chmod(uri, mode)
    assert len(keys.read_key(uri)) == 32


@pytest.mark.parametrize("content", [b"", b"k" * 31, b"k" * 33, b"6b" * 32])
def test_another_length_is_refused_without_a_word_of_the_content(uri, content):
    with open(uri, "wb") as file:
        file.write(content)
    os.chmod(uri, 0o600)
    with pytest.raises(ConfigError, match=f"exactly 32 bytes, got {len(content)}") as refused:
        keys.read_key(uri)
    assert not content or content.decode() not in str(refused.value)


def test_a_missing_key_is_refused(uri):
    with pytest.raises(ConfigError, match="key_uri must be a readable file"):
        keys.read_key(uri)


def test_a_deleted_key_is_gone_and_may_be_deleted_again(uri):
    keys.create_key(uri)
    keys.delete_key(uri)
    assert not os.path.exists(uri)
    keys.delete_key(uri)
