"""Lines of the log: their forms, their levels, whose they are, and what is never in them."""

import json
import re

import numpy as np
import pytest
import yaml

from tests.scenes import lake
from tests.scenes.ledgers import Place

PLANTED = 0.7131313
CLIENT = 7171717
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING|ERROR) (\S+) dapple: (.*)")


@pytest.fixture
def place(tmp_path):
    found = Place(tmp_path)
    points = lake.mixture(60)
    points[::7] = PLANTED
    clients = np.where(np.arange(60) % 12 == 0, CLIENT, np.arange(60) % 12)
    found.job["data"]["path"] = lake.write_files(tmp_path / "planted", [lake.table_of(points, clients)])
    return found


@pytest.fixture
def spoiled(place):
    """A job whose rows have a planted value and a null, which ends it."""
    place.job["data"]["path"] = lake.write_lake(place.folder / "bad", np.where(lake.mixture(60) > 0, PLANTED, np.nan))
    return place


def fit(place, *flags, **settings):
    return lake.run_command(*place.words("out", "week47", **settings), *flags)


def test_without_a_terminal_a_line_has_time_level_and_run(place, monkeypatch):
    monkeypatch.delenv("DAPPLE_LOG_FORMAT")
    done = fit(place)
    assert done.code == 0, done.err
    found = [LINE.fullmatch(line) for line in done.lines]
    assert all(found), done.err
    assert {each[2] for each in found} == {"week47"}
    assert found[-1][3].startswith("done: ")


def test_json_lines_are_objects_that_name_the_run(place):
    done = fit(place, "--log_format", "json")
    found = [json.loads(line) for line in done.lines]
    assert {(each["job"], each["run_id"], each["level"]) for each in found} >= {("fit", "week47", "info")}
    assert all(set(each) == {"time", "level", "job", "run_id", "logger", "message"} for each in found)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", each["time"]) for each in found)


def test_the_last_line_of_a_run_that_failed_has_its_exit_code_and_its_run(spoiled):
    done = fit(spoiled, "--log_format=json")
    last = json.loads(done.lines[-1])
    assert (done.code, last["exit_code"], last["level"], last["run_id"]) == (2, 2, "error", "week47")


def test_a_level_leaves_out_what_is_below_it(place, spoiled):
    quiet = fit(spoiled, "--log_level", "error")
    assert (quiet.code, len(quiet.lines)) == (2, 1)
    assert all(
        "WARNING" in line or "ERROR" in line for line in fit(place, "--log_level=warning", "--log_format=text").lines
    )


def test_two_runs_of_one_process_have_their_own_ids(place, tmp_path):
    fit(place)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(place.job | {"n_clusters": 0}))
    done = lake.run_command("fit", "--config", str(tmp_path / "job.yaml"), "--output", "x", "--log_format=json")
    assert json.loads(done.lines[-1])["run_id"] is None


@pytest.mark.parametrize(
    ("flag", "variable"), [("--log_format", "DAPPLE_LOG_FORMAT"), ("--log_level", "DAPPLE_LOG_LEVEL")]
)
def test_other_words_are_refused(flag, variable, monkeypatch):
    monkeypatch.setenv(variable, "xml")
    for words in (["ledger", "show"], ["fit", flag, "xml"]):
        done = lake.run_command(*words)
        assert (done.code, f"dapple: {flag} must be one of " in done.err) == (2, True)
    for words in ([flag], [f"{flag}=", "fit"]):
        done = lake.run_command(*words)
        assert (done.code, f"dapple: {flag} needs a value." in done.err) == (2, True)


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize(
    ("form", "level"), [("text", "info"), ("json", "info"), ("plain", "warning"), ("json", "error")]
)
def test_nothing_of_the_rows_is_in_the_log(form, level, good, request):
    """Planted values and client ids, in a run that ends well and in one that bad rows end."""
    place = request.getfixturevalue("place" if good else "spoiled")
    done = fit(place, f"--log_format={form}", f"--log_level={level}")
    assert (done.code == 0) == good
    for private in ("7131313", str(CLIENT)):
        assert private not in done.err + done.out
