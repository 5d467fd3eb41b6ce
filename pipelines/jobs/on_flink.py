"""Jobs on a Flink cluster, named by their runs: one goes on there when the process that sent it is gone.

Such a job holds the key of its run. Whoever takes the run up, or deletes its staging folder, cancels it first.
"""

import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

from pipelines.run.options import NAME_PREFIX, job_name
from schemas.errors import RunnerError
from schemas.settings import json_schema
from schemas.settings.refusal import Refusal

_RUNNING = ("INITIALIZING", "CREATED", "RUNNING", "RESTARTING", "FAILING", "RECONCILING")
_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_MOST_BYTES = 1 << 26
_NAME = re.compile(f"{NAME_PREFIX}(-[a-z0-9]+)+-[0-9a-f]{{8}}", re.ASCII)
"""As `job_name` makes them; whoever else names a job so cannot put anything into what is printed."""
_ID = re.compile("[0-9a-f]+", re.ASCII)
_RULE = "--flink_master must be the address of a Flink cluster"


class FlinkJob(NamedTuple):
    """A job that is not over.

    Attributes:
      id: Flink's.
      name: `dapple-JOB-RUN_ID-DIGEST`, in small letters; the digest tells runs from each other.
      state: Flink's word.
    """

    id: str
    name: str
    state: str

    def is_of(self, run_id: str) -> bool:
        """Whether it is a job of a run, whatever the word of the command was."""
        parts = self.name.split("-")[1:-1]
        words = ("_".join(parts[:end]) for end in range(1, len(parts)))
        return any(self.name == job_name(word, run_id) for word in words)


def running_jobs(master: str, run: tuple[str, str] | None = None) -> tuple[FlinkJob, ...]:
    """Dapple's jobs that are not over.

    Args:
      master: `HOST:PORT` or the URL of Flink's REST interface, as in `--flink_master`.
      run: word of the command and run id of one run; None for all.

    Returns:
      In the order of Flink's list.

    Raises:
      RunnerError: if Flink does not answer.
    """
    try:
        listed = [FlinkJob(*(str(each[key]) for key in ("jid", "name", "state"))) for each in _overview(master)]
    except (KeyError, TypeError) as error:
        raise _unreachable(master) from error
    ours = [each for each in listed if each.state in _RUNNING and _NAME.fullmatch(each.name) and _ID.fullmatch(each.id)]
    return tuple(each for each in ours if run is None or each.name == job_name(*run))


def stop(master: str, jobs: Sequence[FlinkJob]) -> None:
    """Cancels jobs, and waits until they are over, since they may write until then.

    Args:
      master: as for `running_jobs`.
      jobs: as found there.

    Raises:
      RunnerError: if Flink does not answer, or one of them does not end.
    """
    for each in jobs:
        cancel(master, each)
    end, ids = time.monotonic() + _SECONDS, {each.id for each in jobs}
    while left := [each for each in running_jobs(master) if each.id in ids]:
        if time.monotonic() > end:
            raise RunnerError(f"{left[0].name} must end when it is canceled, got one that goes on; look there.")
        time.sleep(_LOOK_SECONDS)


def cancel(master: str, job: FlinkJob) -> None:
    """Cancels a job; one that is over is left alone.

    Args:
      master: as for `running_jobs`.
      job: as found there.

    Raises:
      RunnerError: if Flink does not answer.
    """
    _ask(master, f"jobs/{job.id}?mode=cancel", method="PATCH")


def _overview(master: str) -> Sequence[Any]:
    found: Sequence[Any] = _ask(master, "jobs/overview")["jobs"]
    return found


def _ask(master: str, path: str, method: str = "GET") -> dict[str, Any]:
    root = master if "://" in master else f"http://{master}"
    request = urllib.request.Request(f"{root.rstrip('/')}/{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            raw = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        if method == "PATCH" and error.code in (404, 409):
            return {}
        raise _unreachable(master) from error
    except (OSError, ValueError) as error:
        raise _unreachable(master) from error
    refusal = Refusal(kind=RunnerError, rule=f"{_RULE} at {master}", remedy="correct it")
    return json_schema.parsed(raw, dict[str, Any], refusal)


def _unreachable(master: str) -> RunnerError:
    return RunnerError(f"{_RULE}, got no answer of {master}; correct it.")
