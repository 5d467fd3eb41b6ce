"""Counters of a process for the operator, each with a flag that shows if it is for the operator only.

A number that depends on rows is exact and so private: numbers of rows and bytes, and the time that they took. Others
are the same for every input: the phases of a run, and its requests for the output.
"""

import collections
import contextlib
import dataclasses
import enum
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

MOST_RUNS = 100
"""Number of runs, the last ones, that the operator's file lists; a stream may run for years."""


class Kind(enum.StrEnum):
    """Kinds of metrics: counters of several runs are added up; of a gauge, the last value counts."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Metric(NamedTuple):
    """A metric, in the terms of Prometheus.

    Attributes:
      name: of the metric, with its unit.
      kind: rule that combines the numbers of several runs.
      help: one line of description.
      private: True if it may depend on rows, so that only the operator may see it.
      label: name of the label that distinguishes its numbers; empty for a single number.
    """

    name: str
    kind: Kind
    help: str
    private: bool = False
    label: str = ""


def _metric(name: str, kind: Kind, help: str, label: str = "", *, private: bool = False) -> Metric:
    return Metric(f"dapple_{name}", kind, help, private, label)


STARTED = _metric("run_started_timestamp_seconds", Kind.GAUGE, "Start time of the run.")
PHASES = _metric("phases_total", Kind.COUNTER, "Finished phases of runs.", "phase")
ROUNDS = _metric("rounds_planned", Kind.GAUGE, "Rounds of the plan.")
EPSILON = _metric("epsilon", Kind.GAUGE, "Epsilon that the run spends.")
WARNINGS = _metric("report_warnings", Kind.GAUGE, "Warnings in the report of the run.")
TAKEN_UP = _metric("runs_taken_up_total", Kind.COUNTER, "Runs that resumed an interrupted attempt.")
LEDGER_RETRIES = _metric("ledger_retries_total", Kind.COUNTER, "Retried transactions of the ledger.")
OUTPUT_REQUESTS = _metric("output_requests_total", Kind.COUNTER, "Requests for files of the output.", "operation")
OUTPUT_RETRIES = _metric("output_retries_total", Kind.COUNTER, "Retried requests for files of the output.")
WINDOWS = _metric("windows_released", Kind.GAUGE, "Windows of the stream that are released.")
WINDOWS_LEFT = _metric("windows_left", Kind.GAUGE, "Windows of the stream that are not released yet.")
NEXT_DUE = _metric("next_window_due_timestamp_seconds", Kind.GAUGE, "Due time of the next unreleased window.")
PHASE_SECONDS = _metric("phase_seconds_total", Kind.COUNTER, "Duration of each phase.", "phase", private=True)
ROUND_SECONDS = _metric("round_seconds_total", Kind.COUNTER, "Duration of rounds.", "rounds", private=True)
PASS_SECONDS = _metric("pass_seconds_total", Kind.COUNTER, "Duration of passes over the rows.", "pass", private=True)
ROWS = _metric("rows_total", Kind.COUNTER, "Rows that this process listed, counted once per pipeline.", private=True)
ROW_BYTES = _metric("row_bytes_total", Kind.COUNTER, "Size of these rows in memory.", private=True)
INPUT_FILES = _metric("input_files_total", Kind.COUNTER, "Input files that this process listed.", private=True)
INPUT_BYTES = _metric("input_bytes_total", Kind.COUNTER, "Size of these files.", private=True)
OTHER_REQUESTS = _metric("store_requests_total", Kind.COUNTER, "Requests for other files.", "operation", private=True)
OTHER_RETRIES = _metric("store_retries_total", Kind.COUNTER, "Retried requests for other files.", private=True)
ARRIVED = _metric("window_messages", Kind.GAUGE, "Offsets of a topic that belong to a window.", "window", private=True)
SILENT = _metric(
    "window_without_input", Kind.GAUGE, "Windows for which a producer has sent nothing.", "window", private=True
)
SHORT = _metric("window_too_short", Kind.GAUGE, "Windows with too few rows (expected_rows).", "window", private=True)
METRICS = tuple(each for each in list(globals().values()) if isinstance(each, Metric))

Sample = tuple[Metric, str]
"""A metric, and the value of its label."""


@dataclasses.dataclass(slots=True, eq=False)
class RunMeasures:
    """The measures of one run, or of a command's work outside of runs.

    Attributes:
      job: word of the command; empty outside of runs.
      run_id: of the run.
      samples: numbers by metric and label.
      notes: sentences for the operator, private.
      started: seconds since 1970.
      ended: likewise; None of a run that is under way.
    """

    job: str = ""
    run_id: str = ""
    samples: dict[Sample, float] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default_factory=time.time)
    ended: float | None = None

    def copied(self) -> "RunMeasures":
        """Returns a copy of the measures as they are now; the original may go on counting."""
        return dataclasses.replace(self, samples=dict(self.samples), notes=list(self.notes))


def add_up(parts: list[dict[Sample, float]]) -> dict[Sample, float]:
    """Combines the numbers of several runs, in their order."""
    result: dict[Sample, float] = {}
    for part in parts:
        for (metric, label), value in part.items():
            before = result.get((metric, label), 0.0) if metric.kind is Kind.COUNTER else 0.0
            result[metric, label] = before + value
    return result


class Measures:
    """The numbers of a process. Runs may be nested, as windows are in a stream.

    Args:
      clock: seconds since some moment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._lock = clock, threading.RLock()
        self._begin(None)

    def _begin(self, listener: Callable[[], None] | None) -> None:
        self._outside = RunMeasures()
        self._open: list[RunMeasures] = []
        self._done: collections.deque[RunMeasures] = collections.deque()
        self._folded: dict[Sample, float] = {}
        self.output, self.listener = "", listener

    @contextlib.contextmanager
    def command(self, listener: Callable[[], None] | None) -> Iterator[None]:
        """Counts for a command for the length of the context; restores the earlier numbers afterwards.

        Args:
          listener: called when displayed numbers have changed; None without a display.
        """
        with self._lock:
            before = vars(self).copy()
            self._begin(listener)
        try:
            yield
        finally:
            with self._lock:
                vars(self).update(before)

    @property
    def runs(self) -> list[RunMeasures]:
        """Copies of the last finished runs and of those under way."""
        with self._lock:
            return [each.copied() for each in (*self._done, *self._open)]

    @property
    def outside(self) -> RunMeasures:
        """Copy of the numbers for the command's work outside of runs."""
        with self._lock:
            return self._outside.copied()

    @property
    def total(self) -> dict[Sample, float]:
        """Numbers of all runs together."""
        with self._lock:
            open_runs = [each.samples for each in reversed(self._open)]
            parts = [self._folded, self._outside.samples, *(each.samples for each in self._done), *open_runs]
            return add_up(parts)

    @contextlib.contextmanager
    def run(self, job: str, run_id: str, output: str) -> Iterator[None]:
        """Counts for a run for the length of the context.

        Args:
          job: word of the command.
          run_id: of the run.
          output: place of its releases; requests for it follow from the plan. Empty if its content is private.
        """
        found, before = RunMeasures(job, run_id), self.output
        with self._lock:
            self._open.append(found)
            self.output = output
        self.put(STARTED, int(found.started))
        try:
            yield
        finally:
            with self._lock:
                found.ended, self.output = time.time(), before
                self._open.remove(found)
                self._done.append(found)
                while len(self._done) > MOST_RUNS:
                    self._folded = add_up([self._folded, self._done.popleft().samples])
            self.tell()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times a phase of a run; its seconds are counted in any case, the phase itself only if it succeeds."""
        with self.timed(PHASE_SECONDS, name):
            yield
        self.add(PHASES, name)
        self.tell()

    @contextlib.contextmanager
    def timed(self, metric: Metric, label: str) -> Iterator[None]:
        """Adds the seconds of the context to a counter."""
        began = self._clock()
        try:
            yield
        finally:
            self.add(metric, label, self._clock() - began)

    def add(self, metric: Metric, label: str = "", value: float = 1.0) -> None:
        """Adds to a counter."""
        with self._lock:
            held = self._now.samples
            held[metric, label] = held.get((metric, label), 0.0) + value

    def put(self, metric: Metric, value: float, label: str = "") -> None:
        """Sets a gauge."""
        with self._lock:
            self._now.samples[metric, label] = float(value)

    def note(self, sentence: str) -> None:
        """Adds a sentence for the operator only; it may depend on rows."""
        with self._lock:
            self._now.notes.append(sentence)
        self.tell()

    def asked(self, path: str, operation: str, retries: int) -> None:
        """Counts a request to a store.

        Args:
          path: of the requested object.
          operation: its name in the store's protocol.
          retries: number of repetitions.
        """
        root = self.output.rstrip("/")
        of_output = bool(root) and (path == root or path.startswith(f"{root}/"))
        self.add(OUTPUT_REQUESTS if of_output else OTHER_REQUESTS, operation)
        if retries:
            self.add(OUTPUT_RETRIES if of_output else OTHER_RETRIES, value=retries)

    def tell(self) -> None:
        """Calls the listener, if any, so that files with numbers are rewritten."""
        if self.listener is not None:
            self.listener()

    @property
    def _now(self) -> RunMeasures:
        return self._open[-1] if self._open else self._outside


MEASURES = Measures()
"""Measures of this process."""
