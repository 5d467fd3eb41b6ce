"""Progress while rows are read: shares and seconds, now and then, and never a number of rows."""

import logging
import re

import pytest

from dapple_dp.pipelines.run import graph
from dapple_dp.transforms.files.signals.progress import Progress, duration
from dapple_dp.transforms.rounds import shard_sums
from dapple_dp.transforms.tables import read, shard_rows
from tests.scenes import lake


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, logger="dapple_dp")
    return lambda: [record.getMessage() for record in caplog.records]


def read_shards(found, clock, n_shards, seconds):
    for _ in range(n_shards):
        with found.reading(100):
            clock.now += seconds


def test_shares_and_seconds_left_are_logged_every_ten_seconds(told):
    clock = Clock()
    found = Progress(clock=clock)
    with found.pipeline():
        found.found(1000)
        read_shards(found, clock, 10, 4.0)
        read_shards(found, clock, 10, 1.0)
    assert told() == [
        "pass 1 over the rows: 30% read, about 28 s left",
        "pass 1 over the rows: 60% read, about 16 s left",
        "pass 1 over the rows: 90% read, about 4 s left",
        "pass 2 over the rows: 60% read, about 4 s left",
    ]


def test_a_fast_pipeline_and_two_at_once_say_nothing(told):
    clock = Clock()
    found = Progress(clock=clock)
    with found.pipeline():
        found.found(1000)
        read_shards(found, clock, 10, 0.1)
        with found.pipeline():
            found.found(1000)
            read_shards(found, clock, 5, 100.0)
            found.step("one")
    assert told() == []


def test_without_a_pipeline_of_its_own_a_process_says_nothing(told):
    """A worker process does not see all rows."""
    clock = Clock()
    found = Progress(clock=clock)
    found.found(1000)
    read_shards(found, clock, 5, 100.0)
    assert told() == []


def test_what_failed_is_not_counted(told):
    clock = Clock()
    found = Progress(clock=clock)
    with found.pipeline():
        found.found(300)
        with pytest.raises(OSError, match="gone"), found.reading(100):
            raise OSError("gone")
        read_shards(found, clock, 2, 20.0)
    assert told() == [
        "pass 1 over the rows: 33% read, about 40 s left",
        "pass 1 over the rows: 66% read, about 20 s left",
    ]


def test_a_step_is_logged_once(told):
    found = Progress(clock=Clock())
    with found.pipeline():
        found.step("one")
        found.step("one")
        found.step("two")
    assert told() == ["one", "two"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "about 0 s"), (89.0, "about 89 s"), (600.0, "about 10 min"), (10800.0, "about 3 h")]
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_fit_logs_shares_and_no_number_of_rows(tmp_path, monkeypatch):
    """Rows are read in the first round and kept for the others, and every round is a pass."""
    clock = Clock()
    found = Progress(seconds=-1.0, clock=clock)
    for module in (read, shard_rows, shard_sums, graph):
        monkeypatch.setattr(module, "PROGRESS", found)
    data = lake.write_lake(tmp_path / "lake", lake.mixture(331), n_files=4)
    job = lake.job(data, None, algorithm="dp_lloyd", dp_lloyd={"domain": [-3, 8], "steps": 2})
    outcome = lake.run_job({name: job[name] for name in job.keys() - {"clipping", "feddp_kmeans"}}, tmp_path)
    assert outcome.code == 0, outcome.err
    passes = {int(number) for number in re.findall(r"pass (\d+) over the rows: \d+% read", outcome.err)}
    assert {1, 2} <= passes
    assert not re.search(r"\b331\b", outcome.err)
