"""An asset for Dagster: one clustering per date, each starting from the one before.

Load this file as a code location: `dagster dev -f dagster_assets.py`. Each partition runs `run_partition.sh` for its
date, with the flags in `DAPPLE_FLAGS`. What the ledger or the checker of graphs has refused (exit codes 3 and 4) is not
tried again, since no retry changes it. The metadata of the asset are what the run states of its privacy.
"""

import json
import os
import pathlib
import shlex
import subprocess

import dagster

SCHEDULE = os.environ.get("DAPPLE_SCHEDULE", "/opt/dapple/schedule")
FLAGS = os.environ.get("DAPPLE_FLAGS", "--runner=FnApiRunner")
RUNS = os.environ.get("RUNS", "/srv/clustering/runs")
FIRST_DATE = os.environ.get("DAPPLE_FIRST_DATE", "2026-01-01")
REFUSED = (3, 4)
TRIES = 3


def run_date(date: str) -> int:
    """Runs a date; the exit code."""
    words = [os.path.join(SCHEDULE, "run_partition.sh"), date, *shlex.split(FLAGS)]
    return subprocess.run(words, env=os.environ | {"RUNS": RUNS}, check=False).returncode


def stated(date: str) -> dict[str, object]:
    """Epsilon, delta and unit of a finished date, and its folder."""
    folder = pathlib.Path(RUNS) / date
    privacy = json.loads((folder / "privacy.json").read_text())
    return {"folder": str(folder)} | {name: privacy[name] for name in ("epsilon", "delta", "unit", "trust")}


@dagster.asset(
    partitions_def=dagster.DailyPartitionsDefinition(start_date=FIRST_DATE),
    pool="dapple",  # with a limit of 1, since a run starts from the one before it
    retry_policy=dagster.RetryPolicy(max_retries=TRIES - 1, delay=600),
    description="Private centers of a date's rows",
)
def private_centers(context: dagster.AssetExecutionContext) -> dagster.MaterializeResult:
    """Runs the date of the partition; a refusal fails for good."""
    date = context.partition_key
    code = run_date(date)
    if code:
        refused = "was refused" if code in REFUSED else "failed"
        raise dagster.Failure(
            f"{date} {refused} with exit code {code}; the log says why", allow_retries=code not in REFUSED
        )
    return dagster.MaterializeResult(metadata=stated(date))


defs = dagster.Definitions(assets=[private_centers])
