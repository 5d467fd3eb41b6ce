"""There is one way to a topic. On it the broker is asked how the topic is kept, before and after messages are read."""

import ast
import pathlib
import types

import pytest

from dapple_dp.pipelines.tables.arrivals.broker import TopicState
from dapple_dp.pipelines.tables.arrivals.window_rows import TopicRows, TopicWindows
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.transforms.arrivals import consume

ROOT = pathlib.Path(__file__).resolve().parents[3]
KEPT = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
    "retention.ms": "-1",
}
UNCLEAN = KEPT | {"unclean.leader.election.enable": "true"}


def naming(*names: str) -> dict[str, set[str]]:
    """Files of the packages that name something, by the name."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for package in ("schemas", "transforms", "pipelines", "dapple_dp"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                said = {getattr(node, key, None) for key in ("id", "attr", "module", "name")}
                for name in said & set(names):
                    found[name].add(str(path.relative_to(ROOT)))
    return found


def test_every_way_to_a_topic_goes_through_the_check():
    """A library of Kafka in another file, or another caller of these, would be another way; nobody makes a topic."""
    rows, broker = "pipelines/tables/arrivals/window_rows.py", "pipelines/tables/arrivals/broker.py"
    copies, reads = "pipelines/tables/arrivals/landing.py", "transforms/arrivals/consume.py"
    found = naming(
        *("confluent_kafka", "confluent_kafka.admin", "connected", "CopyMessages", "copy_chunk", "TopicRows"),
        *("NewTopic", "create_topics", "ReadFromKafka", "WriteToKafka"),
    )
    assert found == {
        "confluent_kafka": {broker, reads},
        "confluent_kafka.admin": {broker},
        "connected": {broker, rows},
        "CopyMessages": {copies, reads},
        "copy_chunk": {reads},
        "TopicRows": {rows},
        "NewTopic": set(),
        "create_topics": set(),
        "ReadFromKafka": set(),
        "WriteToKafka": set(),
    }


class _Scene:
    """A broker whose answers are given, and a folder of copies that notes what is done."""

    def __init__(self, *answers: TopicState):
        self.answers, self.done = list(answers), []
        self.client = types.SimpleNamespace(topic="visits", gone=lambda: InputError("gone"))
        self.calendar = types.SimpleNamespace(date=str, days=1)

    def state(self) -> TopicState:
        self.done.append("asked")
        return self.answers.pop(0)

    def cut(self, *_: object) -> object:
        self.done.append("cut")
        return types.SimpleNamespace(ranges=())

    register = None

    def digest(self, _: str) -> str:
        return "0a" * 32

    def kept(self, _: str) -> object:
        return types.SimpleNamespace(ranges=())

    def bounds(self, _: int) -> list[object]:
        return []

    def copy(self, _: list[str]) -> None:
        self.done.append("copied")

    def ready(self) -> None:
        landing = types.SimpleNamespace(records=self, copy=self.copy)
        TopicRows(TopicWindows(calendar=self.calendar, band=1, landing=landing), self).ready(0)


def test_a_topic_that_is_kept_well_is_asked_for_twice():
    scene = _Scene(TopicState("id", 1, KEPT), TopicState("id", 1, KEPT))
    scene.ready()
    assert scene.done == ["asked", "cut", "copied", "asked"]


@pytest.mark.parametrize("name", KEPT)
def test_a_topic_that_is_kept_otherwise_is_refused_before_it_is_cut(name):
    scene = _Scene(TopicState("id", 1, KEPT | {name: "another"}))
    with pytest.raises(ConfigError, match=f"^{name} of the topic visits must be"):
        scene.ready()
    assert scene.done == ["asked"]


def test_changes_while_messages_are_copied_are_refused_before_they_are_used():
    scene = _Scene(TopicState("id", 1, KEPT), TopicState("id", 1, UNCLEAN))
    with pytest.raises(ConfigError, match=r"^unclean\.leader\.election\.enable of the topic visits must be false"):
        scene.ready()
    assert scene.done == ["asked", "cut", "copied", "asked"]


def test_a_topic_recreated_meanwhile_is_refused():
    scene = _Scene(TopicState("id", 1, KEPT), TopicState("other", 1, KEPT))
    with pytest.raises(InputError, match="gone"):
        scene.ready()


def test_waiting_ends_for_a_broker_that_answers_with_errors_only(monkeypatch):
    confluent_kafka = pytest.importorskip("confluent_kafka")
    passes = types.SimpleNamespace(code=lambda: confluent_kafka.KafkaError._ALL_BROKERS_DOWN, retriable=lambda: True)
    asked = []

    def poll(_: float) -> object:
        asked.append(1)
        return types.SimpleNamespace(error=lambda: passes)

    monkeypatch.setattr(consume, "ANSWER_SECONDS", 0.05)
    client = consume.TopicClient("127.0.0.1:9", "visits", "")
    with pytest.raises(InputError, match="for the topic visits"):
        list(consume._until(types.SimpleNamespace(poll=poll), client, 5))
    assert len(asked) > 1
