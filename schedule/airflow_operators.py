"""Operators for Airflow 3: a job of Dapple, and the partition of a date.

`DappleOperator` runs any job as a process and hands its summary on (XCom): folder, run id, epsilon, no row. Exit codes
2 to 5 are not tried again, since no retry changes what they say: wrong settings or input, what the ledger or the
checker of graphs has refused, altered files. Nor is 67, by which a stream says that its producer has stopped. All
others are, such as 66 (no input yet) and 75 (try again later).

Put the file beside the DAGs, or install Dapple's wheel with Airflow: `dapple_dp.schedule.airflow_operators`. Airflow
and Dapple pin other versions of some packages, so `command` names the `dapple` of an environment of its own.
"""

import json
import os
import signal
import subprocess

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

FINAL = (2, 3, 4, 5, 67)


class _ProcessOperator(BaseOperator):
    """A process that is a job of Dapple; `words` and `variables` say which."""

    _process = None

    def words(self):
        """Words of the command line, without the program's name."""
        raise NotImplementedError

    def variables(self):
        """Further variables of its environment."""
        return {}

    def execute(self, context):
        """Runs the job; a refusal fails the task for good.

        Returns:
          The summary that the job prints last, a mapping; None if it printed none.
        """
        environment = os.environ | self.variables()
        self._process = subprocess.Popen(self.words(), stdout=subprocess.PIPE, text=True, env=environment)
        said, _ = self._process.communicate()
        code = self._process.returncode
        if code in FINAL:
            raise AirflowFailException(f"{self.task_id} was refused with exit code {code}; the log says why")
        if code:
            raise AirflowException(f"{self.task_id} failed with exit code {code}; the log says why")
        lines = said.splitlines()
        return json.loads(lines[-1]) if lines else None

    def on_kill(self):
        """Has the run end as by Ctrl-C: what it has drawn is kept for the next attempt."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


class DappleOperator(_ProcessOperator):
    """Runs `dapple JOB`.

    Args:
      config: path of the job's YAML file, on the machine of the worker.
      output_folder: for the result, on any Beam filesystem; it is new for each date, so name `{{ ds }}` in it.
      job: word of the command: fit, stream, assign and so on.
      run_id: names the run; the same for all attempts, so that a retry is the same run and spends nothing more.
      flags: further words, such as those of Beam's runner.
      command: the command of an environment with Dapple.
      env: further variables of the job's environment.
    """

    template_fields = ("config", "output_folder", "run_id", "flags", "env")

    def __init__(
        self, *, config, output_folder, job="fit", run_id="{{ ds }}", flags=(), command="dapple", env=None, **more
    ):
        super().__init__(**more)
        self.config = config
        self.output_folder = output_folder
        self.job = job
        self.run_id = run_id
        self.flags = list(flags)
        self.command = command
        self.env = env or {}

    def words(self):
        """The command of the job."""
        places = ["--config", self.config, "--output", self.output_folder, "--run_id", self.run_id]
        return [self.command, self.job, *places, *self.flags]

    def variables(self):
        """Returns the variables as given."""
        return self.env


class DapplePartitionOperator(_ProcessOperator):
    """Runs `run_partition.sh` for a date, which starts from the last date before it.

    Args:
      date: as YYYY-MM-DD.
      schedule: folder of the script, which `dapple tools schedule` prints.
      flags: for `dapple fit`.
    """

    template_fields = ("date",)

    def __init__(self, *, date, schedule, flags=(), **more):
        super().__init__(**more)
        self.date = date
        self.schedule = schedule
        self.flags = list(flags)

    def words(self):
        """The script and its date."""
        return [os.path.join(self.schedule, "run_partition.sh"), self.date, *self.flags]
