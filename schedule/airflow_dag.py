"""A DAG for Airflow 3: one clustering a day, in the order of the dates, each starting from the one before.

Copy it and `airflow_operators.py` into the folder of DAGs of a deployment whose workers have the `dapple` command. Jobs
run where the task runs, or on the runner that the flags in `DAPPLE_FLAGS` name. What the ledger or the checker of
graphs has refused (exit codes 3 and 4) is not tried again, since no retry changes it.
"""

import datetime
import os
import shlex

import pendulum
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.sdk import DAG
from airflow_operators import DapplePartitionOperator

LAKE = os.environ.get("DAPPLE_LAKE", "/srv/clustering/lake")
# What is there when a partition is complete: Spark writes this file; empty to wait for the partition's folder.
MARKER = os.environ.get("DAPPLE_MARKER", "/_SUCCESS")
SCHEDULE = os.environ.get("DAPPLE_SCHEDULE", "/opt/dapple/schedule")
FLAGS = os.environ.get("DAPPLE_FLAGS", "--runner=FnApiRunner")

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
    fit = DapplePartitionOperator(task_id="fit", date="{{ ds }}", schedule=SCHEDULE, flags=shlex.split(FLAGS))
    wait >> fit
