"""The page of each window of a stream: its noise, and whose budget it shows, as every other file of the window says."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.page.numbers import at_most
from dapple_dp.transforms.numerics.kmeans.recurring.windows import mixing
from tests.scenes import epochs

pytestmark = pytest.mark.slow

COVERS = "all 3 windows of epoch january together"
DATES = epochs.DATES[:3]


@pytest.fixture(scope="module", params=["record", "client"])
def place(request, tmp_path_factory):
    """Three windows, with as much noise as a third of a cluster."""
    folder = tmp_path_factory.mktemp(request.param)
    found = epochs.Place(folder, unit=request.param, windows=3)
    for date in DATES:
        found.write(date, range(90))
    assert found.release(DATES[-1]).code == 0
    return found


def words_of(page):
    """Returns what a reader reads, tables and captions, without pictures."""
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", page.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def stddev_of(place, index):
    """Noise of a size in a window, from what was released: the own part is solved for from all windows before."""
    folder = place.folder / "january" / DATES[index]
    weights = json.loads((folder / "privacy.json").read_text())["epoch"]["weights"]
    rows = pq.read_table(folder / "releases.parquet").to_pylist()
    (row,) = [each for each in rows if each["path"].endswith("weighted_counts")]
    mixed = np.linalg.norm(mixing(weights, index + 1)[-1])
    return row["noise_stddev_lattice"] * row["lattice_unit"] / weights[0] * mixed


@pytest.mark.parametrize("index", range(3))
def test_sizes_have_their_noise(place, index):
    folder, stddev = place.folder / "january" / DATES[index], stddev_of(place, index)
    text, twice = words_of(folder / "report.html"), at_most(2.0 * stddev)
    assert float(twice.replace(",", "")) > 0.0
    assert f"Whiskers reach two noise stddevs, {twice} " in text
    assert f"noisy size ± {twice} " in text
    drift = json.loads((folder / "drift.json").read_text())
    assert drift["size_noise_stddev"] == pytest.approx(stddev)
    assert all(each["size_score"] is None for each in drift["clusters"])
    if index:
        assert drift["previous_size_noise_stddev"] == pytest.approx(stddev_of(place, index - 1))
    small = (pq.read_table(folder / "centers.parquet")["noisy_size"].to_numpy() < 2.0 * stddev).any()
    assert ("Every cluster larger than its noise passed" in text) is not small


def test_the_page_of_the_stream_says_the_same_noise(place):
    text = words_of(place.folder / "january/index.html")
    assert f"noise either way, now {2.0 * stddev_of(place, 2):,.4g}." in text


@pytest.mark.parametrize("index", range(3))
def test_page_label_and_json_say_that_the_budget_is_of_all_windows_together(place, index):
    folder = place.folder / "january" / DATES[index]
    text = words_of(folder / "report.html")
    assert f"Budget of {COVERS}" in text
    assert "Budget of this run" not in text
    assert f"This holds for {COVERS}." in text
    assert f"The privacy losses of {COVERS} were composed" in text
    privacy = json.loads((folder / "privacy.json").read_text())
    assert privacy["covers"] == COVERS
    loss = yaml.safe_load((folder / "deployment.yaml").read_text())["deployment"]
    assert f"{COVERS}, not of this window alone" in loss["privacy_loss"]["privacy_parameters_details"]
    assert COVERS in loss["deployment_model"]["release_type_details"]


def test_a_window_shows_no_movement_since_its_round_moves_no_center(place):
    assert "From the start to the centers" not in words_of(place.folder / "january" / DATES[1] / "report.html")


def test_a_run_of_its_own_says_nothing_of_windows(place):
    text = words_of(place.folder / "start/report.html")
    assert "Budget of this run" in text
    assert "windows of epoch" not in text
    assert "covers" not in json.loads((place.folder / "start/privacy.json").read_text())
