"""The operators for Airflow: with Airflow stood in for, and by Airflow itself where it is installed.

`python -m tests.own_environments airflow` makes the environment, in which nothing of Dapple's requirements is seen.
"""

import importlib.util
import json
import os
import pathlib
import runpy
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCHEDULE = ROOT / "schedule"
DATE = "2026-11-20"
HAS_AIRFLOW = importlib.util.find_spec("airflow") is not None
stood_in = pytest.mark.skipif(HAS_AIRFLOW, reason="airflow is installed")
itself = pytest.mark.skipif(
    not HAS_AIRFLOW, reason="airflow is not installed; python -m tests.own_environments airflow"
)


@pytest.fixture
def dapple(tmp_path, monkeypatch):
    """A `dapple` that notes its words and ends with a given code."""
    monkeypatch.setenv("DAPPLE_SCHEDULE", str(SCHEDULE))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("JOB", str(tmp_path / "job.yaml"))
    monkeypatch.setenv("DAPPLE_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("DAPPLE", str(tmp_path / "dapple"))
    (tmp_path / "job.yaml").write_text('data: {partitions: {dt: "@DATE@"}}\n')
    (tmp_path / "lake" / f"dt={DATE}").mkdir(parents=True)
    (tmp_path / "lake" / f"dt={DATE}" / "_SUCCESS").touch()

    def make(code, does=""):
        lines = ["#!/bin/sh", f'echo "$@" > {shlex.quote(str(tmp_path / "words"))}', does, "echo progress >&2"]
        (tmp_path / "dapple").write_text("\n".join([*lines, """echo '{"epsilon": 1.5}'""", f"exit {code}\n"]))
        (tmp_path / "dapple").chmod(0o755)
        return str(tmp_path / "dapple")

    return make


@pytest.fixture
def provider(monkeypatch):
    """The module, with Airflow stood in for."""
    from tests.scenes import airflow

    return airflow.stand_in(monkeypatch)


def operators(provider, command):
    """One of each kind, for a command."""
    job = provider.DappleOperator(
        task_id="job",
        config="job.yaml",
        output_folder="out",
        run_id=DATE,
        flags=["--runner=FnApiRunner"],
        command=command,
    )
    return [job, provider.DapplePartitionOperator(task_id="partition", date=DATE, schedule=str(SCHEDULE))]


@stood_in
def test_a_refusal_is_final_and_other_failures_are_tried_again(provider, dapple):
    from tests.scenes.airflow import FinalTaskError, TaskError

    for operator in operators(provider, dapple(0)):
        dapple(0)
        assert operator.execute({}) == {"epsilon": 1.5}
        for code in (2, 3, 4, 5):
            dapple(code)
            with pytest.raises(FinalTaskError, match=f"refused with exit code {code}"):
                operator.execute({})
        for code in (1, 66, 75, 130):
            dapple(code)
            with pytest.raises(TaskError, match=f"failed with exit code {code}") as failed:
                operator.execute({})
            assert failed.type is TaskError


@stood_in
def test_words_are_those_of_the_command(provider, dapple, tmp_path):
    operators(provider, dapple(0))[0].execute({})
    wanted = f"fit --config job.yaml --output out --run_id {DATE} --runner=FnApiRunner\n"
    assert (tmp_path / "words").read_text() == wanted
    operators(provider, "")[1].execute({})
    runs = tmp_path / "runs"
    wanted = f"fit --config {runs / DATE}.yaml --output {runs / DATE} --run_id {DATE}\n"
    assert (tmp_path / "words").read_text() == wanted


@stood_in
def test_a_job_that_prints_nothing_hands_nothing_on(provider, tmp_path):
    """So does a date that is done."""
    assert provider.DappleOperator(task_id="job", config="c", output_folder="o", command="true").execute({}) is None


@stood_in
def test_a_kill_ends_the_job_as_ctrl_c_does(provider, dapple, tmp_path):
    """The job gets SIGTERM, which it may still answer."""
    said = tmp_path / "said"
    does = f"trap 'echo stopped > {said}; exit 130' TERM; touch {tmp_path / 'up'}; while :; do sleep 0.05; done"
    program = (
        "import sys, threading, time, pathlib; sys.path[:0] = {paths}\n"
        "import pytest; from tests.scenes import airflow\n"
        "with pytest.MonkeyPatch.context() as patch:\n"
        "    provider = airflow.stand_in(patch)\n"
        "    job = provider.DappleOperator(task_id='j', config='c', output_folder='o', command={command!r})\n"
        "    def stop():\n"
        "        while not pathlib.Path({up!r}).exists(): time.sleep(0.02)\n"
        "        job.on_kill()\n"
        "    threading.Thread(target=stop).start()\n"
        "    try: job.execute(dict())\n"
        "    except airflow.TaskError as error: print(error)\n"
    ).format(paths=[str(ROOT)], command=dapple(0, does), up=str(tmp_path / "up"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert "failed with exit code 130" in done.stdout
    assert said.read_text() == "stopped\n"


@stood_in
def test_the_dag_holds_the_operator(provider, dapple):
    dapple(3)
    content = runpy.run_path(str(SCHEDULE / "airflow_dag.py"))
    assert isinstance(content["fit"], provider.DapplePartitionOperator)
    assert content["fit"].words()[1:] == ["{{ ds }}", "--runner=FnApiRunner"]


@stood_in
@pytest.mark.parametrize(
    ("lake", "marker", "path", "connection"),
    [
        ("/srv/lake", "/_SUCCESS", f"/srv/lake/dt={DATE}/_SUCCESS", None),
        ("s3://lake/rows", "", f"s3://lake/rows/dt={DATE}", "aws_default"),
    ],
)
def test_the_sensor_asks_where_the_lake_is(provider, monkeypatch, lake, marker, path, connection):
    monkeypatch.setenv("DAPPLE_LAKE", lake)
    monkeypatch.setenv("DAPPLE_MARKER", marker)
    content = runpy.run_path(str(SCHEDULE / "airflow_dag.py"))
    content["is_there"](DATE)
    content["ObjectStoragePath"].assert_called_once_with(path, conn_id=connection)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of Airflow's with its database."""
    folder = tmp_path_factory.mktemp("airflow")
    variables = {"AIRFLOW_HOME": str(folder), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "NO_COLOR": "1"}
    environment = os.environ | variables | {"AIRFLOW__CORE__DAGS_FOLDER": str(SCHEDULE), "PYTHONPATH": str(SCHEDULE)}
    done = airflow(environment, "db", "migrate")
    assert done.returncode == 0, done.stderr
    return environment


def airflow(environment, *words):
    command = [sys.executable, "-m", "airflow", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)


@itself
def test_airflow_runs_a_date_of_the_dag(home, dapple, tmp_path):
    """The sensor, the operator and the summary, by `airflow dags test`."""
    dapple(0)
    done = airflow(home | places(), "dags", "test", "dapple_daily", DATE)
    assert "state=success" in done.stdout.replace(" ", "") + done.stderr.replace(" ", ""), done.stdout + done.stderr
    assert f"--run_id {DATE} --runner=FnApiRunner" in (tmp_path / "words").read_text()


@itself
@pytest.mark.parametrize(("code", "state"), [(3, "failed"), (1, "up_for_retry")])
def test_airflow_tries_again_what_was_not_refused(home, dapple, code, state):
    dapple(code)
    done = airflow(home | places(), "tasks", "test", "dapple_daily", "fit", DATE)
    assert f"with exit code {code}; the log says why" in done.stdout + done.stderr
    assert f"new_state={state} " in done.stdout


def places():
    names = ("DAPPLE_SCHEDULE", "RUNS", "JOB", "DAPPLE_LAKE", "DAPPLE")
    return {name: os.environ[name] for name in names}


@itself
def test_airflow_takes_what_the_provider_says():
    import jsonschema

    (path,) = pathlib.Path(importlib.util.find_spec("airflow").origin).parent.glob("provider_info.schema.json")
    sys.path.insert(0, str(SCHEDULE))
    from airflow_operators import DappleOperator
    from airflow_provider import get_provider_info

    jsonschema.validate(get_provider_info(), json.loads(path.read_text()))
    operator = DappleOperator(task_id="job", config="{{ ds }}.yaml", output_folder="out/{{ ds }}")
    operator.render_template_fields({"ds": DATE, "task": operator})
    assert operator.words()[2:] == ["--config", f"{DATE}.yaml", "--output", f"out/{DATE}", "--run_id", DATE]
