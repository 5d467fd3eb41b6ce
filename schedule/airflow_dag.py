"""A DAG for Airflow 3: one clustering a day, in the order of the dates, each starting from the one before.

Copy it and `airflow_operators.py` into the folder of DAGs of a deployment whose workers have the `dapple` command. Jobs
run where the task runs, or on the runner that the flags in `DAPPLE_FLAGS` name. Exit codes
2 to 5 are not tried again, since no retry changes what they say. The lake is a local folder or on a store that Airflow
knows, such as s3:// with `apache-airflow-providers-amazon[s3fs]` and the connection `aws_default`.
"""

import datetime
import os
import shlex

import pendulum
from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import DAG, CronDataIntervalTimetable, ObjectStoragePath
from airflow_operators import DapplePartitionOperator

LAKE = os.environ.get("DAPPLE_LAKE", "/srv/clustering/lake")
# What is there when a partition is complete: Spark writes this file; empty to wait for the partition's folder.
MARKER = os.environ.get("DAPPLE_MARKER", "/_SUCCESS")
SCHEDULE = os.environ.get("DAPPLE_SCHEDULE", "/opt/dapple/schedule")
# How Airflow logs on to the store; empty for a local folder.
CONNECTION = os.environ.get("DAPPLE_CONNECTION", "aws_default" if LAKE.startswith("s3://") else "")
SECONDS = float(os.environ.get("DAPPLE_LOOK_SECONDS", "300"))
FLAGS = os.environ.get("DAPPLE_FLAGS", "--runner=FnApiRunner")


def is_there(date):
    """True if the partition of a date is complete, asked of the store that the lake is on."""
    return ObjectStoragePath(f"{LAKE}/dt={date}{MARKER}", conn_id=CONNECTION or None).exists()


with DAG(
    dag_id="dapple_daily",
    description="Private clustering of yesterday's partition",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    # At midnight for the day that has ended. "@daily" alone would name the day that begins, since Airflow 3.
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    catchup=False,
    # The order is kept by `depends_on_past`, and one date at a time by the script's lock. A limit of one run would lock
    # itself: a night that waits for the one before it would keep that one from being tried again.
    max_active_runs=16,
    default_args={
        "depends_on_past": True,
        "retries": 2,  # of the same date: the run id stays, so a date that is done is not run twice
        "retry_delay": datetime.timedelta(minutes=10),
    },
) as dag:
    wait = PythonSensor(
        task_id="wait_for_partition",
        python_callable=is_there,
        op_args=["{{ ds }}"],
        mode="reschedule",
        poke_interval=SECONDS,
        timeout=6 * 3600,
    )
    fit = DapplePartitionOperator(task_id="fit", date="{{ ds }}", schedule=SCHEDULE, flags=shlex.split(FLAGS))
    wait >> fit
