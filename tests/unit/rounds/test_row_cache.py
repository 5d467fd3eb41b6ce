"""Rows that a worker keeps: the same rows again, within their bounds, and nothing of them left behind."""

import errno
import os
import stat

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.rounds import machine, row_cache
from dapple_dp.transforms.rounds.row_cache import RowCache, WorkerLimits

BLOCKS = [ClientBlock(np.arange(12 * n, dtype=np.int32).reshape(-1, 3), np.arange(2)) for n in (1, 2, 3)]
N_BYTES = sum(block.points.nbytes + block.offsets.nbytes for block in BLOCKS)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(row_cache.tempfile, "tempdir", None)
    monkeypatch.setattr(machine, "free_disk", lambda file: os.statvfs(file) and 1 << 40)
    return tmp_path


def fill(cache, key="shard", blocks=BLOCKS):
    return list(cache.filled(key, iter(blocks)))


def kept(cache, key="shard"):
    return [cache.load(piece) for piece in cache.pieces(key)]


def in_memory():
    cache = RowCache(4 * N_BYTES)
    assert cache._memory >= N_BYTES
    return cache


def in_file():
    cache = RowCache(8 * N_BYTES)
    cache._memory = 100
    cache._disk = 1 << 20
    return cache


@pytest.mark.parametrize("make", [in_memory, in_file])
def test_the_same_rows_come_back(make):
    cache = make()
    assert fill(cache) == BLOCKS
    for found, block in zip(kept(cache), BLOCKS, strict=True):
        np.testing.assert_array_equal(found.points, block.points)
        np.testing.assert_array_equal(found.offsets, block.offsets)
    assert cache.pieces("another") is None


def test_the_file_has_no_name_and_one_owner(folder):
    cache = in_file()
    fill(cache)
    found = os.fstat(cache._file.fileno())
    assert (found.st_nlink, stat.S_IMODE(found.st_mode) & 0o077) == (0, 0)
    assert list(folder.iterdir()) == []


def test_a_bound_is_kept():
    cache = RowCache(N_BYTES // 2)
    assert fill(cache) == BLOCKS
    assert cache.pieces("shard") is None
    assert cache._memory == N_BYTES // 2 // 4
    assert cache._end <= cache._disk


def test_a_disk_that_is_nearly_full_gets_nothing(monkeypatch):
    monkeypatch.setattr(machine, "free_disk", lambda _: 0)
    cache = in_file()
    assert fill(cache) == BLOCKS
    assert cache.pieces("shard") is None


@pytest.mark.parametrize("name", ["pwrite", "statvfs"])
def test_a_disk_that_refuses_costs_nothing_but_time(monkeypatch, name):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, name, refuse)
    cache = in_file()
    assert fill(cache) == BLOCKS
    assert cache.pieces("shard") is None
    assert cache._memory == 100


def test_no_folder_for_the_file_costs_nothing_but_time(monkeypatch):
    def refuse(**_):
        raise FileNotFoundError(errno.ENOENT, "no folder")

    monkeypatch.setattr(row_cache.tempfile, "TemporaryFile", refuse)
    cache = in_file()
    assert fill(cache) == BLOCKS
    assert cache.pieces("shard") is None


def test_a_disk_may_take_and_give_a_few_bytes_at_a_time(monkeypatch):
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda file, raw, offset: write(file, raw[:7], offset))
    monkeypatch.setattr(os, "preadv", lambda file, views, offset: read(file, [views[0][:5]], offset))
    cache = in_file()
    fill(cache)
    np.testing.assert_array_equal(kept(cache)[2].points, BLOCKS[2].points)
    assert cache.pieces("shard")[2].rows is None


def test_a_file_that_was_cut_is_noticed():
    cache = in_file()
    fill(cache)
    os.ftruncate(cache._file.fileno(), 20)
    with pytest.raises(OSError, match="is too short"):
        kept(cache)


def test_a_shard_that_cannot_be_read_to_its_end_is_not_kept():
    def broken():
        yield BLOCKS[0]
        raise ValueError("another file")

    cache = in_memory()
    room = cache._memory
    with pytest.raises(ValueError, match="another file"):
        list(cache.filled("shard", broken()))
    assert cache.pieces("shard") is None
    assert cache._memory == room


def test_a_shard_that_nobody_reads_to_its_end_is_not_kept():
    cache = in_memory()
    room, blocks = cache._memory, cache.filled("shard", iter(BLOCKS))
    next(blocks)
    blocks.close()
    assert cache.pieces("shard") is None
    assert cache._memory == room


def test_the_first_of_two_workers_on_a_shard_counts():
    cache = in_memory()
    cache._memory = 3 * N_BYTES
    fill(cache)
    room = cache._memory
    fill(cache, blocks=BLOCKS[:1])
    assert len(cache.pieces("shard")) == len(BLOCKS)
    assert cache._memory == room


def test_rows_of_a_run_go_with_it():
    caches = row_cache._Caches(end=lambda _: None)
    own, other = (WorkerLimits(run=name, cache_bytes=1 << 20) for name in ("own", "other"))
    with caches.held("own"):
        cache = caches.of_run(own)
        assert caches.of_run(other) is not cache
        assert caches.of_run(own) is cache
    assert caches.of_run(own) is not cache
    caches.of_run(other)
    assert set(caches._kept) == {"other"}
    assert caches.of_run(WorkerLimits(run="own")) is None
