"""Reports of a topic: each window is a decode of the messages that the broker appended on its days, each once."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.jobs import waiting
from dapple_dp.pipelines.tables.arrivals import window_rows
from dapple_dp.schemas.reports.rows import to_table
from dapple_dp.transforms.reports.encode import keyed_reports
from tests.pipeline.kmeans.test_stream_waits import Clock
from tests.pipeline.reports.test_report_windows import DATES, EMPTY, MEANS, N_CLIENTS, SHUFFLED, put, released, reports
from tests.scenes import crashes, lake
from tests.scenes.brokers import DAY, START, Killed, Topic, kill
from tests.scenes.crashes import Point
from tests.scenes.reports import parameters

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]
TABLES = {0: reports(0), 2: reports(2)}
"""No report comes on the second day."""


def raw(table: pa.Table) -> list[bytes]:
    """Messages, as transforms/numerics/reports/FORMAT.md says."""
    payload = table.column(1).to_pylist()
    last = [each.to_bytes(2, "little") if isinstance(each, int) else each for each in payload]
    return [nonce.to_bytes(8, "little") + each for nonce, each in zip(table.column(0).to_pylist(), last, strict=True)]


def send(topic: Topic, tables: dict[int, pa.Table]) -> Topic:
    """Appends reports of days since the first, in turn over the partitions."""
    for day, table in tables.items():
        at = START + day * DAY + DAY // 2
        topic.send((index % topic.partitions, at, each) for index, each in enumerate(raw(table)))
    return topic


def words(folder, topic, output="models", *flags, **windows):
    calendar = {"name": "phones", "column": "dt", "first": DATES[0], "windows": len(DATES)} | windows
    calendar["kafka"] = {"servers": topic.broker.servers, "topic": topic.name}
    section = {"path": str(folder / "copies"), "parameters": str(folder / "parameters.json")}
    (folder / f"{output}.yaml").write_text(yaml.safe_dump({"reports": section, "windows": calendar}))
    return ("decode", "--config", str(folder / f"{output}.yaml"), "--output", str(folder / output), *flags)


def decode(folder, topic, output="models", **windows):
    return lake.run_command(*words(folder, topic, output, "--once", **windows))


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """Models of the same reports in folders."""
    folder = tmp_path_factory.mktemp("folders")
    for day, table in TABLES.items():
        put(folder, DATES[day], table)
    (folder / "inbox" / "parameters.json").write_text(parameters().to_json())
    calendar = {"name": "phones", "column": "dt", "first": DATES[0], "windows": len(DATES)}
    settings = {"reports": {"path": str(folder / "inbox")}, "windows": calendar}
    (folder / "job.yaml").write_text(yaml.safe_dump(settings))
    outcome = lake.run_command(
        "decode", "--once", "--config", str(folder / "job.yaml"), "--output", str(folder / "models")
    )
    assert outcome.code == 0, outcome.err
    return released(folder / "models")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "parameters.json").write_text(parameters().to_json())
    return tmp_path


@pytest.fixture
def topic(broker):
    """Reports of the windows, after one of the year before and before one of a day that is not due."""
    found = Topic(broker)
    found.send([(0, START - 1, raw(reports(7))[0])])
    send(found, TABLES)
    found.send([(2, START + 9 * DAY, raw(reports(8))[0])])
    return found.closed()


def test_reports_of_a_topic_give_the_models_of_the_same_reports_in_folders(place, topic, wanted):
    """All files have the same bytes; nothing but records of offsets is left of the messages."""
    outcome = decode(place, topic)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["released"] == list(DATES)
    assert released(place / "models") == wanted
    left = sorted(str(each.relative_to(place / "copies")) for each in (place / "copies").rglob("*") if each.is_file())
    assert left == [f"_offsets/phones/{date}.json" for date in DATES]
    assert sum(topic.committed("dapple-phones")) == 2 * N_CLIENTS + 1
    assert json.loads(decode(place, topic).out)["released"] == []


def test_a_job_that_waits_decodes_the_same(place, topic, wanted, monkeypatch):
    monkeypatch.setattr(waiting, "now", Clock("2026-01-01T05:00"))
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", 0.001)
    outcome = lake.run_command(*words(place, topic))
    assert outcome.code == 0, outcome.err
    assert sum("waiting for the window of" in line for line in outcome.lines) == 3
    assert released(place / "models") == wanted


@pytest.mark.parametrize("point", ["cut", "copied", "released"])
def test_a_retry_reads_what_was_written_down(place, topic, wanted, point, monkeypatch):
    """Reports that arrive after the cut change no window, whatever time they have; those decoded stay as they are."""
    with monkeypatch.context() as patch:
        if point == "cut":
            patch.setattr(window_rows.Landing, "copy", kill)
        elif point == "copied":
            patch.setattr("dapple_dp.pipelines.reports.windows.run_settings", kill)
        else:
            patch.setattr(window_rows.TopicRows, "released", kill)
        with pytest.raises(Killed):
            decode(place, topic)
    record = place / "copies" / "_offsets" / "phones" / f"{DATES[0]}.json"
    before = record.read_bytes()
    topic.alter(message_timestamp_type="CreateTime")
    topic.send([(0, START + DAY // 2, each) for each in raw(reports(5))])
    topic.closed()
    assert decode(place, topic).code == 0
    assert released(place / "models")[DATES[0]] == wanted[DATES[0]]
    assert record.read_bytes() == before


def test_a_killed_job_goes_on_to_the_same_bytes(place, topic, wanted):
    """kill -9 before the second window is published: its copies are made again, none counts twice."""
    line = list(words(place, topic, "models", "--once"))
    point = Point("dapple_dp.pipelines.run.folder:RunFolder.publish", call=3)
    assert crashes.run(line, str(place / "line"), key=bytes(32), point=point) == -9
    assert list((place / "copies").glob("dt=*/*"))
    outcome = decode(place, topic)
    assert outcome.code == 0, outcome.err
    assert released(place / "models") == wanted
    assert not list((place / "copies").glob("dt=*/*"))


def test_duplicates_and_broken_messages_count_as_no_report(place, broker, wanted):
    """A producer that sends again, on any partition, and whatever a device may send; none stops the others."""
    topic, good = send(Topic(broker), {0: TABLES[0]}), raw(TABLES[0])
    broken = [None, b"", good[0][:-1], good[0] + b"x", good[0][:8] + b"\xff\xff", b"{}", b"x" * 900_000]
    topic.send((index % 3, START + DAY // 2, each) for index, each in enumerate([*good[::-1], *broken]))
    topic.send((0, START + DAY, each) for each in broken)
    send(topic, {2: TABLES[2]})
    outcome = decode(place, topic.closed())
    assert outcome.code == 0, outcome.err
    found = released(place / "models")
    assert (found[DATES[0]], found[DATES[2]]) == (wanted[DATES[0]], wanted[DATES[2]])
    assert found[EMPTY] == wanted[EMPTY]


def test_codewords_are_messages_too(place, broker):
    public = parameters(reports__variant="privunit")
    (place / "parameters.json").write_text(public.to_json())
    ids = [str(index).encode() for index in range(N_CLIENTS)]
    made = keyed_reports(lake.mixture(N_CLIENTS, 0, MEANS), ids, public, lake.KEY)
    table = to_table(made.nonces, made.codewords, public)
    outcome = decode(place, send(Topic(broker), {0: table}).closed(), windows=1)
    assert outcome.code == 0, outcome.err
    (place / "folder").mkdir()
    pq.write_table(table, place / "folder" / "all.parquet")
    section = {"path": str(place / "folder"), "parameters": str(place / "parameters.json")}
    (place / "alone.yaml").write_text(yaml.safe_dump({"reports": section}))
    assert lake.run_command("decode", "--config", f"{place}/alone.yaml", "--output", f"{place}/alone").code == 0
    found = place / "models" / DATES[0] / "centers.parquet"
    assert found.read_bytes() == (place / "alone" / "centers.parquet").read_bytes()


def test_shuffled_reports_do_not_come_from_a_topic(place, topic):
    """A topic shows in which order they came, which a shuffler is trusted to forget."""
    (place / "parameters.json").write_text(parameters(**SHUFFLED).to_json())
    outcome = decode(place, topic)
    assert outcome.code == 2
    assert "reports.mode must be 'local' for reports from a topic" in outcome.lines[-1]
    assert not (place / "copies").exists()


def test_copies_have_a_folder_of_their_own(place, topic):
    (place / "copies").mkdir()
    shutil.copy(place / "parameters.json", place / "copies")
    outcome = decode(place, topic)
    assert outcome.code == 2
    assert "reports.path must be a folder for copies of messages alone" in outcome.lines[-1]
    assert (place / "copies" / "parameters.json").exists()


@pytest.mark.parametrize("other", ["models", "others"])
def test_two_jobs_at_once_do_not_share_copies(place, topic, wanted, other, monkeypatch):
    """The second would remove what the first is about to read; it is refused, and the first goes on."""
    said, decoded = [], window_rows.TopicRows.ready

    def ready(rows, index):
        decoded(rows, index)
        if not said:
            said.append(decode(place, topic, other))

    monkeypatch.setattr(window_rows.TopicRows, "ready", ready)
    assert decode(place, topic).code == 0
    assert said[0].code == 2
    assert "reports.path must be used by one job at a time" in said[0].lines[-1]
    assert released(place / "models") == wanted
