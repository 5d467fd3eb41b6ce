"""A window under masks that is killed anywhere: one charge, both halves of one sum, and the same bytes at the end."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from pipelines.kmeans.plan.epoch_halves import EpochHalves
from pipelines.ledger.store import Ledger
from schemas.kmeans.stream_config import stream_config
from tests.scenes import crashes, lake
from tests.scenes.crashes import Point
from tests.scenes.epochs import DATES, Place
from transforms.masked.window_halves import half_path, sealed_half

ZERO, FIRST, SECOND = bytes(range(64, 96)), bytes(range(32)), bytes(range(32, 64))
"""What the window before, the first and the second attempt draw where they draw a nonce."""
HALVES, LEDGER = "pipelines.kmeans.plan.epoch_halves:", "pipelines.ledger.store:Ledger."
POINTS = [
    Point(LEDGER + "reserve", after=True),
    Point(HALVES + "EpochHalves.digest_before", after=True),
    Point(LEDGER + "start", after=True),
    Point(HALVES + "write_once", call=2),
    Point("transforms.masked.aggregator:combined", after=True),
    Point("transforms.numerics.privacy.noise:draw_release", after=True),
    Point("transforms.masked.clients:combined", after=True),
    Point(HALVES + "EpochHalves._keep"),
    Point("transforms.files.new_file:put_in_place"),
    Point("transforms.files.new_file:put_in_place", after=True),
    Point("transforms.files.new_file:put_in_place", after=True, call=2),
    Point("pipelines.kmeans.outputs.files:write_outputs"),
    Point(LEDGER + "commit"),
    Point(LEDGER + "commit", after=True),
    Point("pipelines.run.folder:RunFolder.move", after=True),
]
RUN = f"january-{DATES[1]}"


def place_in(folder, start=True):
    """Rows of two days, and kept keys; the epoch has three windows."""
    place = Place(folder, unit="record", start=start, windows=3)
    for name, key in (("noise.key", bytes(range(3, 35))), ("clients.secret", bytes(range(7, 39)))):
        lake.write_key(folder / name, key)
    secret = {"secret_uri": str(folder / "clients.secret")}
    place.job |= {"trust": "masked", "key_uri": str(folder / "noise.key"), "masked": secret}
    return place


def run(place, until, **more):
    return crashes.run(place.words(until), str(place.folder / "line"), kept=True, **more)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    place = place_in(tmp_path_factory.mktemp("begun"))
    for day in (0, 1):
        place.write(DATES[day], range(30 + day))
    assert run(place, DATES[0], key=ZERO) == 0
    return place


def copy_of(place, folder):
    found = place_in(folder, start=False)
    shutil.copytree(place.folder, folder, dirs_exist_ok=True)
    return found


@pytest.fixture(scope="module")
def expected(begun, tmp_path_factory):
    """What the window releases and the halves that it leaves if nobody kills it, by what it draws."""
    found = {}
    for key in (FIRST, SECOND):
        place = copy_of(begun, tmp_path_factory.mktemp("whole"))
        assert run(place, DATES[1], key=key) == 0
        found[key] = (lake.released(place.folder / "january" / DATES[1]), halves(place))
    return found


def halves(place):
    """Digest of the pairs that the next window would add up; it refuses halves that are no pair."""
    job = stream_config(place.settings).window(2, str(place.folder / "january"))
    return EpochHalves.of(job).digest_before()


def entries(place):
    return [entry.kind for entry in Ledger(place.ledger.path).entries() if entry.run == RUN]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_a_killed_window_leaves_pairs_and_ends_with_the_same_bytes(begun, expected, tmp_path, point):
    place = copy_of(begun, tmp_path)
    output = tmp_path / "january" / DATES[1]
    assert run(place, DATES[1], key=FIRST, point=point) == -9
    assert entries(place) in (["reserve"], ["reserve", "start"], ["reserve", "start", "commit"])
    assert run(place, DATES[1], key=SECOND) == 0
    assert entries(place) == ["reserve", "start", "commit"]
    assert (lake.released(output), halves(place)) == expected[FIRST]
    assert not list((tmp_path / "january").glob("*.partial-*"))
    for name in ("sums", "masks"):
        kept = sorted(pathlib.Path(f"{place.ledger.path}.{name}").glob("*/*"))
        assert [path.name for path in kept] == ["00000.sealed", "00001.sealed"]
    assert run(place, DATES[1], key=SECOND) == 0
    assert json.loads((tmp_path / "line").read_text())["released"] == []


@pytest.mark.slow
def test_rows_that_change_between_the_two_halves_end_the_epoch(begun, tmp_path):
    """The masked sum of the rows before is kept, and noise was drawn for it."""
    place = copy_of(begun, tmp_path)
    point = Point("transforms.files.new_file:put_in_place", after=True)
    assert run(place, DATES[1], key=FIRST, point=point) == -9
    place.write(DATES[1], range(30), name="late")
    assert run(place, DATES[1], key=SECOND) == 3
    assert entries(place) == ["reserve", "start"]
    assert not (tmp_path / "january" / DATES[1]).exists()


@pytest.mark.slow
def test_halves_of_an_earlier_window_that_change_after_noise_was_drawn_end_the_epoch(begun, tmp_path):
    """A pair of halves under the right keys, and not the one that noise was drawn for."""
    place = copy_of(begun, tmp_path)
    point = Point("transforms.numerics.privacy.noise:draw_release", after=True)
    assert run(place, DATES[1], key=FIRST, point=point) == -9
    first = EpochHalves.of(stream_config(place.settings).window(0, str(tmp_path / "january")))
    for half in (first.sums, first.masks):
        sealed = sealed_half(half, np.zeros(15, dtype=np.int64), bytes(32))
        pathlib.Path(half_path(half.folder, 0)).write_bytes(sealed)
    assert run(place, DATES[1], key=SECOND) == 3
    assert entries(place) == ["reserve", "start"]


@pytest.mark.slow
def test_paths_in_another_spelling_give_a_killed_window_the_same_masks(begun, expected, tmp_path):
    """Other masks would be another masked sum, and so a second noise for one charge."""
    place = copy_of(begun, tmp_path)
    point = Point("transforms.numerics.privacy.noise:draw_release", after=True)
    assert run(place, DATES[1], key=FIRST, point=point) == -9
    place.job["data"] = place.job["data"] | {"path": f"{tmp_path}/lake/../lake/"}
    place.job["key_uri"] = f"{tmp_path}/./noise.key"
    assert run(place, DATES[1], key=SECOND) == 0
    assert (lake.released(tmp_path / "january" / DATES[1]), halves(place)) == expected[FIRST]


@pytest.mark.slow
def test_a_killed_last_window_drops_all_halves(begun, tmp_path):
    """Also if it was killed when it was committed and its folder not yet in place."""
    place = copy_of(begun, tmp_path)
    assert run(place, DATES[1], key=FIRST) == 0
    point = Point("pipelines.run.folder:RunFolder.move")
    assert run(place, DATES[2], key=FIRST, point=point) == -9
    assert len(list(tmp_path.glob("*.sums/*/*"))) == 2
    assert run(place, DATES[2], key=SECOND) == 0
    assert not list(tmp_path.glob("*.sums/*"))
    assert not list(tmp_path.glob("*.masks/*"))
