"""A stream that waits: windows as their days end, a signal between them, and the same bytes as call by call."""

import datetime
import json
import signal

import pytest

from dapple_dp.pipelines.jobs import waiting
from dapple_dp.pipelines.jobs.job import Run
from dapple_dp.pipelines.jobs.windows import of_window
from dapple_dp.pipelines.kmeans.stream import job
from dapple_dp.pipelines.run.options import JobOptions, beam_options
from dapple_dp.schemas.settings.calendar import Calendar
from tests.scenes import brokers, lake
from tests.scenes.brokers import StreamPlace

pytestmark = pytest.mark.slow

DATES = tuple(f"2026-01-0{day}" for day in range(1, 5))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    found = StreamPlace(tmp_path_factory.mktemp("waits"))
    for day, date in enumerate(DATES):
        lake.write_lake(found.folder / "lake" / f"dt={date}", lake.mixture(60, seed=day))
    with brokers.equal_noise():
        outcome = found.stream("once", None, data=found.folder / "lake")
        assert outcome.code == 0, outcome.err
        yield found


class Clock:
    """A time that goes on whenever someone looks at it.

    Args:
      start: the first time, UTC.
      at: what is done when someone looks for the n-th time.
    """

    def __init__(self, start, at=None):
        self.time = datetime.datetime.fromisoformat(start).replace(tzinfo=datetime.UTC)
        self.looks, self.at = 0, at or {}

    def __call__(self):
        self.looks += 1
        self.at.get(self.looks, lambda: None)()
        self.time += datetime.timedelta(hours=2)
        return self.time


def run(place, name, clock, monkeypatch, **changes):
    monkeypatch.setattr(waiting, "now", clock)
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", 0.001)
    place.write(name, place.folder / "lake", **changes)
    return lake.run_command(*place.words(name))


def test_windows_are_released_when_their_days_are_over(place, monkeypatch):
    """The epoch ends on its own, and all its bytes are those of `--once`."""
    clock, seen, release = Clock("2026-01-01T05:00"), [], job.run_settings

    def noted(record, settings, options):
        seen.append((settings.epoch.window, clock.time))
        return release(record, settings, options)

    monkeypatch.setattr(job, "run_settings", noted)
    outcome = run(place, "waits", clock, monkeypatch)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["released"] == list(DATES)
    assert place.released("waits") == place.released("once")
    for date, time in seen:
        end = datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.UTC) + datetime.timedelta(days=1)
        assert end < time < end + datetime.timedelta(hours=12)
    assert sum("waiting for the window of" in line for line in outcome.lines) == 4


def test_nothing_is_released_before_the_time_to_settle(place, monkeypatch):
    """The days of a window are over, and its messages may still be on their way."""
    clock = Clock("2026-01-01T20:00")
    outcome = run(place, "settles", clock, monkeypatch, settle=9 * 3600, until=DATES[0])
    assert outcome.code == 0, outcome.err
    assert clock.time >= datetime.datetime(2026, 1, 2, 9, tzinfo=datetime.UTC)
    assert json.loads(outcome.out)["released"] == [DATES[0]]


def test_a_clock_that_jumps_while_the_job_waits_releases_nothing_more(place, monkeypatch):
    """Releases stay, and with the clock set right the next call continues."""
    clock = Clock("2026-01-01T20:00")
    clock.at = {6: lambda: setattr(clock, "time", datetime.datetime(2027, 6, 1, tzinfo=datetime.UTC))}
    monkeypatch.setattr(brokers, "CATCH_UP", ())
    outcome = run(place, "jumps", clock, monkeypatch)
    assert (outcome.code, f"add --catch_up {DATES[3]}" in outcome.err) == (2, True)
    assert list(place.released("jumps")) == list(DATES[:1])
    outcome = run(place, "jumps", Clock("2026-01-02T22:00"), monkeypatch, until=DATES[1])
    assert outcome.code == 0, outcome.err
    assert place.released("jumps") == {date: place.released("once")[date] for date in DATES[:2]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_job_that_waits(place, number, monkeypatch):
    """Released windows stay, and the next call goes on."""
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    clock = Clock("2026-01-02T00:00", {6: lambda: signal.raise_signal(number)})
    outcome = run(place, f"ends-{number}", clock, monkeypatch)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["released"] == [DATES[0]]
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    assert place.released(f"ends-{number}") == {DATES[0]: place.released("once")[DATES[0]]}


@pytest.mark.parametrize(
    ("numbers", "code", "released"),
    [
        ([signal.SIGTERM], 0, [DATES[0]]),
        ([signal.SIGTERM, signal.SIGTERM], 130, []),
        ([signal.SIGINT], 130, []),
    ],
)
def test_a_signal_in_a_window(place, numbers, code, released, monkeypatch):
    """SIGTERM lets the window be released; a second one, or Ctrl-C, does not. The next call goes on."""
    release, left = job.run_settings, list(numbers)

    def disturbed(*given):
        while left:
            signal.raise_signal(left.pop(0))
        return release(*given)

    monkeypatch.setattr(job, "run_settings", disturbed)
    name = f"in-a-window-{'-'.join(str(int(each)) for each in numbers)}"
    outcome = run(place, name, Clock("2026-02-01T00:00"), monkeypatch)
    assert outcome.code == code, outcome.err
    assert list(place.released(name)) == released
    outcome = run(place, name, Clock("2026-02-01T00:00"), monkeypatch, until=DATES[1])
    assert outcome.code == 0, outcome.err
    assert place.released(name) == {date: place.released("once")[date] for date in DATES[:2]}


@pytest.mark.parametrize(("begun", "expected"), [("2026-01-01T05:00", "2026-01-03T00:00"), ("2026-01-09T07:00",) * 2])
def test_a_window_began_for_others_when_it_was_due_or_when_the_job_did(begun, expected):
    """Never when the one before was done, which reveals how long its rows took."""
    calendar = Calendar(first=DATES[0], days=1, windows=3, settle=0)
    began, due = (datetime.datetime.fromisoformat(each).replace(tzinfo=datetime.UTC) for each in (begun, expected))
    options = JobOptions(config="c", run_id="r", beam=beam_options([]), output="out", begun=began)
    own = of_window(options, calendar, 1, "year")
    assert (own.output, own.run_id, own.begun) == ("out/2026-01-02", "year-2026-01-02", due)
    assert own.begun.isoformat(timespec="seconds") == Run(settings=None, options=own, place=None).started
