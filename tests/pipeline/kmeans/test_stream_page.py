"""The page of a stream: what each part shows of released numbers, how it thins, and that nothing breaks it."""

import json
import re
import shutil

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.stream import center_plots
from dapple_dp.pipelines.kmeans.stream.history import LAST, read_history, thinned
from dapple_dp.pipelines.kmeans.stream.windows_page import write_page
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.windows_config import coefficients
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import Bounds, BoundsRange, EncodingKind
from dapple_dp.transforms.numerics.kmeans.recurring.windows import mixing, own_noise
from tests.scenes import streams

NAMES = ["age", "<b>income</b>", "visits"]
START = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 1.0], [0.0, 4.0, 2.0]])
STEP = np.array([[0.0, 0.0, 0.0], [0.0, 0.1, 0.0], [0.05, 0.0, 0.0]])


def write(folder, done, indices=None, names=NAMES, unit="record", **more):
    """Windows in which cluster 1 walks along the second feature; their config."""
    config = streams.config(folder, names, unit)
    for index in range(done) if indices is None else indices:
        sizes = np.array([100.0, -3.0, 50.0]) + index
        streams.write_window(folder, config, index, (START + index * STEP)[:, : len(names)], sizes, **more)
    return config


def drawn(folder, config, done):
    write_page(config, str(folder), done)
    return (folder / "index.html").read_text()


def svg(page, title):
    (found,) = re.findall(rf'<svg[^>]*aria-label="{title}\..*?</svg>', page, re.DOTALL)
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream")
    return folder, write(folder, 8, scores=np.array([0.0, 5.0, -1.0]))


def test_it_shows_centers_sizes_drift_and_budget(place):
    page = drawn(*place, 8)
    assert re.findall(r'<section id="(\w+)"', page) == ["centers", "features", "budget", "windows"]
    for title in (
        "Paths of the centers",
        "Distance from the first window",
        "Centers by feature",
        "Noisy sizes",
        "Drift scores",
    ):
        assert all(f"cluster {number}" in svg(page, title) for number in range(3)) or title.startswith("Paths")
    assert "Clusters that drift in the last window: 1." in page
    assert "9992, which cost nothing more" in page
    assert "The page shows all windows." in page
    assert "could not be" not in page


def test_it_is_one_quiet_file_of_equal_bytes_and_escaped(place):
    page = drawn(*place, 8)
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 5
    # Pages name the day on which they are drawn.
    assert pictures == re.findall(r"<svg.*?</svg>", drawn(*place, 8), re.DOTALL)
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert "<b>income" not in page
    assert "&lt;b&gt;income" in svg(page, "Centers by feature")


def test_sizes_have_the_noise_of_what_each_window_alone_adds(place):
    """Own parts are solved for from the windows before, so their noise grows from window to window."""
    folder, config = place
    history = read_history(config, str(folder), 8)
    mixed = np.linalg.norm(mixing(coefficients(3, 4), 8), axis=1)
    np.testing.assert_allclose(history.size_stddevs, streams.COUNT_STDDEV * mixed)
    assert history.size_stddevs[0] == streams.COUNT_STDDEV < history.size_stddevs[-1]
    assert f"now {2.0 * history.size_stddevs[-1]:,.4g}." in drawn(folder, config, 8)


@pytest.mark.parametrize(("weights", "n_windows"), [((16,), 5), ((16, 6, 3), 9), (coefficients(16, 30), 200)])
def test_own_noise_is_that_of_the_mixing(weights, n_windows):
    expected = np.linalg.norm(mixing(weights, n_windows), axis=1)
    np.testing.assert_allclose(own_noise(weights, n_windows), expected, rtol=1e-12)


def test_ways_and_features_follow_the_centers(place):
    """Cluster 1 walks 0.7, in a plane that holds all that moves; the third feature moves in no cluster."""
    folder, config = place
    history = read_history(config, str(folder), 8)
    places, shares, numbers = center_plots.path_plane(history)
    assert numbers == [0, 1, 2]
    walked = np.linalg.norm(places[:, -1] - places[:, 0], axis=1)
    true = np.linalg.norm(7 * STEP, axis=1)
    assert (walked <= true + 1e-9).all()
    np.testing.assert_allclose(walked, true, atol=0.1)
    assert 0.9 < shares.sum() <= 1.0 + 1e-9
    assert center_plots.moving_features(history) == [0, 1, 2]
    np.testing.assert_allclose(history.path(1), START[1] + np.arange(8)[:, None] * STEP[1])


def test_windows_are_named_by_their_dates(place):
    page = drawn(*place, 8)
    for title in ("Distance from the first window", "Centers by feature", "Noisy sizes", "Drift scores"):
        found = svg(page, title)
        assert ">Jan 1</text>" in found
        assert ">window, 2026</text>" in found
    assert "windows since" not in page


def test_all_plots_of_a_section_fill_its_width(place):
    assert 'class="plots single"' not in drawn(*place, 8)


def test_features_with_bounds_of_their_own_are_shown_in_the_units_of_their_columns(tmp_path):
    """Bounds (0, 50): 0 is 25 there, and a step of 1 is 25 long, that of the noise, too."""
    config = write(tmp_path, 3, noise=0.3)
    place = tmp_path / config.calendar.date(2) / "run.json"
    manifest = json.loads(place.read_text())
    bounds = Bounds(kind=EncodingKind.BOUNDS, lower=0.0, upper=50.0, to=BoundsRange.SYMMETRIC)
    manifest["encoding"] = Encoder.learn(tuple(NAMES), {"age": bounds}).to_json()
    place.write_text(json.dumps(manifest))
    history = read_history(config, str(tmp_path), 3)
    centers, noise = history.in_units(2, 0)
    np.testing.assert_allclose(centers, 25.0 * (1.0 + np.arange(3) * STEP[2, 0]))
    np.testing.assert_allclose(noise, 25.0 * 0.3 / np.sqrt(3.0))
    assert history.in_units(1, 1)[0][0] == 0.0
    assert "center, own unit" in drawn(tmp_path, config, 3)


def test_features_that_move_most_are_shown(tmp_path):
    names = [f"column{index}" for index in range(12)]
    config = streams.config(tmp_path, names)
    moves = np.zeros(12)
    moves[[3, 11]] = 1.0, -2.0
    for index in range(3):
        centers = np.stack([index * moves, np.ones(12)])
        streams.write_window(tmp_path, config, index, centers, np.array([9.0, 8.0]))
    shown = center_plots.moving_features(read_history(config, str(tmp_path), 3))
    assert len(shown) == center_plots.MOST_PANELS
    assert {3, 11} <= set(shown)
    assert "The 8 of 12 features in which centers moved most." in drawn(tmp_path, config, 3)


@pytest.mark.parametrize("done", [1, 2, 50, 100, 101, 151, 400, 9_999, 10_000])
def test_few_windows_are_read_whatever_their_number(done):
    indices, every = thinned(done)
    assert len(indices) <= 100 + LAST
    assert indices == sorted(set(indices))
    assert indices[-min(done, LAST) :] == list(range(max(0, done - LAST), done))
    assert (every == 1) is (done <= 100)
    assert set(range(0, done, every)) <= set(indices)


def test_an_older_window_that_is_left_out_stays_out():
    before = set(thinned(100)[0])
    for done in range(101, 1_000):
        now = set(thinned(done)[0])
        assert {index for index in now if index < done - LAST} <= before
        before = now


def test_ten_thousand_windows(tmp_path):
    """Only the windows that are shown are read: no other one has a folder here."""
    config = write(tmp_path, 10_000, thinned(10_000)[0], scores=np.zeros(3))
    page = drawn(tmp_path, config, 10_000)
    assert "The page shows the last 50 windows, and one window in 128 of the whole epoch." in page
    assert "Noisy sizes, last 50 windows" in page
    assert "Drift scores, last 50 windows" in page
    assert "could not be" not in page
    assert len(page) < 1 << 20
    history = read_history(config, str(tmp_path), 10_000)
    assert history.recent.x.tolist() == list(range(9_950, 10_000))
    assert history.overall.x.tolist() == [*range(0, 10_000, 128), 9_999]
    assert len(history.overall.size_stddevs) == len(history.overall.windows)


@pytest.mark.parametrize("done", [1, 2])
@pytest.mark.parametrize("names", [NAMES, NAMES[:1]], ids=["three", "one"])
def test_short_and_narrow_streams(tmp_path, done, names):
    """One window, one feature; noise and scores that nobody knows."""
    page = drawn(tmp_path, write(tmp_path, done, names=names, noise=None), done)
    assert "could not be" not in page
    assert ("Paths of the centers" in page) is (len(names) > 1)
    assert ("Distance from the first window" in page) is (done > 1)
    assert "Drift scores" not in page
    assert "nan" not in "".join(re.findall(r'<path d="[^"]*"', page)).lower()


def test_centers_that_all_coincide(tmp_path):
    config = streams.config(tmp_path, NAMES)
    for index in range(3):
        streams.write_window(tmp_path, config, index, np.zeros((2, 3)), np.zeros(2), noise=1e300)
    assert "could not be" not in drawn(tmp_path, config, 3)


def test_clients_have_weights(tmp_path):
    page = drawn(tmp_path, write(tmp_path, 2, unit="client"), 2)
    assert "noisy size, weight of clients" in page
    assert "for one client, over all windows" in page


@pytest.mark.parametrize("name", ["centers.parquet", "drift.json", "run.json", "memory.parquet", "privacy.json"])
def test_a_file_that_is_gone_or_foreign_is_named(place, tmp_path, name):
    folder, config = place
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / config.calendar.date(7) / name
    for content in (b"{}", None):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        with pytest.raises(InputError, match=f"{name} must be the file that the window released"):
            write_page(config, str(tmp_path), 8)
