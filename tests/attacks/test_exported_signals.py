"""Exports say nothing of rows to others than the operator: neighbors are exported alike, planted values are nowhere."""

import json
import os
import pathlib
import re
import shutil

import numpy as np
import pytest
import yaml

from dapple_dp.transforms.files.signals.measures import METRICS
from tests.scenes import brokers, lake, object_store
from tests.scenes.brokers import StreamPlace
from tests.scenes.ledgers import Place

pytestmark = pytest.mark.slow

DATES = ("2026-01-01", "2026-01-02", "2026-01-03")
PLANTED, CLIENT = 0.7131313, 7171717
VARIES = re.compile(
    r'(?<=dapple_run_started_timestamp_seconds )\d+|(?<="eventTime": ")[^"]+|(?<="digest": ")[0-9a-f]{64}|'
    r"\d{8}T\d{6}Z-[0-9a-f]{8}"
)
"""The time of the command's begin, the name that it takes from it, and digests of entries, which hold random bytes."""


def exported(folder: pathlib.Path, outcome: lake.Outcome) -> list[str]:
    """All that may be shown to others, but for random digits."""
    found = [outcome.out, *(each.read_text() for each in (folder / "m.prom", folder / "events.jsonl"))]
    own = json.loads(found[2].splitlines()[0])["run"]["runId"]
    return [VARIES.sub("", each).replace(own, "") for each in found]


def signals(folder: pathlib.Path) -> tuple[str, ...]:
    return "--metrics", str(folder / "m.prom"), "--lineage", str(folder / "events.jsonl")


def private(folder: pathlib.Path, output: str) -> dict:
    """The operator's file."""
    return json.loads((folder / f"{output}.operator.json").read_text())


def fitted(folder: pathlib.Path, points: np.ndarray, n_files: int) -> tuple[list[str], dict]:
    """Returns what a fit exports, and what its operator sees; two runs in one folder differ by their rows alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    place = Place(folder)
    clients = np.arange(len(points)) % 12
    place.job["data"]["path"] = lake.write_lake(folder / "rows", points, clients, n_files=n_files)
    with brokers.equal_noise():
        outcome = lake.run_command(*place.words("out", "week47"), *signals(folder))
    assert outcome.code == 0, outcome.err
    return exported(folder, outcome), private(folder, "out")["runs"][0]


def test_a_row_more_and_other_files_are_exported_alike(tmp_path):
    """And the operator knows both."""
    points = lake.mixture(300)
    one, mine = fitted(tmp_path / "one", points, 1)
    more, other = fitted(tmp_path / "one", np.concatenate([points, points[:1]]), 3)
    assert one == more
    assert (mine["dapple_rows_total"], other["dapple_rows_total"]) == (300, 301)
    assert (mine["dapple_input_files_total"], other["dapple_input_files_total"]) == (1, 3)


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    return StreamPlace(tmp_path_factory.mktemp("streams"), windows=3)


def streamed(streams: StreamPlace, name: str, days: dict, **changes) -> tuple[lake.Outcome, list[str], dict]:
    """A stream of these days: rows of each, None for an empty folder; others have no folder."""
    own = streams.folder / name
    shutil.rmtree(own, ignore_errors=True)
    for date, points in days.items():
        if points is None:
            (own / "lake" / f"dt={date}").mkdir(parents=True)
        else:
            lake.write_lake(own / "lake" / f"dt={date}", points)
    with brokers.equal_noise():
        outcome = streams.stream(name, None, *signals(own), data=own / "lake", **changes)
    return outcome, exported(own, outcome), private(own, "out")


def test_a_window_without_rows_is_exported_as_one_with_rows(streams):
    """Its folder may be empty or missing: a producer that stopped is the operator's to know."""
    rows = {date: lake.mixture(90, seed=day) for day, date in enumerate(DATES)}
    ways = {"full": rows, "empty": rows | {DATES[1]: None}, "gone": {date: rows[date] for date in DATES[::2]}}
    found = {name: streamed(streams, "same", days) for name, days in ways.items()}
    assert [outcome.code for outcome, _, _ in found.values()] == [0, 0, 0]
    number = re.compile(r'report_warnings \d+|"warnings": \d+')
    texts = [[number.sub("", each) for each in part] for _, part, _ in found.values()]
    # How many warnings a page has follows from what was released.
    assert texts[0] == texts[1] == texts[2]
    assert not any("window_without_input" in each for _, part, _ in found.values() for each in part)
    notes = {name: [note for run in mine["runs"] for note in run["notes"]] for name, (_, _, mine) in found.items()}
    said = [f"{DATES[1]}: the folder of the day is missing, or holds no row"]
    assert notes == {"full": [], "empty": said, "gone": said}


def test_times_of_windows_are_those_of_the_command(streams):
    """When a window begins reveals how long the one before it took."""
    own = streams.folder / "times"
    rows = {date: lake.mixture(90, seed=day) for day, date in enumerate(DATES)}
    streamed(streams, "times", rows)
    events = [json.loads(line) for line in (own / "events.jsonl").read_text().splitlines()]
    assert len(events) == 8
    assert len({each["eventTime"] for each in events}) == 2
    (started,) = {json.loads(path.read_text())["started"] for path in (own / "out").glob("*/run.json")}
    assert events[0]["eventTime"].startswith(started.removesuffix("+00:00"))
    parents = [each["run"]["facets"].get("parent", {}).get("run") for each in events]
    assert parents == [None, *[{"runId": events[0]["run"]["runId"]}] * 6, None]


@pytest.mark.parametrize(("day", "code"), [(90, 0), (5, 67)])
def test_a_code_reports_a_producer_only_where_a_minimum_is_stated(streams, day, code):
    """The windows are released in any case, and the next call has nothing to do."""
    name = f"short-{day}"
    rows = {date: lake.mixture(day if date == DATES[1] else 90) for date in DATES}
    outcome, _, mine = streamed(streams, name, rows, expected_rows=10)
    assert outcome.code == code, outcome.err
    assert len(streams.released(name)) == 3
    assert DATES[1] not in outcome.err.splitlines()[-1]
    short = [run.get("dapple_window_too_short") for run in mine["runs"]]
    assert short[-1] == ({DATES[1]: 1.0} if code else None)
    again = streams.stream(name, None, data=streams.folder / name / "lake", expected_rows=10)
    assert again.code == 0, again.err


@pytest.mark.parametrize("given", [1, 0, -3, 2.5, True])
def test_a_minimum_of_one_row_is_refused(streams, given):
    """It would tell whether a single row is there."""
    outcome = streams.stream("refused", None, data=streams.folder, expected_rows=given)
    assert outcome.code == 2
    assert "stream.expected_rows must be" in outcome.err


def test_requests_for_an_output_are_exported_and_those_for_rows_are_not(tmp_path):
    """On a store; a table of three files takes more requests than one of one file."""
    pytest.importorskip("moto")
    texts, others = [], []
    with object_store.object_store():
        for n_files in (1, 3):
            folder = tmp_path / str(n_files)
            folder.mkdir()
            rows = lake.write_lake(folder / "rows", lake.mixture(240 + n_files), n_files=n_files)
            job = lake.job(object_store.upload(rows, f"rows{n_files}"), None, algorithm="dp_lloyd")
            job = {name: job[name] for name in job.keys() - {"clipping", "feddp_kmeans", "server_data"}}
            (folder / "job.yaml").write_text(yaml.safe_dump(job | {"dp_lloyd": {"domain": [-8.0, 8.0], "steps": 1}}))
            words = ("fit", "--config", str(folder / "job.yaml"), "--output", f"s3://lake/out{n_files}")
            outcome = lake.run_command(*words, "--run_id", "one", *signals(folder))
            assert outcome.code == 0, outcome.err
            texts.append(VARIES.sub("", (folder / "m.prom").read_text()))
            mine = json.loads((folder / "m.prom.operator.json").read_text())
            others.append(mine["runs"][0]["dapple_store_requests_total"]["GetObject"])
            assert mine["runs"][0]["dapple_output_requests_total"]["CopyObject"] == len(
                object_store.names(f"out{n_files}/")
            )
    assert "dapple_output_requests_total{" in texts[0]
    assert texts[0] == texts[1]
    assert others[0] < others[1]


@pytest.fixture
def planted(tmp_path):
    """Jobs whose rows hold a planted value and a planted client, a good one and one that bad rows end."""
    found = Place(tmp_path)
    points = lake.mixture(60)
    points[::7] = PLANTED
    clients = np.where(np.arange(60) % 12 == 0, CLIENT, np.arange(60) % 12)
    good = lake.write_files(tmp_path / "good", [lake.table_of(points, clients)])
    bad = lake.write_files(tmp_path / "bad", [lake.table_of(np.where(points > 0, PLANTED, np.nan), clients)])
    return found, {True: good, False: bad}


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_planted_values_are_in_no_signal(planted, tmp_path, good, level):
    """Log of every level and form, metrics with what is private among them, lineage, the operator's file, last line."""
    place, paths = planted
    place.job["data"]["path"] = paths[good]
    flags = (*signals(tmp_path), f"--log_level={level}", "--log_format=json", "--export_private_metrics")
    outcome = lake.run_command(*place.words("out", "week47"), *flags)
    assert (outcome.code == 0) == good
    told = [outcome.out, outcome.err, (tmp_path / "m.prom").read_text(), (tmp_path / "events.jsonl").read_text()]
    told.append((tmp_path / "out.operator.json").read_text())
    for value in ("7131313", str(CLIENT)):
        assert not any(value in each for each in told)
    assert "dapple_input_files_total" in told[2]


def test_every_private_number_has_a_name_that_no_export_holds(tmp_path):
    """The list is that of the code, so that a new number is looked for, too."""
    text = " ".join(fitted(tmp_path / "one", lake.mixture(300), 2)[0])
    assert not [each.name for each in METRICS if each.private and each.name in text]
    assert os.stat(tmp_path / "one" / "out.operator.json").st_mode & 0o077 == 0
