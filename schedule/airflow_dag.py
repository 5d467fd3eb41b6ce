"""An Airflow DAG: one clustering a day, in the order of the dates, each starting from the one before.

Copy it into the folder of DAGs of a deployment whose workers have the `dapple` command. Jobs run where the task runs,
or on the runner that the flags in `DAPPLE_FLAGS` name.
"""

import datetime
import os

import pendulum
from airflow import DAG
from airflow.operators.bash import BashOperator
from airflow.sensors.bash import BashSensor

LAKE = os.environ.get("DAPPLE_LAKE", "/srv/clustering/lake")
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
        bash_command='test -e "$LAKE/dt={{ ds }}/_SUCCESS"',
        env={"LAKE": LAKE},
        mode="reschedule",
        poke_interval=300,
        timeout=6 * 3600,
    )
    fit = BashOperator(
        task_id="fit",
        bash_command='"$SCHEDULE/run_partition.sh" "{{ ds }}" $FLAGS',
        env={"SCHEDULE": SCHEDULE, "FLAGS": FLAGS},
        append_env=True,
    )
    wait >> fit
