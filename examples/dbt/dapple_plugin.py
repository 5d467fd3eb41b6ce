"""A plugin of dbt-duckdb: the SQL function `dapple(job, config, output, run_id)`, for post-hooks.

It runs a job as a process, by the command in the variable DAPPLE, and returns its summary. A run that is complete is
not run again, so a model may be built as often as one likes under one run id, and epsilon is spent once. A job that is
refused or fails ends the model with an error that holds no row.
"""

import json
import os
import pathlib
import shlex
import subprocess

from dbt.adapters.duckdb.plugins import BasePlugin


def dapple(job: str, config: str, output: str, run_id: str) -> str:
    """Runs a job once.

    Raises:
      RuntimeError: if it fails, or another run is in the folder; stderr says why.
    """
    manifest = pathlib.Path(output) / "run.json"
    if manifest.exists():
        found = json.loads(manifest.read_text())["run_id"]
        if found != run_id:
            raise RuntimeError(f"{output} must be new, or hold run {run_id}, got run {found}; name another folder.")
        return json.dumps({"run_id": run_id, "output": output})
    words = [*shlex.split(os.environ.get("DAPPLE", "dapple")), job]
    words += ["--config", config, "--output", output, "--run_id", run_id]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"dapple {job} ended with exit code {done.returncode}; its log says why")
    return done.stdout.splitlines()[-1]


class Plugin(BasePlugin):
    """Gives each connection the function."""

    def configure_connection(self, conn):
        """Adds it; DuckDB must not call it ahead of time or twice, as it may a function without effects."""
        conn.create_function("dapple", dapple, ["VARCHAR"] * 4, "VARCHAR", side_effects=True)
