"""Messages as rows, files of client properties, and records of offsets."""

import json

import pytest

from dapple_dp.schemas.arrivals.messages import table_of
from dapple_dp.schemas.arrivals.offsets import CHUNK_MESSAGES, OffsetRange, WindowOffsets
from dapple_dp.schemas.arrivals.topic import MessageColumns, PackedColumns, RowTopicConfig, client_properties
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.arrivals.consume import record_refusal

NUMBERS = MessageColumns(("age", "hours"), "", "who", 80)
LIST = MessageColumns((), "x", "", 80)
RECORD = {"format": 1, "topic": "visits", "topic_id": "abc", "window": "2026-01-01", "cut": 5, "ranges": []}
RECORD |= {"salt": "0a" * 32}


def test_a_message_is_a_row():
    messages = [b'{"age": 3, "hours": -2.5, "who": "a", "more": [1]}', b'{"who": 7, "hours": 1e3, "age": 0}']
    assert table_of(messages, NUMBERS).to_pylist() == [
        {"age": 3.0, "hours": -2.5, "who": "a"},
        {"age": 0.0, "hours": 1000.0, "who": "7"},
    ]
    assert table_of([b'{"x": [1, 2.5]}'], LIST).to_pylist() == [{"x": [1.0, 2.5]}]


@pytest.mark.parametrize(
    "message",
    [
        None,
        b"",
        b"{",
        b"null",
        b"[1, 2]",
        b'"age"',
        b"\xff\xfe",
        b'{"age": 1, "who": "a"}',
        b'{"age": 1, "hours": null, "who": "a"}',
        b'{"age": true, "hours": 1, "who": "a"}',
        b'{"age": "1", "hours": 1, "who": "a"}',
        b'{"age": NaN, "hours": 1, "who": "a"}',
        b'{"age": 1e999, "hours": 1, "who": "a"}',
        b'{"age": 1, "age": 2, "hours": 1, "who": "a"}',
        b'{"age": 1, "hours": 1, "who": ""}',
        b'{"age": 1, "hours": 1, "who": true}',
        b'{"age": 1, "hours": 1, "who": 1.5}',
        b'{"age": 1, "hours": 1, "who": "a", "more": "' + b"x" * 80 + b'"}',
        b'{"age": ' + b"[" * 35 + b"]" * 35 + b"}",
        b'{"age": ' + b"9" * 60 + b', "hours": 1, "who": "a"}',
        b'{"age": 1, "hours": 1, "who": "\\ud800"}',
    ],
)
def test_a_broken_message_is_a_row_of_nulls(message):
    good = b'{"age": 1, "hours": 2, "who": "a"}'
    found = table_of([good, message, good], NUMBERS).to_pylist()
    assert found[1] == {"age": None, "hours": None, "who": None}
    assert found[0] == found[2] == {"age": 1.0, "hours": 2.0, "who": "a"}


@pytest.mark.parametrize("message", [b'{"x": 1}', b'{"x": [1, null]}', b'{"x": [[1]]}', b'{"x": "12"}', b"{}"])
def test_a_broken_list_is_null(message):
    assert table_of([message], LIST).to_pylist() == [{"x": None}]


@pytest.mark.parametrize(("kind", "size"), [("H", 2), ("16s", 16)])
def test_a_message_of_bytes_is_a_row(kind, size):
    """Little-endian, on every machine; one of any other length is broken, and keeps its place."""
    columns, last = PackedColumns((("nonce", "Q"), ("payload", kind))), bytes(range(1, size + 1))
    good = bytes([1, 0, 0, 0, 0, 0, 0, 128]) + last
    found = table_of([good, None, b"", good[:-1], good + b"x", good], columns).to_pylist()
    row = {"nonce": (1 << 63) + 1, "payload": last if size == 16 else 0x0201}
    assert found == [row, *[{"nonce": None, "payload": None}] * 4, row]
    assert table_of([], columns).schema == table_of([good], columns).schema


def test_no_messages_give_the_same_columns():
    assert table_of([], NUMBERS).schema == table_of([b"{}"], NUMBERS).schema
    assert table_of([], LIST).num_rows == 0


def test_columns_of_a_job():
    topic = RowTopicConfig(servers="localhost:9092", topic="visits")
    data = DataConfig(path="copies", features=["age", "hours"], client_id="who")
    assert MessageColumns.of(data, topic) == (("age", "hours"), "", "who", 1 << 16)
    assert MessageColumns.of(DataConfig(path="copies", features="x", width=2), topic)[:2] == ((), "x")
    for more in ({"features": ["age*"]}, {"features": "x", "partitions": {"a": 1}}):
        with pytest.raises(ConfigError, match=r"data\.partitions or patterns"):
            MessageColumns.of(DataConfig(path="copies", **more), topic)


@pytest.mark.parametrize("changes", [{"topic": "a/b"}, {"max_message_bytes": 1 << 21}, {"servers": ""}, {"group": "x"}])
def test_refused_topics(changes):
    with pytest.raises(ConfigError):
        RowTopicConfig(**({"servers": "localhost:9092", "topic": "visits"} | changes))


def test_client_properties():
    text = "# of the team\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n"
    assert client_properties(text) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}


@pytest.mark.parametrize(
    "line",
    [
        "auto.offset.reset=earliest",
        "isolation.level=read_uncommitted",
        "group.id=mine",
        "bootstrap.servers=elsewhere:9092",
        "plugin.library.paths=/tmp/x.so",
        "ssl.engine.location=/tmp/x.so",
        "ssl.providers=/tmp/x",
        "sasl.kerberos.kinit.cmd=curl example.org",
        "secret",
        "ssl.ca.location=a\nssl.ca.location=b",
    ],
)
def test_refused_properties(line):
    """A file of properties says how a broker is reached, never what is read; no value is quoted."""
    with pytest.raises(ConfigError, match="client properties file must be NAME=VALUE") as caught:
        client_properties(line)
    assert "earliest" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_parts_of_a_window():
    """Every offset once, in parts of one partition; nothing of an empty range."""
    ranges = ((0, 5, 5 + 2 * CHUNK_MESSAGES + 1), (1, 7, 7), (2, 0, 3))
    record = WindowOffsets(**RECORD | {"ranges": tuple(OffsetRange(partition=p, first=a, end=b) for p, a, b in ranges)})
    parts = list(record.chunks())
    assert len({part.file for part in parts}) == len(parts) == 4
    offsets = [(part.partition, offset) for part in parts for offset in range(part.first, part.end)]
    assert sorted(offsets) == [(p, offset) for p, a, b in ranges for offset in range(a, b)]
    assert record.ends == {0: 6 + 2 * CHUNK_MESSAGES, 1: 7, 2: 3}


@pytest.mark.parametrize(
    "changes",
    [
        {"ranges": [{"partition": 1, "first": 0, "end": 1}]},
        {"ranges": [{"partition": 0, "first": 2, "end": 1}]},
        {"ranges": [{"partition": 0, "first": -1, "end": 1}]},
        {"ranges": [{"partition": 0, "first": 0, "end": 1}] * 2},
        {"more": 1},
        {"cut": "5"},
    ],
)
def test_refused_records(changes):
    with pytest.raises(InputError, match="must be the record of offsets"):
        json_schema.parse_as(json.dumps(RECORD | changes), WindowOffsets, record_refusal("a.json"))
