"""Charts: where numbers are drawn, which numbers stand beside an axis, and marks that hold whatever comes."""

import datetime
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from dapple_dp.pipelines.page.axis import MINUS, Axis, text_width
from dapple_dp.pipelines.page.chart import ACCENT, Chart, Look, fill, number, path
from dapple_dp.pipelines.page.svg import WIDTH, Figure, inline_svg


def axis(low, high, **settings):
    found = Axis()
    found.low, found.high = low, high
    for name, value in settings.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("low", "high", "most", "texts"),
    [
        (0.0, 1.0, 5, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (-1.2, 1.2, 5, [f"{MINUS}1", f"{MINUS}0.5", "0", "0.5", "1"]),
        (0.0, 2600.0, 6, ["0", "500", "1,000", "1,500", "2,000", "2,500"]),
        (1e9, 1e9 + 3.0, 3, ["1,000,000,000", "1,000,000,001", "1,000,000,002", "1,000,000,003"]),
        (3.0, -0.5, 4, ["0", "1", "2", "3"]),
    ],
)
def test_numbers_beside_an_axis_are_round_and_differ(low, high, most, texts):
    assert [text for _, text in axis(low, high, most=most).marks()] == texts


@pytest.mark.parametrize(
    ("low", "high", "most", "texts"),
    [(0.6, 6.4, 6, ["1", "2", "3", "4", "5", "6"]), (0.1, 1.9, 3, ["1"]), (0.0, 25.0, 3, ["0", "10", "20"])],
)
def test_whole_numbers_only_where_these_are_asked_for(low, high, most, texts):
    assert [text for _, text in axis(low, high, most=most, whole=True).marks()] == texts


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [(0.5, 2000.0, ["1", "10", "100", "1000"]), (2.0, 30.0, ["2", "5", "10", "20"]), (1.0, 1e12, ["1", "1000"])],
)
def test_a_log_scale_has_powers_of_ten_or_their_doubles_and_halves(low, high, texts):
    assert [text for _, text in axis(low, high, log=True).marks()][: len(texts)] == texts
    assert len(axis(low, high, log=True).marks()) <= 8


@pytest.mark.parametrize(
    ("first", "days", "high", "most", "texts"),
    [
        ("2026-10-01", 1, 11.6, 6, ["Oct 1", "Oct 3", "Oct 5", "Oct 7", "Oct 9", "Oct 11"]),
        ("2026-10-01", 1, 11.6, 3, ["Oct 1", "Oct 6", "Oct 11"]),
        ("2026-12-30", 7, 4.2, 6, ["Dec 30", "Jan 6", "Jan 13", "Jan 20", "Jan 27"]),
        ("2025-11-15", 1, 314.0, 6, ["2026", "Mar", "May", "Jul", "Sep"]),
        ("2025-03-15", 1, 800.0, 3, ["2026", "2027"]),
        ("2026-10-01", 30, 9990.0, 2, ["2055", "2466"]),
        ("9999-12-01", 20, 40.0, 6, ["Dec 1", "Dec 21"]),
        ("2026-10-01", 365, 0.9, 3, ["Oct 1"]),
    ],
)
def test_days_stand_beside_an_axis_as_dates(first, days, high, most, texts):
    found = axis(-0.6, high, most=most, days=(datetime.date.fromisoformat(first), days))
    assert [text for _, text in found.marks()] == texts


def test_a_date_lies_where_its_window_does():
    """2026-03-01 is 59 days after 2026-01-01."""
    found = axis(0.0, 300.0, most=6, days=(datetime.date(2026, 1, 1), 1))
    assert dict((text, place) for place, text in found.marks())["Mar"] == 59.0


def test_limits_leave_room_and_what_is_not_finite_does_not_count():
    found = Axis()
    found.include([1.0, math.nan, 3.0, math.inf])
    assert found.limits() == pytest.approx((0.9, 3.1))
    assert found.shares([0.9, 2.0, 3.1]) == pytest.approx([0.0, 0.5, 1.0])
    found.low, found.high = 4.0, 0.0
    assert found.shares([4.0, 0.0]) == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("values", [[], [0.0], [5.0, 5.0], [1e300], [1e-300, 0.0], [-1e300, 1e300], [math.nan]])
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_of_anything_has_limits_that_differ(values, log):
    found = Axis()
    found.log = log
    found.include(values)
    low, high = found.limits()
    assert low < high
    assert all(math.isfinite(value) for value, _ in found.marks())


def test_a_log_scale_leaves_out_what_it_cannot_show():
    found = Axis()
    found.log = True
    found.include([-1.0, 0.0, 1.0, 100.0])
    assert 0.5 < found.limits()[0] < 1.0
    assert not np.isfinite(found.shares([0.0])).any()


def test_wide_letters_take_more_room():
    assert text_width("iiii") < text_width("aaaa") < text_width("WWWW")
    assert text_width("\u6f22") > text_width("a")
    assert text_width("abc", 24.0) == pytest.approx(2.0 * text_width("abc"))


def test_lengths_are_short():
    assert [number(value) for value in (1.0, 1.005, 0.004, -0.001, 12.5, 1e3)] == ["1", "1", "0", "0", "12.5", "1000"]
    assert path(np.array([0.0, 1.0, np.nan, 3.0]), np.zeros(4)) == "M0 0 L1 0 M3 0"


def shown(chart_of):
    figure = Figure(200.0)
    chart_of(figure.chart())
    return inline_svg(figure, "plot", "A plot", "Of something.")


def test_marks_lie_where_their_numbers_are():
    def draw(chart: Chart):
        chart.x.low, chart.x.high, chart.y.low, chart.y.high = 0.0, 10.0, 0.0, 1.0
        chart.dots([0.0, 5.0, 10.0], [0.0, 0.5, 1.0], 2.0, [fill(ACCENT)] * 3)

    circles = ElementTree.fromstring(shown(draw)).findall(".//circle")
    x, y = np.array([[float(each.get(key)) for each in circles] for key in ("cx", "cy")])
    assert np.diff(x) == pytest.approx(x[1] - x[0], abs=0.02)
    assert np.diff(y) == pytest.approx(y[1] - y[0], abs=0.02)
    assert 0.0 < x[0] < x[2] < WIDTH
    assert 200.0 > y[0] > y[2] > 0.0


def test_a_long_line_is_thinned_and_keeps_its_peaks():
    x = np.arange(100_000.0)
    y = np.sin(x)
    y[77_777] = 50.0
    text = shown(lambda chart: chart.line(x, y, Look(ACCENT, 1.0)))
    assert len(text) < 40_000
    heights = [float(each) for each in re.findall(r"[ML][\d.]+ ([\d.]+)", text.partition('clip-path="')[2])]
    assert min(heights) < 30.0


@pytest.mark.parametrize("values", [[math.nan, math.nan], [math.inf, -math.inf], [1e300, -1e300], [0.0, 0.0]])
def test_no_number_is_shown_that_svg_does_not_know(values):
    pairs = np.array([values, values])

    def draw(chart: Chart):
        chart.line([1.0, 2.0], values, Look(ACCENT, 1.0, marker="P"))
        chart.dots([1.0, 2.0], values, 2.0, [fill(ACCENT)] * 2)
        chart.stems(pairs, pairs, Look(ACCENT, 1.0), cap=3.0)
        chart.boxes(pairs, pairs, fill(ACCENT))

    commands = re.findall(r' (?:d|cx|cy|x|y|width|height)="([^"]*)"', shown(draw))
    assert not any(word in each for each in commands for word in ("nan", "inf", "e+"))


def test_equal_scales_make_a_step_as_long_along_both_axes():
    def draw(chart: Chart):
        chart.x.low, chart.x.high, chart.y.low, chart.y.high, chart.equal = 0.0, 4.0, 0.0, 4.0, True
        chart.dots([0.0, 4.0], [0.0, 4.0], 2.0, [fill(ACCENT)] * 2)

    first, last = ElementTree.fromstring(shown(draw)).findall(".//circle")
    across = float(last.get("cx")) - float(first.get("cx"))
    assert across == pytest.approx(float(first.get("cy")) - float(last.get("cy")), abs=0.02)
