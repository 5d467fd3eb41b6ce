"""Whole runs of k-prototypes: a pipeline releases what a loop does, rows are assigned by their codes, and the page."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from tests.scenes import lake

N_ROWS = 1200
UNITS = {"record": ("--rows", "1200"), "client": ("--clients", "200")}
SEXES, WARDS = ("f", "m"), ("a", "b", "c")


class Place:
    """A lake of ages, labs, sexes and wards in three clusters, and its key."""

    def __init__(self, folder):
        rng, which = np.random.default_rng(0), np.arange(N_ROWS) % 3
        ages = np.array([20.0, 50.0, 80.0])[which] + rng.normal(0.0, 2.0, N_ROWS)
        labs = np.array([2.0, 0.0, 2.0])[which] + rng.normal(0.0, 0.1, N_ROWS)
        wards = np.array(["a", "b", "c"], dtype=object)[which]
        wards[::30] = "elsewhere"
        self.which = which
        self.table = pa.table(
            {
                "age": ages,
                "sex": np.array(["f", "m", "f"])[which],
                "lab": labs,
                "ward": pa.array(wards.tolist()),
                "team": pa.array(["x", "y", "z"] + ["x", "y"] * ((N_ROWS - 3) // 2) + ["x"]),
                "who": np.arange(N_ROWS) // 6,
            }
        )
        self.data = lake.write_files(folder / "rows", [self.table.slice(0, 700), self.table.slice(700)], 200)
        self.key = lake.write_key(folder / "key")

    def job(self, unit="record", **settings):
        found = {
            "experimental": True,
            "algorithm": "k_prototypes",
            "data": {"path": self.data, "features": ["age", "sex", "lab", "ward"]},
            "n_clusters": 3,
            "privacy": {"unit": unit, "epsilon": 8.0, "delta": 1e-6},
            "encode": {
                "sex": {"kind": "one_hot", "vocabulary": list(SEXES)},
                "ward": {"kind": "one_hot", "vocabulary": list(WARDS)},
            },
            "k_prototypes": {"domain": {"age": [0, 100], "lab": [-1, 3]}},
            "seed": 3,
            "key_uri": self.key,
        }
        if unit == "client":
            found["data"]["client_id"] = "who"
            found["clipping"] = {"client_rows": 6}
        return found | settings

    def expected(self, job):
        planned = lake.planned(job)
        points = planned.contract.encoder.encode(self.table, "the lake")
        return lake.chain(planned, ClientBlock(points, np.arange(0, N_ROWS + 1, 6))).model()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("prototypes"))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_run_equals_its_rounds_on_one_block(place, tmp_path, unit):
    job = place.job(unit)
    result = lake.run_fit(job, tmp_path / "out")
    lake.assert_same(result.model, place.expected(job))
    assert 7.9 < result.privacy.epsilon <= 8.0


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_command_releases_verifies_plans_and_assigns_by_codes(place, tmp_path, unit):
    outcome = lake.run_job(place.job(unit), tmp_path)
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "out"
    privacy = json.loads((folder / "privacy.json").read_text())
    assert [each["path"] for each in privacy["events"]][-2:] == [
        "k_prototypes/step_02/sums",
        "k_prototypes/step_02/cells",
    ]
    report = (folder / "report.html").read_text()
    assert "found by k-prototypes" in report
    assert "could not be written" not in report
    assert lake.run_command("verify", str(folder)).code == 0
    script = pathlib.Path(__file__).resolve().parents[3] / "docs" / "verify_release.py"
    checked = subprocess.run([sys.executable, script, folder], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All sensitivities, and 14 lattice units, follow from published bounds." in checked.stdout
    planned = lake.run_command("plan", "--config", str(tmp_path / "job.yaml"), *UNITS[unit])
    assert planned.code == 0, planned.err
    assert "A mode is clear if its code has about" in planned.out + planned.err
    config = tmp_path / "assign.yaml"
    config.write_text(
        f"data: {{path: {place.data}, features: [age, sex, lab, ward]}}\nmodel: {folder}\n", encoding="utf-8"
    )
    assigned = lake.run_command("assign", "--config", str(config), "--output", str(tmp_path / "assigned"))
    assert assigned.code == 0, assigned.err
    found = pq.read_table(tmp_path / "assigned" / "assignments.parquet").sort_by(
        [("file", "ascending"), ("row", "ascending")]
    )
    pairs = set(zip(place.which.tolist(), found.column("cluster").to_pylist(), strict=True))
    assert len(pairs) == 3


def test_the_page_says_how_frequent_modes_are_and_which_codes_noise_may_hide(place, tmp_path):
    """Neither of two teams of the same size is called the mode alone."""
    job = place.job()
    job["data"]["features"] = ["age", "sex", "ward", "team"]
    job["k_prototypes"]["domain"] = {"age": [0, 100]}
    job["encode"]["team"] = {"kind": "one_hot", "vocabulary": ["x", "y"]}
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 0, outcome.err
    report = re.sub("<[^>]*>", "", (tmp_path / "out" / "report.html").read_text())
    assert len(re.findall(r"team x \((4|5)\d%\) or y|team y \((4|5)\d%\) or x", report)) == 3
    assert re.search(r"ward a \((8|9)\d%\)", report)


def found_by_profile(folder, model, data, categorical):
    """Rows of a profile at record level as (cluster, column, statistic, value, noisy value)."""
    job = {
        "model": str(model),
        "data": {"path": data["path"], "features": data["features"]},
        "privacy": {"unit": "record", "epsilon": 8.0, "delta": 1e-6},
        "profile": {"categorical": categorical},
    }
    (folder / "profile.yaml").write_text(json.dumps(job))
    outcome = lake.run_command("profile", "--config", str(folder / "profile.yaml"), "--output", str(folder / "profile"))
    assert outcome.code == 0, outcome.err
    table = pq.read_table(folder / "profile" / "profile.parquet")
    names = ("cluster", "column", "statistic", "value", "noisy_value")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def test_a_profile_describes_clusters_of_rows_with_codes(place, tmp_path):
    """Rows belong to the cluster of the least distance in numbers and codes, as in the fit."""
    job = place.job()
    assert lake.run_job(job, tmp_path).code == 0
    rows = found_by_profile(tmp_path, tmp_path / "out", job["data"], {"ward": {"values": [*WARDS, "elsewhere"]}})
    counts = {(row[0], row[3]): row[4] for row in rows if row[1] == "ward"}
    for cluster in range(3):
        largest = max(WARDS, key=lambda ward: counts[cluster, ward])
        others = [counts[cluster, ward] for ward in WARDS if ward != largest]
        # Of those in ward a one row of ten is elsewhere.
        assert counts[cluster, largest] == pytest.approx(N_ROWS / 3 * (0.9 if largest == "a" else 1.0), abs=25)
        np.testing.assert_allclose(others, 0.0, atol=20)
    assert sum(counts[cluster, "elsewhere"] for cluster in range(3)) == pytest.approx(N_ROWS / 30, abs=30)


def test_codes_that_nobody_knows_are_found_by_a_profile_of_the_numbers(place, tmp_path):
    """Its names have passed a noisy threshold, so that they may be listed: rare ones are not."""
    job = place.job()
    numbers = {
        "algorithm": "dp_lloyd",
        "data": job["data"] | {"features": ["age", "lab"]},
        "n_clusters": 1,
        "privacy": job["privacy"],
        "dp_lloyd": {"domain": job["k_prototypes"]["domain"]},
        "key_uri": place.key,
    }
    assert lake.run_job(numbers, tmp_path).code == 0
    rows = found_by_profile(tmp_path, tmp_path / "out", numbers["data"], {"ward": {"values": None}})
    named = sorted({row[3] for row in rows if row[1] == "ward"})
    assert set(WARDS) <= set(named) <= {*WARDS, "elsewhere"}
    assert "of one row" not in named
    job["encode"]["ward"]["vocabulary"] = named
    (tmp_path / "second").mkdir()
    assert lake.run_job(job, tmp_path / "second").code == 0


ODD = ["a,b", 'q"uote', "nul\0", "Kranken", "\u041aranken", " a,b", "\u00e9", "e\u0301", "", "x" * 3000]
"""Codes with signs of CSV and of C, letters that look alike, and one with two spellings."""


def noisy_means(folder):
    """Returns the noisy means of a fit: for people, shares of codes in their places."""
    return np.array(json.loads(pq.read_schema(folder / "centers.parquet").metadata[b"noisy_means"]))


@pytest.mark.parametrize("kind", ["plain", "dictionary", "large"])
def test_odd_codes_are_told_apart_byte_by_byte(place, tmp_path, kind):
    codes = pa.array([ODD[row % len(ODD)] for row in range(N_ROWS)])
    codes = {"plain": codes, "dictionary": codes.dictionary_encode(), "large": codes.cast(pa.large_string())}[kind]
    table = pa.table({"age": place.table["age"], "code": codes})
    # No job can name a zero byte; rows that have one are not those without.
    listed = [code for code in ODD if "\0" not in code] + ["nul"]
    job = place.job(encode={"code": {"kind": "one_hot", "vocabulary": listed}}, n_clusters=1)
    job["data"] = {"path": lake.write_files(tmp_path / "rows", [table]), "features": ["age", "code"]}
    job["k_prototypes"] = {"domain": {"age": [0, 100]}}
    with lake.without_beam():
        outcome = lake.run_job(job, tmp_path, "--runner=InProcess")
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "out"
    shares = noisy_means(folder)[0, 1:] / np.sqrt(0.125)
    np.testing.assert_allclose(shares, [*[1 / len(ODD)] * (len(ODD) - 1), 0.0], atol=0.02)
    assert lake.run_command("verify", str(folder)).code == 0
    assert "could not be written" not in (folder / "report.html").read_text()


BAD = {
    "null": (pa.array([None, "f"] * (N_ROWS // 2)), "must hold a value in every row, got a null"),
    "float": (pa.array([1.0, 2.0] * (N_ROWS // 2)), "must hold strings like its vocabulary, got double"),
    "integers": (pa.array([1, 2] * (N_ROWS // 2)), "must hold strings like its vocabulary, got int64"),
    "bytes": (pa.array([b"f", b"m"] * (N_ROWS // 2)), "must hold strings like its vocabulary, got binary"),
    "lists": (pa.array([["f"], ["m"]] * (N_ROWS // 2)), "must hold strings like its vocabulary, got list"),
}


@pytest.mark.parametrize("name", BAD)
def test_columns_that_hold_no_codes_are_refused_without_a_value(place, tmp_path, name):
    codes, message = BAD[name]
    table = place.table.set_column(place.table.schema.get_field_index("sex"), "sex", codes)
    job = place.job()
    job["data"]["path"] = lake.write_files(tmp_path / "rows", [table])
    with lake.without_beam():
        outcome = lake.run_job(job, tmp_path, "--runner=InProcess")
    assert outcome.code == 2
    assert message in outcome.lines[-1]
    assert "encode.sex" in outcome.lines[-1] or "column 'sex'" in outcome.lines[-1]


def test_csv_has_the_codes_of_parquet(place, tmp_path):
    job, folder = place.job(), tmp_path / "rows"
    folder.mkdir()
    place.table.drop_columns(["who", "team"]).to_pandas().to_csv(folder / "rows.csv", index=False)
    (tmp_path / "csv").mkdir()
    with lake.without_beam():
        expected = lake.run_job(job, tmp_path, "--runner=InProcess")
        job["data"] = job["data"] | {"path": str(folder)}
        outcome = lake.run_job(job, tmp_path / "csv", "--runner=InProcess")
    assert (expected.code, outcome.code) == (0, 0), outcome.err
    one, other = (noisy_means(each / "out") for each in (tmp_path, tmp_path / "csv"))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("codes", "listed"), [(1, 1), (300, 300), (300, 1)])
def test_lists_of_any_length(place, tmp_path, codes, listed):
    """A column with one code, and 300 codes of which one is listed: all others are one."""
    column = pa.array([f"c{row % codes}" for row in range(N_ROWS)])
    table = pa.table({"age": place.table["age"], "code": column})
    job = place.job(n_clusters=2)
    job["encode"] = {"code": {"kind": "one_hot", "vocabulary": [f"c{index}" for index in range(listed)]}}
    job["data"] = {"path": lake.write_files(tmp_path / "rows", [table]), "features": ["age", "code"]}
    job["k_prototypes"] = {"domain": {"age": [0, 100]}}
    with lake.without_beam():
        outcome = lake.run_job(job, tmp_path, "--runner=InProcess")
    assert outcome.code == 0, outcome.err
    sizes = pq.read_table(tmp_path / "out" / "centers.parquet").column("noisy_size").to_pylist()
    assert sum(sizes) == pytest.approx(N_ROWS, abs=300)
    assert "could not be written" not in (tmp_path / "out" / "report.html").read_text()
