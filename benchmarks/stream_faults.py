"""Windows from Kafka while broker, workers and driver are killed: none is lost, doubled, or drawn twice.

A stream releases windows of a topic in a process of its own. At moments that a seed decides something gets kill -9: the
process, one of its two workers, or the broker, which is started again with its data. Then the same command is called
again. In the end every window has one charge, one key and one release, and its bytes are those of a run over the same
rows in folders, in one process that nobody disturbed, under the same keys.

    python -m benchmarks.stream_faults --windows 200 --out benchmarks/results/stream_faults.md
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np

from benchmarks import measurement
from benchmarks.machine import heading
from deploy.local import downloads
from deploy.local.kafka_broker import KafkaBroker
from pipelines.ledger.store import Ledger
from pipelines.run.run_keys import RunNonce
from tests.scenes import brokers, faults, lake

PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
KINDS = ("driver", "broker", "worker")
ROWS = 30
"""Of a window on average; every seventh is empty."""
SECONDS = 1800.0
SEED = 18


@dataclasses.dataclass
class Attempt:
    """One call of the command, and what has been said of it."""

    child: subprocess.Popen
    log: pathlib.Path
    workers: bool

    def over(self) -> bool:
        """Whether it has ended."""
        return self.child.poll() is not None

    def kill(self) -> None:
        """Ends it and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()

    @property
    def words(self) -> str:
        """How it ended: exit code and last line, in which paths begin at the folder of the job."""
        said = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        last = said[-1].replace(f"{self.log.parent}/", "") if said else ""
        return f"{self.child.returncode}: {last}"


class Disturbed:
    """A stream that is disturbed until it is done.

    Args:
      place: of the stream.
      broker: that runs.
      rng: decides when what is killed.
    """

    def __init__(self, place: brokers.StreamPlace, broker: KafkaBroker, rng: np.random.Generator):
        self.place, self.broker, self.rng = place, broker, rng
        self.lines: list[str] = []
        self.ends: dict[int, list[str]] = collections.defaultdict(list)
        self.calls = 0
        self._names = rng.choice(KINDS, 10_000, p=(0.4, 0.4, 0.2)).tolist()

    def run(self, every: int) -> None:
        """Calls the command until all windows are released.

        Args:
          every: windows between two disturbances, on average.
        """
        attempt: Attempt | None = None
        for kind in self._names:
            if attempt is not None and kind == "worker" and not attempt.workers:
                self._driver(attempt)
                attempt = self._after(attempt)
            if attempt is None:
                attempt = self._start(PROCESSES if kind == "worker" else ())
            before = self._released()
            gap = 0 if kind == "worker" else int(self.rng.integers(1, 2 * every))
            if self._until(attempt, lambda before=before, gap=gap: self._released() >= before + gap):
                getattr(self, f"_{kind}")(attempt)
            last, attempt = attempt, self._after(attempt)
            if attempt is None and last.child.returncode == 0:
                return

    def _driver(self, attempt: Attempt) -> None:
        """The launcher is killed, and all that it has started."""
        time.sleep(self.rng.uniform(0.0, 6.0))
        attempt.kill()
        self._say("driver")

    def _broker(self, attempt: Attempt) -> None:
        """The broker is killed, and started again a while later."""
        time.sleep(self.rng.uniform(0.0, 6.0))
        self.broker.kill()
        self._say("broker")
        time.sleep(self.rng.uniform(0.0, 5.0))
        self.broker.up()

    def _worker(self, attempt: Attempt) -> None:
        """One of two workers is killed; the attempt ends on its own, or is killed if it could go on."""
        if not self._until(attempt, lambda: len(faults.children(attempt.child.pid)) >= 2):
            return
        time.sleep(self.rng.uniform(0.0, 8.0))
        found, before = faults.children(attempt.child.pid), self._released()
        for pid in found[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._say("worker" if found else "worker (none was there)")
        self._until(attempt, lambda: self._released() > before + 1)
        attempt.kill()

    def _after(self, attempt: Attempt) -> Attempt | None:
        """An attempt that goes on; None of one that is over."""
        if attempt.over():
            self.ends[len(self.lines)].append(attempt.words)
            return None
        return attempt

    def _start(self, flags: tuple[str, ...]) -> Attempt:
        self.calls += 1
        log = self.place.folder / "kafka" / f"call-{self.calls}.err"
        words = [sys.executable, "-m", "pipelines", *self.place.words("kafka", "--once", *flags)]
        with log.open("w") as file:
            child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=file, start_new_session=True)
        return Attempt(child, log, bool(flags))

    def _until(self, attempt: Attempt, condition: Callable[[], bool]) -> bool:
        """Waits for something; returns False if the attempt has ended before."""
        end = time.monotonic() + SECONDS
        while not condition():
            if attempt.over():
                return False
            if time.monotonic() > end:
                raise RuntimeError("an attempt hangs")
            time.sleep(0.2)
        return not attempt.over()

    def _released(self) -> int:
        return len(list((self.place.folder / "kafka" / "out").glob("*/run.json")))

    def _say(self, kind: str) -> None:
        self.lines.append(f"| {len(self.lines) + 1} | {kind} | {self._released()} |")
        print(self.lines[-1], file=sys.stderr, flush=True)


@contextlib.contextmanager
def keys_of(ledger: pathlib.Path) -> Iterator[None]:
    """Runs draw the nonces that a ledger holds for their ids."""
    reserved = [each for each in Ledger(str(ledger)).entries() if each.kind == "reserve"]
    nonces = {each.run: bytes.fromhex(each.body["nonce"]) for each in reserved}

    def new(run: str) -> RunNonce:
        return RunNonce(run=run, raw=nonces[run])

    with mock.patch.object(RunNonce, "new", new):
        yield


def findings(place: brokers.StreamPlace, windows: int) -> list[str]:
    """What must hold, with what was found; ends the program if something does not."""
    kinds: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for entry in Ledger(str(place.folder / "kafka" / "ledger.sqlite")).entries():
        kinds[entry.kind][entry.run] += 1
    records = [json.loads(path.read_text()) for path in sorted(place.record("kafka", "x").parent.glob("*.json"))]
    joined = all(
        [each["end"] for each in earlier["ranges"]] == [each["first"] for each in later["ranges"]]
        for earlier, later in itertools.pairwise(records)
    )
    equal = place.released("kafka") == place.released("folders")
    found = {
        "windows with a release": (len(place.released("kafka")), windows),
        "windows whose bytes are those of the run that nobody disturbed": (windows if equal else 0, windows),
        "windows with one commit in the ledger": (sum(n == 1 for n in kinds["commit"].values()), windows),
        "windows whose noise was begun once": (sum(n == 1 for n in kinds["start"].values()), windows),
        "charges given back, before noise was drawn": (sum(kinds["void"].values()), None),
        "windows whose offsets were written down": (len(records), windows),
        "windows whose offsets do not begin where those before end": (0 if joined else 1, 0),
    }
    lines = ["", "| what | found | must be |", "| --- | --- | --- |"]
    lines += [f"| {what} | {got} | {'' if wanted is None else wanted} |" for what, (got, wanted) in found.items()]
    if any(wanted is not None and got != wanted for got, wanted in found.values()):
        raise SystemExit("\n".join(lines))
    return lines


def main() -> None:
    """Runs and writes the table."""
    parser = measurement.script(__doc__)
    parser.add_argument("--windows", type=int, default=200, help="of the epoch")
    parser.add_argument("--every", type=int, default=12, help="windows between two disturbances, on average")
    given = parser.parse_args()
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaBroker(pathlib.Path(folder) / "broker")
        broker.up()
        try:
            lines = measured(pathlib.Path(folder) / "streams", broker, rng, given.windows, given.every)
        finally:
            broker.kill()
    measurement.show(lines, given.out)


def measured(
    folder: pathlib.Path, broker: KafkaBroker, rng: np.random.Generator, windows: int, every: int
) -> list[str]:
    """The disturbed stream, the one that nobody disturbs, and what they have in common."""
    folder.mkdir()
    place, topic = brokers.StreamPlace(folder, windows), brokers.Topic(broker)
    days = {day: lake.mixture(int(rng.poisson(ROWS)), seed=day) for day in range(windows) if day % 7}
    topic.send_days(days)
    topic.closed()
    place.write("kafka", folder / "kafka" / "copies", kafka={"servers": broker.servers, "topic": topic.name})
    begun = time.monotonic()
    disturbed = Disturbed(place, broker, rng)
    disturbed.run(every)
    seconds = time.monotonic() - begun
    for day, points in days.items():
        lake.write_lake(folder / "lake" / f"dt={np.datetime64(brokers.FIRST) + day}", points)
    with keys_of(folder / "kafka" / "ledger.sqlite"):
        outcome = place.stream("folders", None, data=folder / "lake")
    if outcome.code:
        raise SystemExit(outcome.err)
    about = f"{windows} windows, {sum(map(len, days.values()))} messages, {len(disturbed.lines)} disturbances, "
    about += f"{disturbed.calls} calls of the command, {seconds / 60:.0f} minutes; seed {SEED}."
    table = ["", "| | killed | windows released before | how the call ended |", "| --- | --- | --- | --- |"]
    table += [
        f"{line} {'; then '.join(disturbed.ends[number]) or 'it went on'} |"
        for number, line in enumerate(disturbed.lines, 1)
    ]
    return [*heading("Windows from Kafka while something is killed"), about, *findings(place, windows), *table]


if __name__ == "__main__":
    try:
        main()
    except downloads.UnavailableError as error:
        raise SystemExit(str(error)) from None
