"""A DAG for Airflow 3: one clustering a day, in the order of the dates, each starting from the one before.

Copy it into the folder of DAGs of a deployment whose workers have the `dapple` command. Jobs run where the task runs,
or on the runner that the flags in `DAPPLE_FLAGS` name. What the ledger or the checker of graphs has refused (exit codes
3 and 4) is not tried again, since no retry changes it.
"""

import datetime
import os
import shlex

import pendulum
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

LAKE = os.environ.get("DAPPLE_LAKE", "/srv/clustering/lake")
# What is there when a partition is complete: Spark writes this file; empty to wait for the partition's folder.
MARKER = os.environ.get("DAPPLE_MARKER", "/_SUCCESS")
SCHEDULE = os.environ.get("DAPPLE_SCHEDULE", "/opt/dapple/schedule")
FLAGS = os.environ.get("DAPPLE_FLAGS", "--runner=FnApiRunner")
REFUSED = (3, 4)


class FitPartition(BaseOperator):
    """Runs `run_partition.sh` for a date."""

    template_fields = ("date",)

    def __init__(self, *, date, **more):
        super().__init__(**more)
        self.date = date
        self.hook = SubprocessHook()

    def execute(self, context):
        """Runs the date; a refusal fails the task for good."""
        words = [os.path.join(SCHEDULE, "run_partition.sh"), self.date, *shlex.split(FLAGS)]
        code = self.hook.run_command(words, env=dict(os.environ)).exit_code
        if code in REFUSED:
            raise AirflowFailException(f"{self.date} was refused with exit code {code}; the log says why")
        if code:
            raise AirflowException(f"{self.date} failed with exit code {code}")

    def on_kill(self):
        """Has the run end as by Ctrl-C: what it has drawn is kept for the next attempt."""
        self.hook.send_sigterm()


with DAG(
    dag_id="dapple_daily",
    description="Private clustering of yesterday's partition",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    schedule="@daily",
    catchup=False,
    max_active_runs=1,  # a run starts from the one before it
    default_args={
        "depends_on_past": True,
        "retries": 2,  # of the same date: the run id stays, so a date that is done is not run twice
        "retry_delay": datetime.timedelta(minutes=10),
    },
) as dag:
    wait = BashSensor(
        task_id="wait_for_partition",
        bash_command='test -e "$LAKE/dt={{ ds }}$MARKER"',
        env={"LAKE": LAKE, "MARKER": MARKER},
        mode="reschedule",
        poke_interval=300,
        timeout=6 * 3600,
    )
    fit = FitPartition(task_id="fit", date="{{ ds }}")
    wait >> fit
