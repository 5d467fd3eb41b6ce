"""`python -m benchmarks.on_call --parts flink retention daemon --out FILE`: streams as they run while nobody looks.

- flink: a stream on a cluster of this machine, and the same rows in memory: what the log says, and the same bytes.
- retention: a topic whose broker has dropped messages before their windows were cut.
- daemon: a process that waits for 60 windows of days that take three seconds each, is stopped for a while so that it
  lags, and is ended and started again.
"""

import contextlib
import datetime
import functools
import json
import multiprocessing
import os
import pathlib
import re
import signal
import tempfile
import time

from benchmarks import measurement
from benchmarks.machine import heading
from deploy.local.flink_cluster import FlinkCluster, Ports
from deploy.local.kafka_broker import KafkaBroker
from pipelines.jobs import waiting
from pipelines.ledger.store import Ledger
from tests.scenes import brokers, lake
from tests.scenes.brokers import FIRST, StreamPlace, Topic
from transforms.files.signals.measures import ROUND_SECONDS

WINDOWS, LAGS_AT, STOPPED_DAYS, ENDS_AT = 60, 20, 10, 45
DAY_SECONDS = 3.0


def write_days(folder: pathlib.Path, days: int) -> pathlib.Path:
    """A lake of this many days."""
    first = datetime.date.fromisoformat(FIRST)
    for day in range(days):
        lake.write_lake(folder / f"dt={first + datetime.timedelta(days=day)}", lake.mixture(90, seed=day))
    return folder


def flink(folder: pathlib.Path) -> list[str]:
    """A stream of four windows on Flink."""
    place, rows = StreamPlace(folder), write_days(folder / "lake", 4)
    cluster = FlinkCluster(folder / "cluster", Ports.free())
    cluster.up()
    try:
        with brokers.equal_noise():
            metrics = folder / "m.prom"
            began = time.monotonic()
            words = ("--metrics", str(metrics), "--log_format=text", *cluster.flags)
            there = place.stream("flink", None, *words, data=rows)
            seconds = time.monotonic() - began
            here = place.stream("memory", None, data=rows)
    finally:
        cluster.down()
    codes, same = (there.code, here.code), place.released("flink") == place.released("memory")
    said = [re.sub(r"127\.0\.0\.1:\d+", "HOST:8081", each) for each in there.lines]
    own = json.loads((folder / "flink" / "out.operator.json").read_text())["runs"]
    return [
        "## A stream on Flink",
        "",
        f"Four windows, exit codes {codes[0]} and {codes[1]} in memory, {seconds:.0f} s on Flink; releases are "
        f"{'the same bytes' if same else 'OTHER BYTES'}. The log of the second window:",
        "",
        "```text",
        *[each for each in said if "epoch-2026-01-02" in each],
        "```",
        "",
        f"Seconds of rounds by window, in the operator's file: {[each.get(ROUND_SECONDS.name) for each in own]}.",
        "",
    ]


def retention(folder: pathlib.Path) -> list[str]:
    """A stream whose topic has forgotten the days that it was down."""
    broker = KafkaBroker(folder / "broker", {"log.retention.check.interval.ms": 1000, "log.segment.delete.delay.ms": 0})
    broker.up()
    try:
        place, topic = StreamPlace(folder), Topic(broker)
        topic.send_days({day: lake.mixture(90, seed=day) for day in range(4)})
        topic.closed()
        with brokers.equal_noise():
            first = place.stream("kafka", topic, until="2026-01-02")
            charged = [each.kind for each in Ledger(str(folder / "kafka" / "ledger.sqlite")).entries()]
            topic.alter(retention_ms=str(30 * brokers.DAY))
            _wait_until_gone(topic)
            second = place.stream("kafka", topic)
            # The broker keeps everything again, and what is gone stays so.
            topic.alter(retention_ms="-1")
            third = place.stream("kafka", topic)
        after = [each.kind for each in Ledger(str(folder / "kafka" / "ledger.sqlite")).entries()]
    finally:
        broker.kill()
    counts = [
        f"{len(each)} ({each.count('reserve')} reserve, {each.count('commit')} commit)" for each in (charged, after)
    ]
    rows = [
        ("two windows, retention without end", first),
        ("retention of 30 days, which has passed for all messages", second),
        ("retention without end again", third),
    ]
    return [
        "## A topic whose retention has passed",
        "",
        "| call | exit code | last line of the log |",
        "| --- | --- | --- |",
        *[f"| {name} | {each.code} | {each.lines[-1].replace(topic.name, 'TOPIC')} |" for name, each in rows],
        "",
        f"Windows with a release: {sorted(place.released('kafka'))}. Entries of the ledger before and after: "
        f"{counts[0]} and {counts[1]}.",
        "",
    ]


def _wait_until_gone(topic: Topic) -> None:
    """Waits until the broker has dropped all messages."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": topic.broker.servers, "group.id": "looks", "log_level": 0})
    end = time.monotonic() + 300
    while True:
        bounds = [consumer.get_watermark_offsets(TopicPartition(topic.name, each), timeout=60) for each in range(3)]
        if all(low == high for low, high in bounds):
            consumer.close()
            return
        if time.monotonic() > end:
            raise RuntimeError(f"the broker keeps {bounds}")
        time.sleep(1.0)


def _now(began: float) -> datetime.datetime:
    """A clock whose days take `DAY_SECONDS`, from the first window on."""
    start = datetime.datetime.fromisoformat(FIRST).replace(tzinfo=datetime.UTC)
    return start + datetime.timedelta(days=(time.time() - began) / DAY_SECONDS)


def _stream(words: tuple[str, ...], began: float, log: str) -> None:
    """The command in a process of its own, with that clock."""
    from pipelines.command.main import main as dapple

    waiting.now, waiting._LOOK_SECONDS = functools.partial(_now, began), 0.05
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(log, "a", buffering=1))
        stack.enter_context(contextlib.redirect_stdout(file))
        stack.enter_context(contextlib.redirect_stderr(file))
        stack.enter_context(brokers.equal_noise())
        code = dapple(words)
    os._exit(code)


def daemon(folder: pathlib.Path) -> list[str]:
    """A stream that is kept running over 60 windows."""
    place, rows = StreamPlace(folder, windows=WINDOWS), write_days(folder / "lake", WINDOWS)
    with brokers.equal_noise():
        once = place.stream("once", None, data=rows)
    place.write("waits", rows, settle=0)
    metrics, log, began = folder / "m.prom", folder / "log", time.time()
    words = (*place.words("waits"), "--metrics", str(metrics))
    fork, samples, events, codes = multiprocessing.get_context("spawn"), [], [], []
    child = fork.Process(target=_stream, args=(words, began, str(log)))
    child.start()
    done = 0
    while child.is_alive() or done < WINDOWS:
        if not child.is_alive():
            child = _again(child, codes, fork, words, began, log)
        time.sleep(0.25)
        done, lag = _seen(metrics, began)
        samples.append((done, lag))
        if done >= LAGS_AT and not events:
            events.append(f"stopped for {STOPPED_DAYS} days (SIGSTOP) after window {done}")
            os.kill(child.pid, signal.SIGSTOP)
            time.sleep(STOPPED_DAYS * DAY_SECONDS)
            os.kill(child.pid, signal.SIGCONT)
            samples.append(_seen(metrics, began))
        if done >= ENDS_AT and len(events) == 1:
            events.append(f"SIGTERM after window {done}, then the same command again")
            child.terminate()
            child.join()
    child.join()
    codes.append(child.exitcode)
    entries = [each.kind for each in Ledger(str(folder / "waits" / "ledger.sqlite")).entries()]
    counts = f"{entries.count('reserve')}, {entries.count('commit')}"
    # A process that begins is late, too; the longest lag after the stop counts.
    late = [each for each in samples if each[0] >= LAGS_AT]
    caught_up = next(done for done, lag in late[_longest(late) :] if lag <= 1)
    return [
        "## A daemon over 60 windows",
        "",
        f"A day takes {DAY_SECONDS:g} s. {'; '.join(events)}. Exit codes: {codes}.",
        "",
        "| what | seen |",
        "| --- | --- |",
        f"| windows released | {done} of {WINDOWS} |",
        f"| bytes of `--once` | {'the same' if place.released('waits') == place.released('once') else 'OTHERS'} "
        f"(its exit code {once.code}) |",
        f"| entries of the ledger for its windows, which share one charge: reserve, commit | {counts} |",
        f"| largest lag, by `dapple_next_window_due_timestamp_seconds` | {max(lag for _, lag in late):.1f} days |",
        f"| lag is below a day again | at window {caught_up} |",
        "",
    ]


def _again(child, codes, fork, words, began, log):
    """The same command once more, as systemd or Kubernetes would call it."""
    codes.append(child.exitcode)
    if child.exitcode or len(codes) > 3:
        raise RuntimeError(f"the stream ended with {codes}: {log.read_text()[-2000:]}")
    child = fork.Process(target=_stream, args=(words, began, str(log)))
    child.start()
    return child


def _seen(metrics: pathlib.Path, began: float) -> tuple[int, float]:
    """Windows released, and the days since the next one was due, as anyone who reads the metrics sees them."""
    with contextlib.suppress(OSError):
        found = dict(re.findall(r"^(dapple_\w+) (\S+)$", metrics.read_text(), re.MULTILINE))
        if "dapple_next_window_due_timestamp_seconds" in found:
            late = _now(began).timestamp() - float(found["dapple_next_window_due_timestamp_seconds"])
            done = int(found["dapple_windows_released"])
            return done, max(0.0, late / 86_400) if done < WINDOWS else 0.0
    return 0, 0.0


def _longest(samples: list[tuple[int, float]]) -> int:
    return max(range(len(samples)), key=lambda place: samples[place][1])


PARTS = {"flink": flink, "retention": retention, "daemon": daemon}


def main() -> None:
    """Runs the parts and writes what was seen."""
    parser = measurement.script(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    lines = heading("Streams while nobody looks")
    for name in given.parts:
        with tempfile.TemporaryDirectory() as folder:
            lines += PARTS[name](pathlib.Path(folder))
    measurement.show(lines, given.out)


if __name__ == "__main__":
    main()
