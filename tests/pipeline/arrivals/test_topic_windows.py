"""Windows of a topic: cut by the broker's time of appending, written down, read exactly, released once."""

import json
import shutil

import pytest

from dapple_dp.pipelines.tables.arrivals import window_rows
from dapple_dp.pipelines.tables.arrivals.broker import connected
from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.arrivals.consume import TopicClient, messages
from dapple_dp.transforms.files import claims
from tests.scenes import lake
from tests.scenes.brokers import DAY, START, Killed, StreamPlace, Topic, equal_noise, kill, row_message

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]
DATES = tuple(f"2026-01-0{day}" for day in range(1, 5))
ROWS = {day: lake.mixture(240, seed=day) for day in (0, 1, 3)}
"""Nobody comes on the third day."""


@pytest.fixture(scope="module")
def place(broker, tmp_path_factory):
    found = StreamPlace(tmp_path_factory.mktemp("streams"))
    for day, points in ROWS.items():
        lake.write_lake(found.folder / "lake" / f"dt={DATES[day]}", points)
    with equal_noise():
        outcome = found.stream("folders", None, data=found.folder / "lake")
        assert outcome.code == 0, outcome.err
        yield found


@pytest.fixture
def topic(broker):
    """The rows of the lake as messages, after one of the year before and before one of a day that is not due."""
    found = Topic(broker)
    found.send([(0, START - 1, row_message([7.0] * 4)), (1, START - DAY, b"{")])
    found.send_days(ROWS)
    found.send([(2, START + 4 * DAY, row_message([7.0] * 4))])
    return found.closed()


def test_messages_give_the_releases_of_the_same_rows_in_folders(place, topic):
    """Under the same key equal exact sums give equal bytes: nothing is lost, doubled, or in another window."""
    outcome = place.stream("equal", topic)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["released"] == list(DATES)
    assert place.released("equal") == place.released("folders")
    assert place.private_files("equal") == [f"_offsets/epoch/{date}.json" for date in DATES]
    assert topic.committed("dapple-epoch") == [241, 241, 240]


def test_offsets_that_did_not_move_are_shown_to_the_operator_alone(place, topic, tmp_path):
    """The window of the third day is released, and nothing that is exported differs."""
    outcome = place.stream("silent", topic, "--metrics", str(tmp_path / "m.prom"), expected_rows=200)
    assert outcome.code == 67, outcome.err
    assert place.released("silent") == place.released("folders")
    runs = json.loads((place.folder / "silent" / "out.operator.json").read_text())["runs"]
    assert [note for each in runs for note in each["notes"]] == [f"{DATES[2]}: the offsets of the topic did not move"]
    assert runs[-1]["dapple_window_messages"] == dict(zip(DATES, (240.0, 240.0, 0.0, 240.0), strict=True))
    assert "message" not in (tmp_path / "m.prom").read_text()


def test_an_epoch_in_several_calls_is_that_of_one_call(place, topic):
    """Until a date, and the rest; then nothing is due."""
    for until, released in ((DATES[1], DATES[:2]), (DATES[3], DATES[2:]), (DATES[3], ())):
        outcome = place.stream("calls", topic, until=until)
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out)["released"] == list(released)
    assert place.released("calls") == place.released("folders")


def test_resetting_the_offsets_of_a_group_decides_nothing(place, topic):
    """They are sent to the broker for its tools; which messages a window has stands in its record."""
    assert place.stream("reset", topic, until=DATES[1]).code == 0
    with connected(TopicClient(topic.broker.servers, topic.name, ""), "dapple-epoch") as asked:
        asked.commit({0: 0, 1: 3, 2: 9_999})
    assert place.stream("reset", topic).code == 0
    assert place.released("reset") == place.released("folders")


def test_a_second_launcher_is_refused_while_the_first_reads(place, topic, monkeypatch):
    """It would remove the copies that the first is about to read, who would release a window without them."""
    said, ready = [], window_rows.TopicRows.ready

    def second(rows, index):
        found = ready(rows, index)
        if not said:
            said.append(place.stream("two", topic))
        return found

    monkeypatch.setattr(window_rows.TopicRows, "ready", second)
    assert place.stream("two", topic).code == 0
    assert said[0].code == 2
    assert "data.path must be used by one job at a time" in said[0].lines[-1]
    assert place.released("two") == place.released("folders")


def test_a_topic_that_is_altered_while_it_is_read_is_refused(place, topic, monkeypatch):
    """Messages may have been compacted away before they were copied; nothing is drawn."""
    copy = window_rows.Landing.copy

    def altered(landing, dates):
        copy(landing, dates)
        topic.alter(cleanup_policy="compact")

    monkeypatch.setattr(window_rows.Landing, "copy", altered)
    outcome = place.stream("compacts", topic, until=DATES[0])
    assert outcome.code == 2
    assert "cleanup.policy of the topic" in outcome.lines[-1]
    assert not place.released("compacts")


@pytest.mark.parametrize("point", ["cut", "copied", "released"])
def test_a_retry_reads_what_was_written_down(place, topic, point, monkeypatch):
    """An attempt ends after the cut, after the copy, or after the release; messages that arrive then change nothing."""
    name = f"ends-{point}"
    with monkeypatch.context() as patch:
        if point == "cut":
            patch.setattr(window_rows.Landing, "copy", kill)
        elif point == "copied":
            patch.setattr("dapple_dp.pipelines.kmeans.stream.job.run_settings", kill)
        else:
            patch.setattr(window_rows.TopicRows, "released", kill)
        with pytest.raises(Killed):
            place.stream(name, topic)
    records = {each: each.read_bytes() for each in place.record(name, DATES[0]).parent.iterdir()}
    assert [each.name for each in records] == [f"{DATES[0]}.json"]
    topic.alter(message_timestamp_type="CreateTime")
    topic.send([(0, START + DAY // 2, row_message([7.0] * 4))] * 50)
    topic.closed()
    assert place.stream(name, topic, until=DATES[0]).code == 0
    assert place.released(name)[DATES[0]] == place.released("folders")[DATES[0]]
    assert all(path.read_bytes() == content for path, content in records.items())


def test_copies_of_a_killed_call_go_when_nothing_is_due(place, topic, monkeypatch):
    """It had released the last window, and nobody would have copied there again; those of a job at work stay."""
    with monkeypatch.context() as patch:
        patch.setattr(window_rows.Landing, "remove", lambda *_: None)
        assert place.stream("left", topic, until=DATES[0]).code == 0
    left = place.private_files("left")
    assert [each for each in left if each.endswith(".parquet")]
    folder = place.folder / "left" / "copies" / "_offsets"
    with claims.alone_at(str(folder), "other", "data.path", str(folder)):
        assert place.stream("left", topic, until=DATES[0]).code == 0
    assert place.private_files("left") == left
    assert place.stream("left", topic, until=DATES[0]).code == 0
    assert place.private_files("left") == [f"_offsets/epoch/{DATES[0]}.json"]


def test_messages_appended_after_the_cut_are_in_the_next_window(place, broker, monkeypatch):
    """Each message is in one window, also one whose time says an earlier one."""
    topic = Topic(broker)
    topic.send_days({0: ROWS[0]})
    assert place.stream("late", topic.closed(), until=DATES[0]).code == 0
    topic.alter(message_timestamp_type="CreateTime")
    topic.send((index % 3, START, row_message(row)) for index, row in enumerate(ROWS[1]))
    assert place.stream("late", topic.closed(), until=DATES[1]).code == 0
    assert place.released("late") == {date: place.released("folders")[date] for date in DATES[:2]}


def test_a_new_partition_is_read_from_its_start(place, broker):
    from confluent_kafka.admin import NewPartitions

    topic = Topic(broker, partitions=1)
    topic.send_days({0: ROWS[0]})
    assert place.stream("grows", topic.closed(), until=DATES[0]).code == 0
    topic._admin.create_partitions([NewPartitions(topic.name, 3)])[topic.name].result(60)
    topic.partitions = 3
    topic.alter(message_timestamp_type="CreateTime").send_days({1: ROWS[1]})
    outcome = place.stream("grows", topic.closed(), until=DATES[1])
    assert outcome.code == 0, outcome.err
    assert place.released("grows") == {date: place.released("folders")[date] for date in DATES[:2]}


def test_transactions_count_when_they_are_committed(broker):
    """Aborted messages and the marks of transactions take offsets and are no rows; a range may end at one."""
    topic = Topic(broker, partitions=1)
    texts = [str(index).encode() for index in range(30)]
    for part, end in ((texts[:20], "commit"), (texts[:9], "abort"), (texts[20:], "commit"), (texts[:4], "abort")):
        topic.send([(0, START, text) for text in part], end)
    client = TopicClient(broker.servers, topic.name, "")
    with connected(client, "dapple-test") as asked:
        (bounds,) = asked.bounds(1)
    assert bounds == (0, 47)
    assert list(messages(client, 0, 0, 47)) == texts
    assert list(messages(client, 0, 18, 32)) == [*texts[18:20], texts[20]]
    assert list(messages(client, 0, 20, 31)) == []


def test_broken_messages_are_invalid_rows(place, broker):
    """Dropped where the job says so; else the job stops, and no message says how many there are."""
    topic = Topic(broker)
    broken = [b"", None, b"{", b"[]", b'{"x": [1, 2]}', b'{"x": [1, 2, 3, NaN]}', b'{"x": "1"}', b"[" * 9000]
    broken += [b'{"x": [1, 2, 3, 4], "more": "' + b"x" * 70_000 + b'"}']
    topic.send([(0, START + 1, each) for each in broken])
    topic.send_days({0: ROWS[0]})
    outcome = place.stream("dropped", topic.closed(), until=DATES[0])
    assert outcome.code == 0, outcome.err
    assert place.released("dropped")[DATES[0]] == place.released("folders")[DATES[0]]
    place.job["data"]["on_invalid_rows"] = "fail"
    try:
        outcome = place.stream("refused", topic, until=DATES[0])
    finally:
        place.job["data"]["on_invalid_rows"] = "drop"
    assert outcome.code == 2
    assert not {"249", "240", "89", "80"} & set(outcome.lines[-1].replace(",", " ").replace(".", " ").split())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"message_timestamp_type": "CreateTime"}, "message.timestamp.type of the topic"),
        ({"cleanup_policy": "compact"}, "cleanup.policy of the topic"),
        ({"retention_bytes": "1000000"}, "retention.bytes of the topic"),
        ({"unclean_leader_election_enable": "true"}, "unclean.leader.election.enable of the topic"),
        ({"retention_ms": str(4 * DAY - 1)}, "retention.ms of the topic"),
    ],
)
def test_topics_in_which_messages_move_each_other_are_refused(place, broker, settings, message):
    topic = Topic(broker, partitions=1).closed().alter(**settings)
    name = f"kept-{message.partition(' ')[0]}"
    outcome = place.stream(name, topic, until=DATES[0])
    assert outcome.code == 2
    assert outcome.lines[-1].startswith(f"dapple: {message}")
    assert not place.released(name)


def test_messages_that_the_broker_has_dropped_are_missed(place, topic):
    """A release adds up their window; nothing is drawn, and the sentence has no numbers of messages."""
    assert place.stream("forgets", topic, until=DATES[1]).code == 0
    topic.forget(0, 50)
    outcome = place.stream("forgets", topic)
    assert outcome.code == 2
    assert "must keep the messages of all windows" in outcome.lines[-1]
    assert list(place.released("forgets")) == list(DATES[:2])
    with pytest.raises(InputError, match="must keep the messages"):
        list(messages(TopicClient(topic.broker.servers, topic.name, ""), 0, 10, 60))


def test_a_recreated_topic_is_refused(place, broker):
    topic = Topic(broker, partitions=1)
    topic.send_days({0: ROWS[0]})
    assert place.stream("again", topic.closed(), until=DATES[0]).code == 0
    other = Topic(broker, partitions=1)
    other.send_days({0: ROWS[0], 1: ROWS[1]})
    record = place.record("again", DATES[0])
    record.write_text(record.read_text().replace(topic.name, other.name))
    outcome = place.stream("again", other.closed(), until=DATES[1])
    assert outcome.code == 2
    assert "got another one than the ledger's commit of that window names" in outcome.lines[-1]


@pytest.mark.parametrize("change", ["gone", "moved", "other"])
def test_records_that_were_changed_are_refused(place, topic, change):
    name = f"records-{change}"
    assert place.stream(name, topic, until=DATES[0]).code == 0
    record = place.record(name, DATES[0])
    content = json.loads(record.read_text())
    if change == "gone":
        record.unlink()
    elif change == "moved":
        record.write_text(json.dumps(content | {"window": DATES[1]}))
    else:
        record.write_text(json.dumps(content | {"ranges": content["ranges"][::-1]}))
    outcome = place.stream(name, topic, until=DATES[1])
    assert outcome.code == 2
    assert "must be the record of offsets that this job wrote" in outcome.lines[-1]
    assert list(place.released(name)) == [DATES[0]]


def test_copies_have_a_folder_of_their_own(place, topic):
    mine = place.folder / "data" / "dt=2026-01-01" / "mine.parquet"
    mine.parent.mkdir(parents=True)
    shutil.copy(next((place.folder / "rows").iterdir()), mine)
    outcome = place.stream("mine", topic, data=place.folder / "data")
    assert outcome.code == 2
    assert "must be a folder for copies of messages alone" in outcome.lines[-1]
    assert mine.exists()
    outcome = place.stream("inside", topic, data=place.folder / "inside" / "out" / "copies")
    assert outcome.code == 2
    assert "must be apart from --output" in outcome.lines[-1]


def test_a_copy_that_an_attempt_left_is_made_again(place, topic):
    """Copies are removed before anything else, a half-written one too, so that none counts twice."""
    left = place.folder / "left" / "copies" / f"dt={DATES[0]}"
    left.mkdir(parents=True)
    lake.write_lake(left, ROWS[1])
    next(left.iterdir()).rename(left / "part-00007-0000000.parquet")
    (left / f".part-00000-0000000.parquet.{'0' * 16}").write_bytes(b"PAR1")
    assert place.stream("left", topic, until=DATES[0]).code == 0
    assert place.released("left")[DATES[0]] == place.released("folders")[DATES[0]]
    assert not left.exists()


def test_a_job_waits_for_a_broker_that_restarts(place, topic, broker):
    broker.kill()
    broker.up()
    outcome = place.stream("restarts", topic, until=DATES[0])
    assert outcome.code == 0, outcome.err
    assert place.released("restarts")[DATES[0]] == place.released("folders")[DATES[0]]


def test_no_offset_is_said_or_published(place, topic):
    """Offsets count messages. None stands in what is released, in the log or in the last line."""
    outcome = place.stream("silent", topic, until=DATES[0])
    record = json.loads(place.record("silent", DATES[0]).read_text())
    assert [(each["first"], each["end"]) for each in record["ranges"]] == [(1, 81), (1, 81), (0, 80)]
    assert not {"80", "81", "240"} & set(f"{outcome.err} {outcome.out}".replace(",", " ").split())
    names = {each.name for each in (place.folder / "silent" / "out").rglob("*") if each.is_file()}
    assert names == {each.name for each in (place.folder / "folders" / "out").rglob("*") if each.is_file()}


def test_a_topic_that_is_not_there(place, broker, monkeypatch):
    topic = Topic(broker, partitions=1)
    outcome = place.stream("nowhere", topic, kafka={"topic": "nowhere"})
    assert outcome.code == 75
    assert "for the topic nowhere" in outcome.lines[-1]


def test_the_library_is_asked_for_where_it_is_used(place, topic, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"run pip install 'confluent-kafka[<>]"):
        TopicClient(topic.broker.servers, topic.name, "").settings()
