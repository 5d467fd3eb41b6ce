"""The number of windows that a stream releases at once, by the clock and what a person has confirmed."""

import datetime
import io
import types

import pytest

from dapple_dp.pipelines.jobs import waiting
from dapple_dp.pipelines.kmeans.stream import job
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.calendar import Calendar

CALENDAR = Calendar(first="2026-01-30", days=1, windows=6, settle=0)


def check(indices, catch_up="", *, asking=False):
    run = types.SimpleNamespace(
        settings=types.SimpleNamespace(calendar=CALENDAR), options=types.SimpleNamespace(catch_up=catch_up)
    )
    job._check_clock(run, indices, asking=asking)


@pytest.mark.parametrize(
    ("indices", "catch_up"),
    [
        ((), ""),
        ((0,), ""),
        ((5,), ""),
        ((0, 1), "2026-01-31"),
        ((0, 1, 2), "2026-01-31"),
        ((3, 4, 5), "2030-01-01"),
        ((4,), "2026-01-30"),
    ],
)
def test_one_window_is_released_at_a_time_and_others_up_to_a_date(indices, catch_up):
    check(indices, catch_up)


@pytest.mark.parametrize(
    ("indices", "catch_up"),
    [((0, 1), ""), ((0, 1, 2, 3), "2026-01-31"), ((4, 5), "2026-01-31"), ((0, 1), "2026-01-29")],
)
def test_several_windows_stop_a_job_that_nobody_can_be_asked_in(indices, catch_up, monkeypatch):
    """The flag of an earlier day, left in a crontab, covers no later ones."""
    monkeypatch.setattr(waiting, "now", lambda: datetime.datetime(2026, 2, 9, 3, 4, tzinfo=datetime.UTC))
    with pytest.raises(
        ConfigError, match=r"2 windows are due at once.*\(2026-02-09 03:04 UTC\).*can't be taken back"
    ) as no:
        check(indices, catch_up)
    assert f"add --catch_up {CALENDAR.date(indices[-1])}." in str(no.value)


@pytest.mark.parametrize(
    ("typed", "released"), [("2026-01-31\n", True), ("2026-01-30\n", False), ("yes\n", False), ("", False)]
)
def test_a_person_at_a_terminal_types_the_date(typed, released, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    if released:
        check((0, 1), asking=True)
        return
    with pytest.raises(ConfigError, match="Nothing is released"):
        check((0, 1), asking=True)
