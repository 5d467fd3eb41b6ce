"""A window that is killed anywhere: one charge, the same clients and the same bytes when the job is called again."""

import json
import pathlib
import shutil

import pytest

from dapple_dp.pipelines.ledger.store import Ledger
from tests.scenes import crashes, lake
from tests.scenes.crashes import Point
from tests.scenes.epochs import DATES, Place

ZERO, FIRST, SECOND = bytes(range(64, 96)), bytes(range(32)), bytes(range(32, 64))
"""What the window before, the first and the second attempt draw where they draw a key, a nonce or a salt."""
STORE, FOLDER, LISTS = (
    "dapple_dp.pipelines.ledger.store:",
    "dapple_dp.pipelines.run.folder:RunFolder.",
    "dapple_dp.pipelines.tables.epoch_clients:",
)
COMMON = [
    Point(STORE + "Ledger.reserve"),
    Point(STORE + "Ledger.reserve", after=True),
    Point("dapple_dp.transforms.privacy.key_files:create_key", after=True),
    Point(STORE + "Ledger.start"),
    Point(STORE + "Ledger.start", after=True),
    Point("dapple_dp.transforms.core.noise:draw_release"),
    Point("dapple_dp.transforms.core.noise:draw_release", after=True),
    Point("dapple_dp.transforms.files.publish:write_bytes", call=2),
    Point("dapple_dp.pipelines.kmeans.report.files:write_outputs"),
    Point(FOLDER + "seal"),
    Point(STORE + "Ledger.commit"),
    Point(STORE + "Ledger.commit", after=True),
    Point(FOLDER + "move"),
    Point(FOLDER + "move", after=True),
    Point("dapple_dp.pipelines.kmeans.stream.job:write_page"),
]
OF_ROLLS = [
    Point(LISTS + "EpochClientList.params"),
    Point("dapple_dp.transforms.tables.counted_clients:ClientList.to_bytes"),
    Point(LISTS + "EpochClientList.called"),
    Point("dapple_dp.transforms.files.new_file:create", after=True, call=2),
    Point("dapple_dp.transforms.files.new_file:put_in_place", after=True),
    Point(LISTS + "EpochClientList.called", after=True),
    Point("dapple_dp.pipelines.tables.prepare:group"),
    Point("dapple_dp.pipelines.tables.prepare:group", after=True),
]
ENDS = ("reserve", "start", "noise:draw_release", "commit", "write_page")
OF_RECORDS = [point for point in COMMON if point.function.endswith(ENDS)]
CASES = [("record", point) for point in OF_RECORDS] + [("client", point) for point in [*COMMON, *OF_ROLLS]]
RUN = f"january-{DATES[1]}"


def begun(folder, unit):
    """A place with the first window released, and rows of the second: of clients in two files."""
    place = Place(folder, unit=unit)
    place.write(DATES[0], range(30))
    place.write(DATES[1], range(20, 60))
    place.write(DATES[1], range(50, 90), name="more")
    assert crashes.run(place.words(DATES[0]), str(folder / "line"), key=ZERO) == 0
    return place


@pytest.fixture(scope="module")
def begun_places(tmp_path_factory):
    return {unit: begun(tmp_path_factory.mktemp(unit), unit) for unit in ("record", "client")}


def copy_of(place, unit, folder):
    found = Place(folder, unit=unit, start=False)
    shutil.copytree(place.folder, folder, dirs_exist_ok=True)
    return found


@pytest.fixture(scope="module")
def expected(begun_places, tmp_path_factory):
    """Returns what a window releases that nobody kills, by unit and by what it draws."""
    found = {}
    for unit, key in (("record", FIRST), ("record", SECOND), ("client", FIRST), ("client", SECOND)):
        place = copy_of(begun_places[unit], unit, tmp_path_factory.mktemp("whole"))
        assert crashes.run(place.words(DATES[1]), str(place.folder / "line"), key=key) == 0
        found[unit, key] = lake.released(place.folder / "january" / DATES[1])
    return found


def entries(place):
    return [entry.kind for entry in Ledger(place.ledger.path).entries() if entry.run == RUN]


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "point"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_killed_window_is_charged_once_and_ends_with_the_same_bytes(begun_places, expected, tmp_path, unit, point):
    place = copy_of(begun_places[unit], unit, tmp_path)
    words, line, output = place.words(DATES[1]), str(tmp_path / "line"), tmp_path / "january" / DATES[1]
    assert crashes.run(words, line, key=FIRST, point=point) == -9
    left = entries(place)
    assert left in ([], ["reserve"], ["reserve", "start"], ["reserve", "start", "commit"])
    keyed = output.exists() or pathlib.Path(f"{output}.partial-{RUN}", "run.key").exists() or "commit" in left
    assert crashes.run(words, line, key=SECOND) == 0
    assert entries(place) == ["reserve", "start", "commit"]
    assert lake.released(output) == expected[unit, FIRST if keyed else SECOND]
    assert "2 of 6, from 2026-01-01" in (tmp_path / "january" / "index.html").read_text()
    assert not list((tmp_path / "january").glob("*.partial-*"))
    if unit == "client":
        assert [path.name for path in place.lists()] == ["00000.npz", "00001.npz"]
        assert [place.n_counted(window) for window in (0, 1)] == [30, 60]
    again = lake.run_command(*words)
    assert (again.code, json.loads(again.out)["released"]) == (0, [])
    assert entries(place) == ["reserve", "start", "commit"]


@pytest.mark.slow
def test_rows_that_change_after_a_window_was_killed_end_the_epoch(begun_places, tmp_path):
    """Noise may have been drawn for the rows and the clients before."""
    place = copy_of(begun_places["client"], "client", tmp_path)
    words, line = place.words(DATES[1]), str(tmp_path / "line")
    point = Point("dapple_dp.transforms.core.noise:draw_release", after=True)
    assert crashes.run(words, line, key=FIRST, point=point) == -9
    place.write(DATES[1], range(30), name="late")
    assert crashes.run(words, line, key=SECOND) == 3
    assert entries(place) == ["reserve", "start"]
    assert not (tmp_path / "january" / DATES[1]).exists()
