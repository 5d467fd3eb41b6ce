"""Facts of a run agree wherever they are said; all of them are computed from its files alone."""

import html
import json
import math
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from tests.scenes import lake

BOX = {"algorithm": "dp_lloyd", "dp_lloyd": {"domain": [-2, 7]}, "server_data": None, "clipping": {"norm": "domain"}}
TREE = {"algorithm": "central_tree", "tree": {"radius": 8.0}, "server_data": None, "clipping": {"center": "origin"}}
JOBS = {"feddp": {"quality": {"share": 0.1}}, "lloyd": BOX, "client": {}}
SIZED = {"feddp": "sizes", "lloyd": "counts", "client": "counts"}
"""Name of the release that says how large clusters are."""


class Files:
    """Files of a finished run."""

    def __init__(self, folder, name):
        path = lake.write_lake(folder / "lake", lake.mixture(900), np.arange(900) // 10)
        unit = "client" if name == "client" else "record"
        job = lake.job(path, lake.write_server(folder / "server.parquet"), unit)
        settings = {key: value for key, value in (job | JOBS[name]).items() if value is not None}
        outcome = lake.run_job(settings, folder)
        assert outcome.code == 0, outcome.err
        out = folder / "out"
        self.name, self.summary = name, json.loads(outcome.out.splitlines()[-1])
        self.privacy = json.loads((out / "privacy.json").read_text())
        self.entry = yaml.safe_load((out / "deployment.yaml").read_text())
        self.raw = (out / "report.html").read_text()
        self.page = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(style|svg).*?</\1>", "", self.raw, flags=re.S)))
        self.releases = pq.read_table(out / "releases.parquet").to_pylist()
        self.centers = pq.read_table(out / "centers.parquet")

    @property
    def label(self):
        """The first part of the page."""
        return self.page[: self.page.index("Before you trust it")]

    def sized(self):
        """The release by which clusters are sized."""
        return [each for each in self.releases if each["path"].endswith("/" + SIZED[self.name])][-1]


@pytest.fixture(scope="module", params=JOBS)
def files(request, tmp_path_factory):
    return Files(tmp_path_factory.mktemp(request.param), request.param)


def test_epsilon_and_delta_are_said_alike(files):
    epsilon, delta = files.privacy["epsilon"], files.privacy["delta"]
    assert (files.summary["epsilon"], files.summary["delta"]) == (epsilon, delta)
    loss = files.entry["deployment"]["privacy_loss"]["privacy_parameters"]
    assert (loss["epsilon"], loss["delta"]) == (epsilon, delta)
    assert f"{epsilon:.6g}" in files.page
    assert f"{epsilon:.4g}" in files.label


def test_every_release_is_shown_with_its_noise(files):
    assert [each["path"] for each in files.privacy["events"]] == [each["path"] for each in files.releases]
    for event, release in zip(files.privacy["events"], files.releases, strict=True):
        assert event["tells"] == release["tells"] != ""
        for name in ("noise_multiplier", "noise_stddev_lattice", "sensitivity_lattice", "mechanism"):
            assert event[name] == release[name]
        assert release["tells"] in files.page
        assert release["path"].partition("/")[2] in files.page
        assert f"{release['noise_stddev_lattice'] * release['lattice_unit']:.4g}" in files.page


def test_the_noise_of_sizes_is_that_of_the_release_that_counts(files):
    release = files.sized()
    stddev = release["noise_stddev_lattice"] * release["lattice_unit"]
    found = files.centers["size_stddev"].to_numpy()
    np.testing.assert_allclose(found, stddev, rtol=1e-12)
    np.testing.assert_allclose(files.privacy["sizes"]["noise_stddev"], found, rtol=1e-12)
    assert f"the stddev of its noise is {stddev:.4g}" in json.dumps(files.entry)
    (stated,) = set(re.findall(r"noisy size ± ([\d.,]+)", files.page))
    assert math.isclose(float(stated.replace(",", "")), 2.0 * stddev, rel_tol=0.1)
    assert f"± {stated}" in files.label


def test_what_a_size_counts_is_said_alike(files):
    counted = json.loads(files.centers.schema.metadata[b"counted"])
    assert counted.startswith("nearest to each center as it ")
    assert ("published" in counted) == (files.name == "feddp")
    assert files.privacy["sizes"]["counted"] == counted
    assert counted in json.dumps(files.entry)
    assert counted in files.label
    assert files.page.count(counted) >= 2


def test_sizes_of_page_and_table_are_those_that_were_released(files):
    release = files.sized()
    values = np.array(release["values_lattice"]) * release["lattice_unit"]
    np.testing.assert_allclose(files.centers["noisy_size"].to_numpy(), values[: files.centers.num_rows])


def test_warnings_are_counted_once(files):
    shown = files.raw.count("<strong>Warning</strong>")
    assert files.summary["warnings"] == shown
    assert f'<meta name="dapple-warnings" content="{shown}">' in files.raw
