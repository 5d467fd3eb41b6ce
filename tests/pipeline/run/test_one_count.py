"""The number of warnings of a run: page, log and last line of every job say the same."""

import json
import pathlib
import re

import numpy as np
import pytest
import yaml

from dapple_dp.pipelines.jobs.warned import total_warnings, with_warnings
from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import epochs, federation, lake, ledgers, reports, sweeps

FEW_ROWS = {"privacy__epsilon": 20.0, "privacy__delta": 0.002}
"""Settings that are warned of before the run; with 60 rows there are warnings of released numbers, too."""


def shown(page: pathlib.Path) -> int:
    """Warnings that a reader sees."""
    return page.read_text().count("<strong>Warning</strong>")


def logged(outcome: lake.Outcome) -> int:
    """Warnings that stderr counts."""
    said = re.findall(r"^dapple: the report has (\d+) warnings?: ", outcome.err, re.MULTILINE)
    return sum(map(int, said))


def forewarned(outcome: lake.Outcome) -> list[str]:
    return re.findall(r"^dapple: warning: (.*)$", outcome.err, re.MULTILINE)


def last(outcome: lake.Outcome) -> dict:
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out.splitlines()[-1])


def check(outcome: lake.Outcome, page: pathlib.Path, least: int) -> None:
    """Everybody counts what the page shows, and it shows what was said before the run."""
    assert outcome.code == 0, outcome.err
    number = shown(page)
    assert number >= least
    assert last(outcome)["warnings"] == logged(outcome) == number
    tag = re.search(r"<li>(\w+) warnings?</li>", page.read_text())
    assert (tag[1] if tag else "no") == (f"{number}" if number else "no")
    text = re.sub(r"<[^>]+>", "", page.read_text()).lower()
    assert len(forewarned(outcome)) <= number
    assert all(each.partition(" ")[0] in text for each in forewarned(outcome))


def command(job: str, settings: dict, folder: pathlib.Path, *flags: str) -> lake.Outcome:
    (folder / f"{job}.yaml").write_text(yaml.safe_dump(settings))
    return lake.run_command(job, "--config", str(folder / f"{job}.yaml"), "--output", str(folder / job), *flags)


def small_fit(folder: pathlib.Path, **settings) -> dict:
    path = lake.write_lake(folder / "lake", lake.mixture(60), np.arange(60) // 10)
    return lake.job(path, lake.write_server(folder / "server.parquet"), **settings)


@pytest.mark.parametrize("settings", [{}, FEW_ROWS, {"privacy__epsilon": 0.05}, {"privacy__epsilon": 20.0}])
def test_a_fit(tmp_path, settings):
    outcome = command("fit", small_fit(tmp_path, **settings), tmp_path)
    check(outcome, tmp_path / "fit/report.html", 2 if settings is FEW_ROWS else 0)


def test_a_fit_that_was_complete_before_says_the_number_of_its_page(tmp_path):
    ledger = ledgers.new_ledger(tmp_path, Limit(epsilon=50.0, delta=0.1), "visits")
    settings = small_fit(tmp_path, **FEW_ROWS, ledger=ledger.path)
    settings["data"]["name"] = "visits"
    first = command("fit", settings, tmp_path, "--run_id", "night")
    again = command("fit", settings, tmp_path, "--run_id", "night")
    assert "nothing is read or charged" in again.err
    for outcome in (first, again):
        check(outcome, tmp_path / "fit/report.html", 2)


def test_a_run_that_follows_another(tmp_path):
    settings = small_fit(tmp_path, privacy__epsilon=0.3, lloyd={"steps": 1})
    assert command("fit", settings, tmp_path).code == 0
    (tmp_path / "fit").rename(tmp_path / "before")
    outcome = command("fit", settings | {"recurring": {"previous": str(tmp_path / "before")}}, tmp_path)
    check(outcome, tmp_path / "fit/report.html", 1)


def test_a_stream_counts_the_warnings_of_the_windows_that_it_released(tmp_path):
    place = epochs.Place(tmp_path, unit="record", windows=3)
    for date in epochs.DATES[:3]:
        place.write(date, range(12))
    pages = [tmp_path / "january" / date / "report.html" for date in epochs.DATES[:3]]
    outcome = place.release(epochs.DATES[1])
    assert last(outcome)["warnings"] == logged(outcome) == sum(map(shown, pages[:2])) > 0
    outcome = place.release(epochs.DATES[2])
    assert last(outcome)["warnings"] == logged(outcome) == shown(pages[2])
    assert last(place.release(epochs.DATES[2]))["warnings"] == 0


def test_reports(tmp_path):
    points = lake.mixture(300, means=8.0 * np.eye(3, 4))
    path = lake.write_lake(tmp_path / "lake", points, np.arange(300))
    settings = reports.settings(
        path, key_uri=lake.write_key(tmp_path / "key"), reports__path=str(tmp_path / "encode"), privacy__epsilon=0.5
    )
    assert command("encode", settings, tmp_path).code == 0
    check(command("decode", settings, tmp_path), tmp_path / "decode/report.html", 1)


def test_a_profile(tmp_path):
    settings = small_fit(tmp_path)
    assert command("fit", settings, tmp_path).code == 0
    profile = {
        "model": str(tmp_path / "fit"),
        "data": settings["data"],
        "privacy": {"unit": "record", "epsilon": 20.0, "delta": 0.002},
        "profile": {"numeric": {}},
    }
    check(command("profile", profile, tmp_path), tmp_path / "profile/report.html", 2)


def test_federated_learning_shows_on_its_page_what_was_said_before(tmp_path):
    settings = federation.job(federation.write_lake(tmp_path / "silos"), privacy__epsilon=20.0, privacy__delta=0.002)
    check(command("clustered_fl", settings, tmp_path), tmp_path / "clustered_fl/report.html", 2)


def test_a_sweep(tmp_path):
    path = lake.write_lake(tmp_path / "lake", lake.mixture(60), np.arange(60) // 10)
    settings = sweeps.settings(
        path, lake.write_server(tmp_path / "server.parquet"), {"rows": {"algorithm": "feddp_kmeans"}}
    )
    check(sweeps.run(settings, tmp_path), tmp_path / "out/report.html", 1)


def test_a_report_that_could_not_be_drawn_and_a_manifest_that_cannot_be_read_have_no_number(tmp_path):
    manifest = {"format": 1, "files": {"report.html": "0" * 64}}
    for content in (manifest, manifest | {"warnings": None}, manifest | {"warnings": -1}, {}):
        (tmp_path / "run.json").write_text(json.dumps(content))
        assert with_warnings({"output": str(tmp_path)}, ("epsilon 20 is high",))["warnings"] is None
    (tmp_path / "run.json").write_text(json.dumps(manifest | {"files": {}}))
    assert with_warnings({"output": str(tmp_path)}, ("epsilon 20 is high",))["warnings"] == 1
    (tmp_path / "run.json").unlink()
    (tmp_path / "run.json").mkdir()
    assert with_warnings({"output": str(tmp_path)}, None)["warnings"] is None
    assert with_warnings({"output": str(tmp_path / "none")}, ("epsilon 20 is high",))["warnings"] == 1
    assert "warnings" not in with_warnings({"output": str(tmp_path / "none")}, None)
    assert (total_warnings([]), total_warnings([1, 2]), total_warnings([1, None])) == (0, 3, None)
