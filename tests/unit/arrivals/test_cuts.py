"""Cuts of windows, without a broker: records join, are written once, and don't depend on when one asks."""

import dataclasses
import pathlib

import numpy as np
import pytest

from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.tables.arrivals.broker import TopicState, check_id, check_settings
from dapple_dp.pipelines.tables.arrivals.landing import Landing, check_kept
from dapple_dp.pipelines.tables.arrivals.records import Records
from dapple_dp.schemas.arrivals.topic import MessageColumns
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.transforms.arrivals.consume import TopicClient

DAY = 86_400_000
START = 1_767_225_600_000
DATES = tuple(f"2026-01-{day:02d}" for day in range(1, 8))
STATE = TopicState("id", 2, {"retention.ms": "-1"})


@dataclasses.dataclass
class Log:
    """A broker: for each partition the times at which messages were appended, in their order."""

    times: list[list[int]]

    def bounds(self, partitions):
        return [(0, len(each)) for each in self.times[:partitions]]

    def cut(self, milliseconds, partitions):
        return [next((at for at, t in enumerate(each) if t >= milliseconds), len(each)) for each in self.times]


@pytest.fixture
def records(tmp_path):
    client = TopicClient("localhost:1", "visits", "")
    return Records(client=client, folder=str(tmp_path), epoch="e", days=1, first=DATES[0])


def cut_all(records, log, dates=DATES):
    found, before = [], None
    for date in dates:
        before = records.cut(log, STATE, date, before)
        found.append(before)
    return found


def test_every_message_is_in_the_window_of_its_time(records):
    times = [[START - 5, START, START + DAY - 1, START + DAY], [START + 3 * DAY, START + 3 * DAY + 1]]
    found = cut_all(records, Log(times))
    ranges = [[(each.first, each.end) for each in record.ranges] for record in found]
    assert ranges[:4] == [[(1, 3), (0, 0)], [(3, 4), (0, 0)], [(4, 4), (0, 0)], [(4, 4), (0, 2)]]
    assert all(first == end for record in ranges[4:] for first, end in record)


def test_a_record_is_not_asked_for_again(records):
    """Messages that are appended later, with any time, change no record."""
    log = Log([[START], [START + 1]])
    first = cut_all(records, log, DATES[:1])
    log.times[0] += [START, START + DAY]
    assert cut_all(records, log, DATES[:1]) == first
    later = records.cut(log, STATE, DATES[1], first[0])
    assert [(each.first, each.end) for each in later.ranges] == [(1, 3), (1, 1)]


def test_a_message_more_moves_no_other(records, tmp_path):
    """Neighbors: one message more at any place. All others stay in their windows, whatever the time that it has."""
    times = [START + (DAY // 3) * step for step in range(15)]

    def windows(log, folder):
        own = dataclasses.replace(records, folder=str(tmp_path / folder))
        return [range(record.ranges[0].first, record.ranges[0].end) for record in cut_all(own, log)]

    whole = windows(Log([times, []]), "whole")
    for place in range(15):
        more = [*times[:place], times[place], *times[place:]]
        found = windows(Log([more, []]), f"more-{place}")
        shifted = [[at - (at > place) for at in window if at != place] for window in found]
        assert shifted == [list(window) for window in whole]


def test_records_of_another_topic_or_calendar_are_refused(records):
    log = Log([[START], []])
    (first,) = cut_all(records, log, DATES[:1])
    for change in ({"days": 2}, {"client": TopicClient("localhost:1", "others", "")}):
        with pytest.raises(InputError, match="one of another topic or window"):
            dataclasses.replace(records, **change).found(DATES[0])
    with pytest.raises(InputError, match="must be the one that the windows began with"):
        records.cut(log, STATE._replace(topic_id="new"), DATES[1], first)
    with pytest.raises(InputError, match="got nothing"):
        records.kept(DATES[3])


def test_a_record_that_does_not_begin_where_the_one_before_ends_is_refused(records):
    """Messages between them would be in no window, or in two."""
    log = Log([[START, START + DAY], []])
    first, second = cut_all(records, log, DATES[:2])
    for begin in (0, 2):
        ranges = (second.ranges[0].model_copy(update={"first": begin}), second.ranges[1])
        other = second.model_copy(update={"ranges": ranges}).model_dump_json()
        pathlib.Path(records.path(DATES[1])).write_text(other)
        with pytest.raises(InputError, match="one that does not follow the window before"):
            records.cut(log, STATE, DATES[1], first)


def test_a_partition_that_is_new_is_read_from_its_start(records):
    first = records.cut(Log([[START]]), STATE._replace(partitions=1), DATES[0], None)
    second = records.cut(Log([[START], [START + DAY] * 3]), STATE, DATES[1], first)
    assert [(each.first, each.end) for each in second.ranges] == [(1, 1), (0, 3)]


@pytest.mark.parametrize("seed", range(20))
def test_clocks_that_go_back_lose_and_double_nothing(records, seed):
    """Times of appending in any order, and messages between two calls: every one after the start is in one window."""
    rng, log, found = np.random.default_rng(seed), Log([[], []]), list[list[range]]()
    before = None
    for step, date in enumerate(DATES):
        for times in log.times:
            times += (START + DAY * rng.uniform(step - 2, step + 2, rng.integers(0, 6))).astype(int).tolist()
        if rng.random() < 0.3:
            assert cut_all(records, log, DATES[:step]) == [records.kept(each) for each in DATES[:step]]
        before = records.cut(log, STATE, date, before)
        found.append([range(each.first, each.end) for each in before.ranges])
    for partition, times in enumerate(log.times):
        offsets = [at for window in found for at in window[partition]]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
        assert len(offsets) <= len(times)


def test_a_log_that_was_cut_short_gives_no_offset_twice(records):
    """A broker that comes back without its last messages: what a window has stays, and the next one begins after it."""
    log = Log([[START, START + 1, START + 2], []])
    (first,) = cut_all(records, log, DATES[:1])
    del log.times[0][1:]
    second = records.cut(log, STATE, DATES[1], first)
    assert [(each.first, each.end) for each in second.ranges] == [(3, 3), (0, 0)]
    with pytest.raises(InputError, match="the broker has dropped some"):
        check_kept(records.client, log, [first])


class Kept(Log):
    """A broker that has dropped the first three messages of its first partition."""

    def bounds(self, partitions):
        return [(3, len(self.times[0])), (0, len(self.times[1]))]

    def cut(self, milliseconds, partitions):
        return [max(3, super().cut(milliseconds, partitions)[0]), super().cut(milliseconds, partitions)[1]]


def test_a_first_window_that_the_broker_may_have_cut_is_refused(records, tmp_path):
    """Nothing shows whether messages that are gone were of it, unless the broker must have kept those."""
    times = [[START - 2, START + 1, START + 2, START + 3], []]
    week = STATE._replace(settings={"retention.ms": str(7 * DAY)})
    with pytest.raises(InputError, match="the broker has dropped some"):
        records.cut(Kept(times), week, DATES[0], None)
    assert records.found(DATES[0]) is None
    records.cut(Kept([[START - 9, START - 8, START - 7, START - 6, START], []]), week, DATES[0], None)
    for state in (STATE, week._replace(settings={"retention.ms": str(3_650 * DAY)})):
        own = dataclasses.replace(records, folder=str(tmp_path / state.settings["retention.ms"]))
        own.cut(Kept(times), state, DATES[0], None)


@pytest.mark.parametrize("topic_id", ["AAAAAAAAAAAAAAAAAAAAAA", "None", ""])
def test_a_topic_without_an_id_is_refused(topic_id):
    """An old broker: a recreated topic of the same name would be taken for it."""
    check_id("visits", "AAb-cdefghijklmnopqrsA")
    with pytest.raises(ConfigError, match="the topic visits has no id"):
        check_id("visits", topic_id)


def test_a_folder_of_copies_is_of_one_job_at_a_time(records):
    """The second would remove what the first is about to read; a job that is over, or was killed, holds nothing."""
    columns, options = MessageColumns((), "x", "", 80), beam_options([])
    first, second = (
        Landing(records=records, columns=columns, column="dt", setting="data.path", options=options) for _ in range(2)
    )
    for _ in range(2):
        with first.alone(), pytest.raises(ConfigError, match="must be used by one job at a time"), second.alone():
            raise AssertionError("both")
    with second.alone():
        second.check("/elsewhere")


def test_dropped_messages_are_noticed(records):
    found = cut_all(records, Log([[START, START + 1], []]), DATES[:1])
    client = records.client
    check_kept(client, Log([[1, 2], []]), found)

    class Dropped(Log):
        def bounds(self, partitions):
            return [(1, 2), (0, 0)]

    with pytest.raises(InputError, match="the broker has dropped some"):
        check_kept(client, Dropped([[], []]), found)
    with pytest.raises(InputError, match="the broker has dropped some"):
        check_kept(client, Log([[1], []]), found)


KEPT = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
    "retention.ms": str(5 * DAY),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("text", ["", None, "other"])
def test_a_topic_of_which_the_broker_does_not_say_how_it_is_kept_is_refused(name, text):
    check_settings("visits", KEPT, 5)
    with pytest.raises(ConfigError, match=f"^{name} of the topic visits must be"):
        check_settings("visits", KEPT | {name: text}, 5)
    with pytest.raises(ConfigError, match=f"^{name} of the topic visits must be .*, got nothing"):
        check_settings("visits", {other: said for other, said in KEPT.items() if other != name}, 5)


def test_messages_are_kept_for_as_long_as_they_are_read():
    check_settings("visits", KEPT | {"retention.ms": "-1"}, 10_000)
    with pytest.raises(ConfigError, match="or at least"):
        check_settings("visits", KEPT, 6)
