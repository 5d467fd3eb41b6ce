"""A stream that is kept running over 60 windows while nobody looks.

Its days take three seconds each. It is stopped for a while so that it lags, and is ended and started again.

    python -m benchmarks.on_call --out benchmarks/results/on_call.md
"""

import contextlib
import datetime
import functools
import multiprocessing
import os
import pathlib
import re
import signal
import tempfile
import time

from benchmarks import measurement
from benchmarks.machine import heading
from pipelines.jobs import waiting
from pipelines.ledger.store import Ledger
from tests.scenes import brokers, lake
from tests.scenes.brokers import FIRST, StreamPlace

WINDOWS, LAGS_AT, STOPPED_DAYS, ENDS_AT = 60, 20, 10, 45
DAY_SECONDS = 3.0


def write_days(folder: pathlib.Path, days: int) -> pathlib.Path:
    """A lake of this many days."""
    first = datetime.date.fromisoformat(FIRST)
    for day in range(days):
        lake.write_lake(folder / f"dt={first + datetime.timedelta(days=day)}", lake.mixture(90, seed=day))
    return folder


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


def main() -> None:
    """Runs the stream and writes what was seen."""
    given = measurement.script(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = [*heading("A stream over 60 windows while nobody looks"), *daemon(pathlib.Path(folder))]
    measurement.show(lines, given.out)


if __name__ == "__main__":
    main()
