"""The files of `schedule/`: the script runs for real on a tiny lake, cron's line too, the DAG is checked as text."""

import ast
import fcntl
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from dapple_dp.pipelines.run.options import parse_job
from dapple_dp.schemas import errors
from tests.scenes import lake

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCHEDULE = ROOT / "schedule"
SCRIPT = SCHEDULE / "run_partition.sh"
DATES = ("2026-03-01", "2026-03-02")
TODAY, YESTERDAY = "2026-03-04", "2026-03-03"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A lake of two dates, the job with its places, and a command that runs Dapple."""
    folder = tmp_path_factory.mktemp("place")
    for index, date in enumerate(DATES):
        lake.write_lake(folder / "lake" / f"dt={date}", lake.mixture(900, seed=index))
    text = (SCHEDULE / "job.yaml").read_text()
    text = text.replace("path: lake", f"path: {folder}/lake").replace("server.parquet", f"{folder}/server.parquet")
    (folder / "job.yaml").write_text(text)
    lake.write_server(folder / "server.parquet")
    command = folder / "dapple"
    words = f'{sys.executable} -m tests.scenes.repeatable_command "$@"'
    command.write_text(f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {words}\n")
    command.chmod(0o755)
    (folder / "date").write_text(f'#!/bin/sh\nexec {shutil.which("date")} "$1" "$2" "{TODAY} $3" "$4"\n')
    (folder / "date").chmod(0o755)
    return folder


def environment(place):
    return os.environ | {
        "DAPPLE": str(place / "dapple"),
        "JOB": str(place / "job.yaml"),
        "RUNS": str(place / "runs"),
        "SCHEDULE": str(SCHEDULE),
    }


def run_partition(place, *words):
    return subprocess.run([SCRIPT, *words], env=environment(place), capture_output=True, text=True, check=False)


def events(place, date):
    return [each["path"] for each in json.loads((place / "runs" / date / "privacy.json").read_text())["events"]]


@pytest.fixture(scope="module")
def two_dates(place):
    """The same after two dates."""
    for date in DATES:
        done = run_partition(place, date, "--runner=FnApiRunner")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["run_id"] == date
    return place


@pytest.mark.slow
def test_the_second_date_starts_from_the_first_and_is_not_run_twice(two_dates):
    place = two_dates
    assert events(place, DATES[0])[0] == "feddp_kmeans/outer_product/scatter"
    assert events(place, DATES[1]) == ["feddp_kmeans/lloyd_00/sums", "feddp_kmeans/lloyd_00/counts"]
    before = lake.released(place / "runs" / DATES[1])
    again = run_partition(place, DATES[1])
    assert (again.returncode, again.stdout) == (0, "")
    assert f"{DATES[1]} is done" in again.stderr
    assert lake.released(place / "runs" / DATES[1]) == before


@pytest.mark.slow
def test_a_failed_date_is_tried_again_as_the_same_job_by_the_command_of_the_crontab(two_dates):
    """A partition that is not there yet stops the run and leaves nothing but the job, which the next attempt uses."""
    place, runs = two_dates, two_dates / "runs"
    yesterday = YESTERDAY
    missing = run_partition(place, yesterday)
    assert missing.returncode == 66
    assert not (runs / yesterday).exists()
    job = (runs / f"{yesterday}.yaml").read_bytes()
    lake.write_lake(place / "lake" / f"dt={yesterday}", lake.mixture(900, seed=9))
    command = cron_lines()[1][0][5].replace(r"\%", "%")
    # The day of this `date` does not end while the test runs.
    path = {"PATH": f"{place}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/bash", "-c", command], env=environment(place) | path, check=False)
    assert done.returncode == 0, (runs / "cron.log").read_text()
    assert (runs / f"{yesterday}.yaml").read_bytes() == job
    assert json.loads((runs / yesterday / "run.json").read_text())["previous"]["run_id"] == DATES[1]
    drift = json.loads((runs / yesterday / "drift.json").read_text())
    assert [each["cluster"] for each in drift["clusters"]] == [0, 1, 2]
    assert max(each["movement"] for each in drift["clusters"]) < 1.0


@pytest.mark.parametrize("word", ["", "2026-03", "yesterday", "2026-03-01/..", "../../x"])
def test_anything_but_a_date_is_refused(place, word):
    refused = run_partition(place, word)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "DATE must be written as YYYY-MM-DD" in refused.stderr


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock the script takes no lock")
def test_one_date_at_a_time(place):
    (place / "runs").mkdir(exist_ok=True)
    with open(place / "runs" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = run_partition(place, "2026-03-09")
    assert (refused.returncode, refused.stdout) == (75, "")
    assert "another date is running" in refused.stderr
    assert not (place / "runs" / "2026-03-09.yaml").exists()


def cron_lines():
    """Settings and entries of the crontab, percent signs as cron reads them."""
    lines = [line for line in (SCHEDULE / "crontab").read_text().splitlines() if line and not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines if re.match(r"^[A-Z]+=", line))
    entries = [line.split(None, 5) for line in lines if not re.match(r"^[A-Z]+=", line)]
    return settings, entries


def test_the_crontab_is_one():
    settings, entries = cron_lines()
    assert set(settings) == {"SHELL", "DAPPLE", "JOB", "RUNS", "SCHEDULE"}
    [(*times, command)] = entries
    assert all(re.fullmatch(r"\*|\d{1,2}", each) for each in times)
    assert "%" not in command.replace(r"\%", "")


def dag_calls():
    """Calls of the DAG file by name, with their keywords as far as they are literals."""
    tree = ast.parse((SCHEDULE / "airflow_dag.py").read_text())
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found[node.func.id] = {each.arg: each.value for each in node.keywords}
    return found


def test_the_dag_compiles_and_runs_dates_in_order():
    compile((SCHEDULE / "airflow_dag.py").read_text(), "airflow_dag.py", "exec")
    calls = dag_calls()
    assert {"DAG", "PythonSensor", "DapplePartitionOperator"} <= set(calls)
    # One alone would keep a night that failed from being tried again while the next one waits for it.
    assert ast.literal_eval(calls["DAG"]["max_active_runs"]) > 1
    # A plain "@daily" names the day that begins, whose rows have not come.
    assert "CronDataIntervalTimetable('0 0 * * *', timezone='UTC')" in ast.unparse(calls["DAG"]["schedule"])
    assert ast.literal_eval(calls["PythonSensor"]["op_args"]) == ["{{ ds }}"]
    assert ast.literal_eval(calls["DapplePartitionOperator"]["date"]) == "{{ ds }}"
    arguments = calls["DAG"]["default_args"]
    assert {ast.literal_eval(key) for key in arguments.keys} >= {"depends_on_past", "retries"}


def test_the_dag_imports_what_airflow_3_has():
    """No path that Airflow 3 deprecates: tasks from the SDK and the standard provider."""
    trees = [ast.parse((SCHEDULE / name).read_text()) for name in ("airflow_dag.py", "airflow_operators.py")]
    modules = {node.module for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules == {
        "airflow.sdk",
        "airflow.sdk.exceptions",
        "airflow.providers.standard.sensors.python",
        "airflow_operators",
    }


@pytest.fixture
def refusing(tmp_path):
    """A script whose `dapple` notes the job it is given and refuses it; the job's file and the runs."""
    (tmp_path / "dapple").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "dapple").chmod(0o755)
    (tmp_path / "job.yaml").write_text('privacy: {epsilon: 1.0}  # of "@DATE@"\n')
    return tmp_path


def test_a_refused_job_is_not_pinned(refusing):
    """The message says that epsilon must be lowered: lowered in the job file, it is lowered for the date."""
    pinned = refusing / "runs" / "2026-11-20.yaml"
    assert run_partition(refusing, "2026-11-20").returncode == 3
    assert "epsilon: 1.0" in pinned.read_text()
    (refusing / "job.yaml").write_text("privacy: {epsilon: 0.5}\n")
    assert run_partition(refusing, "2026-11-20").returncode == 3
    assert "epsilon: 0.5" in pinned.read_text()


def test_a_job_for_which_noise_may_have_been_drawn_stays(refusing):
    """Its attempt has left its staging folder, with the key; another job would be another run."""
    pinned = refusing / "runs" / "2026-11-20.yaml"
    run_partition(refusing, "2026-11-20")
    (refusing / "runs" / "2026-11-20.partial-2026-11-20").mkdir()
    (refusing / "job.yaml").write_text("privacy: {epsilon: 0.5}\n")
    assert run_partition(refusing, "2026-11-20").returncode == 3
    assert "epsilon: 1.0" in pinned.read_text()


def test_the_script_names_the_flags_of_the_job():
    flags = set(re.findall(r" (--\w+) ", SCRIPT.read_text().splitlines()[-1]))
    assert flags == {"--config", "--output", "--run_id"}
    assert parse_job("fit", [f"{flag}=x" for flag in flags]).run_id == "x"


def test_the_lake_of_another_day_is_like_the_first():
    """The tests above rest on it: two days differ by chance alone."""
    means = [lake.mixture(900, seed=seed)[::3].mean(axis=0) for seed in (0, 1)]
    np.testing.assert_allclose(*means, atol=0.2)


def test_routes_by_exit_codes_know_those_of_the_errors():
    """No error that a retry cannot change is tried again by systemd or Airflow, and all others are."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.DappleError)]
    found = {each.exit_code for each in kinds}
    others = (errors.AbsentError, errors.NoInputYetError, errors.UnavailableError, errors.ProducerStoppedError)
    again = {each.exit_code for each in (errors.DappleError, *others)}
    unit = (SCHEDULE / "dapple-stream.service").read_text()
    final = set(map(int, re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)[0].split()))
    operators = (SCHEDULE / "airflow_operators.py").read_text()
    # A stream that is kept running goes on with the next window; a call of it that is repeated would hide the code.
    assert f"FINAL = {tuple(sorted(final | {errors.ProducerStoppedError.exit_code}))}" in operators
    assert found - final == again
    page = (SCHEDULE.parent / "docs" / "reference" / "exit-codes.md").read_text()
    assert {code for code in found if f"\n## {code}\n" in page} == found
