"""`python -m benchmarks.on_call_airflow --out FILE`: the DAG of `schedule/` in Airflow, on a lake in an object store.

A scheduler, a DAG processor and an API server of Airflow 3 with the LocalExecutor run in an environment of their own
(`python -m tests.own_environments airflow` makes it). The lake is on a server that speaks Amazon's protocol. Of four
nights one is complete late, and one has a file that the job refuses, which is mended and cleared. Two dates before them
are made up by a backfill.
"""

import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from benchmarks import measurement
from benchmarks.machine import heading
from deploy.local.processes import free_ports
from pipelines.ledger.store import Ledger
from schemas.privacy.charge import Limit
from tests.own_environments import CACHE, ROOT
from tests.scenes import lake, object_store

SCHEDULE, DAG = ROOT / "schedule", "dapple_daily"
_TODAY = datetime.datetime.now(datetime.UTC).date()
_DATES = [(_TODAY - datetime.timedelta(days)).isoformat() for days in range(6, 0, -1)]
BEFORE, NIGHTS = _DATES[:2], _DATES[2:]
"""Two nights for a backfill, and four after them; the scheduler makes the run of the last one, which was yesterday."""
LATE, BAD = NIGHTS[1], NIGHTS[2]
LATE_SECONDS, MOST_SECONDS = 45.0, 1500.0


class Airflow:
    """Airflow in a folder.

    Args:
      home: of its database, and of runs and ledger.
    """

    def __init__(self, home: pathlib.Path):
        self.home, (port,) = home, free_ports(1)
        self._python = CACHE / "airflow" / "bin" / "python"
        aws = {"conn_type": "aws", "login": "test", "password": "test"}
        aws["extra"] = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "region_name": "us-east-1"}
        url = f"http://127.0.0.1:{port}"
        own = {
            "AIRFLOW_HOME": str(home / "airflow"),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": "of a test on this machine alone, and long enough for its digest",
            "AIRFLOW__CORE__DAGS_FOLDER": str(SCHEDULE),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(aws),
            "PYTHONPATH": str(SCHEDULE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
        }
        own |= {"DAPPLE": str(ROOT / ".venv" / "bin" / "dapple"), "DAPPLE_LAKE": f"s3://{object_store.BUCKET}/nights"}
        own |= {"DAPPLE_SCHEDULE": str(SCHEDULE), "DAPPLE_LOOK_SECONDS": "10", "JOB": str(home / "job.yaml")}
        own |= {"RUNS": str(home / "runs"), "DAPPLE_METRICS": str(home / "dapple.prom")}
        own |= {"DAPPLE_LINEAGE": str(home / "events.jsonl"), "DAPPLE_LOG_FORMAT": "json"}
        self.variables = os.environ | own
        self.runs: dict[str, str] = {}

    def call(self, *words: str) -> str:
        """What a command of Airflow prints; raises CalledProcessError."""
        command = [self._python, "-m", "airflow", *words]
        done = subprocess.run(command, env=self.variables, capture_output=True, text=True)
        if done.returncode:
            sys.stderr.write(done.stderr[-2000:])
            done.check_returncode()
        return done.stdout

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """While its processes run."""
        running = []
        try:
            for word in ("api-server", "dag-processor", "scheduler"):
                with open(self.home / f"{word}.log", "w") as log:
                    command = [self._python, "-m", "airflow", word]
                    running.append(subprocess.Popen(command, env=self.variables, stdout=log, stderr=log))
            yield
        finally:
            for each in running:
                each.terminate()
            for each in running:
                each.wait()

    def states(self) -> dict[str, str]:
        """State of the newest run of each date."""
        # Lines of its log come before.
        said = self.call("dags", "list-runs", DAG, "--output", "json")
        listed = json.loads(said[said.index("[{") :]) if "[{" in said else []
        self.runs = {each["logical_date"][:10]: each["run_id"] for each in listed}
        return {each["logical_date"][:10]: each["state"] for each in listed}

    def tries(self, date: str, task: str) -> int:
        """How often a task of a date was begun, by its logs."""
        run = self.runs[date].replace(":", "*").replace("+", "*")
        return len(list(self.home.glob(f"airflow/logs/dag_id={DAG}/run_id={run}/task_id={task}/attempt=*.log")))


def rows(date: str, bad: bool = False) -> None:
    """A partition, and the file that says that it is complete."""
    with tempfile.TemporaryDirectory() as name:
        points = lake.mixture(600, seed=int(date[-2:]))
        if bad:
            points[5, 1] = np.nan
        lake.write_lake(pathlib.Path(name) / "part", points)
        object_store.upload(str(pathlib.Path(name) / "part"), f"nights/dt={date}")
    object_store.client().put_object(Bucket=object_store.BUCKET, Key=f"nights/dt={date}/_SUCCESS", Body=b"")


def prepare(home: pathlib.Path) -> Ledger:
    """The job, its public data and its ledger."""
    ledger = Ledger(str(home / "ledger.sqlite"))
    ledger.set_limit("nights", Limit(epsilon=50.0, delta=1e-4))
    job = (SCHEDULE / "job.yaml").read_text().replace("path: lake", f"path: s3://{object_store.BUCKET}/nights")
    server = lake.write_server(home / "server.parquet")
    job = job.replace("path: server.parquet", f"path: {server}").replace("features: x", "features: x\n  name: nights")
    (home / "job.yaml").write_text(f"{job}\nledger: {ledger.path}\n")
    return ledger


def wait(airflow: Airflow, wanted: dict[str, str]) -> dict[str, str]:
    """Waits until dates have these states; raises RuntimeError if that takes too long."""
    end = time.monotonic() + MOST_SECONDS
    while True:
        found = airflow.states()
        if all(found.get(date) == state for date, state in wanted.items()):
            return found
        if time.monotonic() > end:
            raise RuntimeError(f"wanted {wanted}, got {found}")
        time.sleep(5.0)


def played(home: pathlib.Path) -> list[str]:
    """The nights, and a line of the table for each step."""
    ledger, airflow = prepare(home), Airflow(home)
    for date in (NIGHTS[0], *NIGHTS[2:], *BEFORE):
        rows(date, bad=date == BAD)
    airflow.call("db", "migrate")
    lines, began = [], time.monotonic()

    def told(step: str, found: str) -> None:
        lines.append(f"| {time.monotonic() - began:.0f} | {step} | {found} |")
        print(lines[-1], file=sys.stderr, flush=True)

    with airflow.up():
        while DAG not in airflow.call("dags", "list", "--output", "plain"):
            time.sleep(5.0)
        for date in NIGHTS[:3]:
            airflow.call("dags", "trigger", DAG, "--logical-date", f"{date}T00:00:00+00:00")
        airflow.call("dags", "unpause", DAG)
        told("three nights triggered, DAG unpaused; the scheduler makes the fourth", str(airflow.states()))
        wait(airflow, {NIGHTS[0]: "success"})
        told(f"{NIGHTS[0]}: complete from the begin", "success")
        wait(airflow, {LATE: "running"})
        time.sleep(LATE_SECONDS)
        told(f"{LATE}: nothing there yet", f"{airflow.states()[LATE]}, no run {not (home / 'runs' / LATE).exists()}")
        rows(LATE)
        wait(airflow, {LATE: "success", BAD: "failed"})
        told(f"{LATE}: partition came late", "success")
        told(
            f"{BAD}: a value that is no number",
            f"failed, tries of fit: {airflow.tries(BAD, 'fit')} (code 2 is final)",
        )
        rows(BAD)
        airflow.call("tasks", "clear", DAG, "--yes", "-s", BAD, "-e", f"{BAD}T23:59:59", "-t", "fit")
        wait(airflow, {BAD: "success", NIGHTS[3]: "success"})
        told(f"{BAD}: file mended, task cleared; {NIGHTS[3]} waited for it", "both success")
        # Airflow asks for it where tasks depend on those before them.
        dates = ("--from-date", BEFORE[0], "--to-date", BEFORE[-1], "--reprocess-behavior", "failed")
        airflow.call("backfill", "create", "--dag-id", DAG, *dates, "--max-active-runs", "1")
        wait(airflow, dict.fromkeys(BEFORE, "success"))
        told(f"backfill of {BEFORE[0]} and {BEFORE[1]}", "both success")
    return [*lines, "", *checked(home, ledger)]


def checked(home: pathlib.Path, ledger: Ledger) -> list[str]:
    """What ledger, runs and lineage say in the end."""
    entries = ledger.entries()
    dates = (*BEFORE, *NIGHTS)
    counts = {kind: sum(each.kind == kind for each in entries) for kind in ("reserve", "commit", "void")}
    runs = [date for date in dates if (home / "runs" / date / "run.json").exists()]
    events = [json.loads(line) for line in (home / "events.jsonl").read_text().splitlines()]
    kinds = {kind: sum(each["eventType"] == kind for each in events) for kind in ("START", "COMPLETE", "FAIL")}
    metrics = (home / "dapple.prom").read_text().splitlines()
    return [
        f"Runs with an output: {len(runs)} of {len(dates)}. Ledger: {counts}. Lineage: {kinds}. "
        f"Last metrics: {[each for each in metrics if each.startswith(('dapple_exit_code', 'dapple_epsilon'))]}.",
    ]


def main() -> None:
    """Runs the nights and writes what was seen."""
    given = measurement.script(__doc__).parse_args()
    lines = [*heading("Airflow over four nights"), "| second | step | seen |", "| --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as name, object_store.object_store():
        try:
            lines += played(pathlib.Path(name))
        except BaseException:
            for log in sorted(pathlib.Path(name).glob("*.log")):
                sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}\n")
            raise
    measurement.show(lines, given.out)


if __name__ == "__main__":
    main()
