"""A process that adds up starts without Beam, and imports it with the first shard that lies on a store."""

import sys

import numpy as np
import pytest

from schemas.tables.shard import EMPTY_SHARD, ShardRef
from transforms.files import stores
from transforms.rounds.row_cache import NO_LIMITS, WorkerLimits
from transforms.rounds.shard_sums import ShardReader, contract_digest, drain_shards

OPTIONS = {"region": "somewhere"}


def beam_is_here():
    return any(name.partition(".")[0] == "apache_beam" for name in sys.modules)


def with_beam(question):
    """A statistic, and whether Beam was imported for it."""
    return drain_shards(question), beam_is_here()


def options_of_stores(_):
    """Whether Beam was there before stores were asked for, and what they are told then."""
    before = beam_is_here()
    return before, stores._filesystems()._pipeline_options


def of_store(question):
    """The statistic of shards whose file is put on a store of this process first."""
    before = beam_is_here()
    from tests.scenes.stores import Store

    path, content, part = question
    Store.objects[path] = content
    return drain_shards(part), before


@pytest.fixture
def world(tmp_path):
    """A fit, and the shard of its rows."""
    from tests.scenes import lake
    from transforms.tables.file_seal import seal_of

    path = lake.write_lake(tmp_path / "lake", lake.mixture(60))
    server = lake.write_server(tmp_path / "server.parquet")
    file = f"{path}/part-00.parquet"
    fit = lake.planned(lake.job(path, server, "record", quality={}, lloyd={"steps": 1}))
    return fit, ShardRef(file, 0, 60, 1, 0, file, seal_of(file).text)


def reader(fit, limits=NO_LIMITS):
    bound = fit.rounds[0]._replace(step=None)
    identity = contract_digest(fit.contract)
    return ShardReader(contract=fit.contract, identity=identity, round=bound, state=fit.initial, limits=limits)


@pytest.mark.parametrize("limits", [NO_LIMITS, WorkerLimits(run="a", cores=1, cache_bytes=1 << 20)])
def test_rows_on_a_disk_are_added_up_without_beam(process, world, limits):
    fit, shard = world
    question = reader(fit, limits), [EMPTY_SHARD, shard]
    found, beam = process("with_beam").answer(question)
    np.testing.assert_array_equal(found, drain_shards(question))
    assert found.any()
    assert not beam


def test_stores_are_told_the_flags_of_the_job_when_the_first_is_met(process, monkeypatch):
    from apache_beam.io.filesystems import FileSystems

    monkeypatch.setattr(FileSystems, "_pipeline_options", OPTIONS)
    assert process("options_of_stores").answer(0) == (False, OPTIONS)


def test_rows_on_a_store_are_added_up_as_those_on_a_disk(process, world):
    from tests.scenes.stores import Store, store
    from transforms.tables.file_seal import seal_of

    fit, shard = world
    with open(shard.file, "rb") as file:
        content = file.read()
    with store() as root:
        path = f"{root}lake/part-00.parquet"
        Store.objects[path] = content
        there = ShardRef(path, 0, 60, 1, 0, path, seal_of(path).text)
    found, before = process("of_store").answer((path, content, (reader(fit), [there])))
    np.testing.assert_array_equal(found, drain_shards((reader(fit), [shard])))
    assert not before
