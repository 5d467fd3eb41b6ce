"""Dapple's jobs on a Flink cluster, found by their run; they continue even if the submitting process dies.

Such a job holds the key of its run. So a process that resumes the run, or deletes its staging folder, cancels it first.
"""

import contextlib
import http.client
import logging
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

from dapple_dp.pipelines.run.failures import is_given_up, raised_in
from dapple_dp.pipelines.run.options import NAME_PREFIX, job_name
from dapple_dp.schemas.core.plan import Promise
from dapple_dp.schemas.errors import DappleError, RunnerError
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.files.signals.measures import MEASURES, ROUND_SECONDS
from dapple_dp.transforms.files.stores import is_away

_LOGGER = logging.getLogger(__name__)
_RUNNING = ("INITIALIZING", "CREATED", "RUNNING", "RESTARTING", "FAILING", "RECONCILING")
_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_FOLLOW_SECONDS = 1.0
_BEGUN = ("RUNNING", "FINISHED")
"""Flink's states of a task that has received input."""
_FINAL = range(2, 6)
"""Exit codes of errors that stay the same however often a task is repeated, such as those on rows."""
_OF_A_SYSTEM = re.compile(r"\[errno \d+\]", re.IGNORECASE)
"""What a file system said, which may pass."""
_MOST_BYTES = 1 << 26
_NAME = re.compile(f"{NAME_PREFIX}(-[a-z0-9]+)+-[0-9a-f]{{8}}", re.ASCII)
"""Names made by `job_name`; the pattern also keeps other people's job names out of the output."""
_ID = re.compile("[0-9a-f]+", re.ASCII)
_RULE = "--flink_master must be the address of a Flink cluster"


class FlinkJob(NamedTuple):
    """A job that isn't over.

    Attributes:
      id: id on Flink.
      name: `dapple-JOB-RUN_ID-DIGEST` in lower case; the digest distinguishes runs.
      state: state on Flink.
    """

    id: str
    name: str
    state: str

    def is_of(self, run_id: str) -> bool:
        """Returns whether the job belongs to a run, regardless of the command."""
        parts = self.name.split("-")[1:-1]
        words = ("_".join(parts[:end]) for end in range(1, len(parts)))
        return any(self.name == job_name(word, run_id) for word in words)


def running_jobs(master: str, run: tuple[str, str] | None = None) -> tuple[FlinkJob, ...]:
    """Lists Dapple's jobs that aren't over.

    Args:
      master: `HOST:PORT` or the URL of Flink's REST interface, as in `--flink_master`.
      run: command and run id of one run; None for all runs.

    Returns:
      Jobs in the order of Flink's list.

    Raises:
      RunnerError: if Flink doesn't answer.
    """
    try:
        listed = [FlinkJob(*(str(each[key]) for key in ("jid", "name", "state"))) for each in _overview(master)]
    except (KeyError, TypeError) as error:
        raise _unreachable(master) from error
    ours = [each for each in listed if each.state in _RUNNING and _NAME.fullmatch(each.name) and _ID.fullmatch(each.id)]
    return tuple(each for each in ours if run is None or each.name == job_name(*run))


def stop(master: str, jobs: Sequence[FlinkJob]) -> None:
    """Cancels jobs and waits until they are over, since they may write until then.

    Args:
      master: like `running_jobs`.
      jobs: jobs from `running_jobs`.

    Raises:
      RunnerError: if Flink doesn't answer, or a job doesn't end.
    """
    for job in jobs:
        cancel(master, job)
    end, ids = time.monotonic() + _SECONDS, {job.id for job in jobs}
    while left := [job for job in running_jobs(master) if job.id in ids]:
        if time.monotonic() > end:
            raise RunnerError(f"{left[0].name} still runs after it was canceled; check it on the cluster.")
        time.sleep(_LOOK_SECONDS)


def cancel(master: str, job: FlinkJob) -> None:
    """Cancels a job; ignores a job that is over.

    Args:
      master: like `running_jobs`.
      job: job from `running_jobs`.

    Raises:
      RunnerError: if Flink doesn't answer.
    """
    _ask(master, f"jobs/{job.id}?mode=cancel", method="PATCH")


class Rounds(NamedTuple):
    """Rounds of a pipeline.

    Attributes:
      labels: labels of their steps in the graph, in order.
      first: number of the first one, from 1.
      total: number of rounds in the run.
    """

    labels: tuple[str, ...]
    first: int
    total: int

    @classmethod
    def of(cls, promise: Promise) -> Self:
        """Rounds whose noise a graph draws, if it belongs to a single run; none otherwise."""
        labels = [each.label for each in promise.noised]
        if len(promise.plans) != 1 or promise.stages is not None or not labels:
            return cls((), 1, 0)
        every = promise.plans[0].rounds
        return cls(tuple(labels), every.index(promise.noised[0]) + 1, len(every))

    def reached(self, tasks: Sequence[tuple[str, str]]) -> int:
        """Returns the number of the last round that has begun, 0 if none has.

        Args:
          tasks: name and state of each task.
        """
        begun = [name for name, state in tasks if state in _BEGUN]
        places = [place for place, label in enumerate(self.labels) if any(f"Rounds/{label}/" in each for each in begun)]
        return self.first + places[-1] if places else 0


@contextlib.contextmanager
def follow(master: str, name: str, rounds: Rounds) -> Iterator[None]:
    """Logs the id, page and current round of a running job, but never its progress within a round.

    Cancels the job if a task of it ended with an error that Flink would only repeat.

    Args:
      master: like `running_jobs`.
      name: name of the job.
      rounds: rounds of the job.

    Raises:
      DappleError: that error, when the canceled job has failed.
    """
    over, refused = threading.Event(), list[DappleError]()
    thread = threading.Thread(target=_follow, args=(master, name, rounds, over, refused), daemon=True)
    thread.start()
    try:
        yield
    except Exception as error:
        # A job whose end nobody has seen may go on.
        if refused and is_given_up(error):
            raise refused[0] from error
        raise
    finally:
        over.set()
        thread.join(_FOLLOW_SECONDS)


def _follow(master: str, name: str, rounds: Rounds, over: threading.Event, refused: list[DappleError]) -> None:
    """Polls until the job is over; ignores failures, since the job doesn't depend on it."""
    logged, reached, began = "", 0, time.monotonic()
    while not over.wait(_FOLLOW_SECONDS):
        with contextlib.suppress(RunnerError, KeyError, TypeError):
            job = next((each for each in running_jobs(master) if each.name == name), None)
            if job is None:
                continue
            if job.id != logged:
                logged = job.id
                _LOGGER.info("its id on Flink is %s, its page %s/#/job/running/%s", job.id, _root(master), job.id)
            tasks = [(str(each["name"]), str(each["status"])) for each in _ask(master, f"jobs/{job.id}")["vertices"]]
            now = rounds.reached(tasks)
            if now > reached:
                if reached:
                    MEASURES.add(ROUND_SECONDS, str(reached), time.monotonic() - began)
                reached, began = now, time.monotonic()
                _LOGGER.info("round %d of %d", now, rounds.total)
            if (error := _final_error(master, job)) is not None:
                refused.append(error)
                cancel(master, job)
                return


def _final_error(master: str, job: FlinkJob) -> DappleError | None:
    """The error by which a task failed last, if it stays the same however often the task is repeated."""
    failed = _ask(master, f"jobs/{job.id}/exceptions?maxExceptions=1")["exceptionHistory"]["entries"]
    text = str(failed[0]["stacktrace"]) if failed else ""
    error = raised_in(text)
    if error is None or error.exit_code not in _FINAL or _OF_A_SYSTEM.search(text) or is_away(RuntimeError(text)):
        return None
    return error


def _overview(master: str) -> Sequence[Any]:
    result: Sequence[Any] = _ask(master, "jobs/overview")["jobs"]
    return result


def _ask(master: str, path: str, method: str = "GET") -> dict[str, Any]:
    request = urllib.request.Request(f"{_root(master)}/{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            raw = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        if method == "PATCH" and error.code in (404, 409):
            return {}
        raise _unreachable(master) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _unreachable(master) from error
    refusal = Refusal(kind=RunnerError, rule=f"{_RULE} at {master}", remedy="correct it")
    return json_schema.parse_as(raw, dict[str, Any], refusal)


def _root(master: str) -> str:
    return (master if "://" in master else f"http://{master}").rstrip("/")


def _unreachable(master: str) -> RunnerError:
    return RunnerError(f"{_RULE}, got no answer of {master}; correct it.")
