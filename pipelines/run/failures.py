"""Errors from workers: runners return them as text, and users get one sentence."""

import contextlib
import errno
import re
from collections.abc import Iterator

from dapple_dp.schemas import errors
from dapple_dp.schemas.errors import DappleError, RunnerError, chain
from dapple_dp.transforms.rounds.machine import NO_MEMORY

_RAISED = re.compile(r"(?:^|\\n)dapple_dp\.schemas\.errors\.(\w+): (.+?)(?: \[while running |\\n|$)", re.MULTILINE)
# Text that runners append to messages; line ends are escaped.
_APPENDED = re.compile(r"( \[while running '.*'\])?(\\nTraceback .*)?$")
# Message of Beam's portable runners, followed by that of the runner.
_GIVEN_UP = re.compile(r"^Pipeline \S+ failed in state ([A-Z]+)")
FULL_DISK = RunnerError(
    "The disk of --output, or one for temporary files, is full; make room, then run the job again, with the same "
    "--run_id if a ledger is charged."
)
LOST_WORKER = (
    "A worker process ended before the job was over, as when memory is short; run the job again with fewer "
    "--direct_num_workers."
)
UNWATCHED = (
    "--direct_running_mode=multi_processing doesn't work with this version of Beam, which starts workers in a new "
    "way; leave the flag out: rows are added up on all cores without it."
)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REASONS = (
    (re.compile(r"\[Errno (?:28|122)\]|No space left on device|Disk quota exceeded"), FULL_DISK),
    (re.compile(r"(?:^|\n|\\n)(?:[\w.]+\.)?(?:_Array|Arrow)?MemoryError(?:$|\n|\\n|[: ])"), RunnerError(NO_MEMORY)),
    (re.compile("^Channel closed prematurely"), RunnerError(LOST_WORKER)),
    (
        re.compile(
            r"NoResourceAvailableException|minimum required resources|slot request bulk is not fulfillable|"
            r"TimeoutException: Timeout has occurred: \d+ ms"
        ),
        RunnerError(
            "The cluster has fewer free slots than --parallelism says, as when a TaskManager is lost; start it again "
            "or lower --parallelism."
        ),
    ),
    (
        re.compile(
            r"StatusRuntimeException: (?:UNAVAILABLE|CANCELLED|UNKNOWN)|SDK harness \S* ?disconnected|"
            r"Multiplexer hanging up|Process died with exit code|ConnectException: finishConnect"
        ),
        RunnerError(
            "The workers at --environment_config were lost before the job was over; check that their pool runs and "
            "has enough memory, then run the job again."
        ),
    ),
    (
        re.compile(r"ConnectException: Connection refused"),
        RunnerError(
            "The JobManager of the cluster stopped answering before the job was over; start it again, then run the "
            "job again."
        ),
    ),
)
"""Messages of runners on failures with a remedy, and the sentence for each; the messages themselves are never shown."""


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Replaces an exception by the `DappleError` that caused it."""
    try:
        yield
    except Exception as error:
        known = original_error(error)
        if known is None:
            raise
        raise known from error


def original_error(error: BaseException) -> DappleError | None:
    """Finds the `DappleError` behind a runner's exception; None if there is none.

    Runners report a failed worker as the text of its traceback, so the class and the sentence are parsed from it.
    """
    for seen in chain(error):
        if isinstance(seen, DappleError):
            return type(seen)(_APPENDED.sub("", str(seen)))
        if (found := raised_in(str(seen))) is not None:
            return found
    return _of_a_server(error) or _of_a_runner(error)


def raised_in(text: str) -> DappleError | None:
    """Finds the last `DappleError` in the text of a worker's traceback; None if there is none."""
    found = _RAISED.findall(text)
    kind = getattr(errors, found[-1][0], None) if found else None
    return kind(found[-1][1]) if isinstance(kind, type) and issubclass(kind, DappleError) else None


def _of_a_server(error: BaseException) -> RunnerError | None:
    """The sentence on a job server that can't be reached; such errors come from grpc."""
    if type(error).__name__ == "FutureTimeoutError":
        return RunnerError("no job server answered at the address of --job_endpoint; start it or correct the flag.")
    code = getattr(error, "code", None)
    if callable(code) and getattr(code(), "name", "") == "UNAVAILABLE":
        return RunnerError(
            "The job server at --job_endpoint was lost before the job was over; start it again. The job may go on in "
            "its cluster: cancel it there before its staging folder is deleted."
        )
    return None


def _of_a_runner(error: BaseException) -> RunnerError | None:
    """The sentence on a job that its runner gave up, or on a lack of memory."""
    if is_short_of_memory(error):
        return RunnerError(NO_MEMORY)
    for seen in chain(error):
        for pattern, reason in _REASONS:
            if pattern.search(str(seen)):
                return reason
    given_up = _GIVEN_UP.match(str(error))
    if given_up is None:
        return None
    return RunnerError(
        f"the runner ended the job in state {given_up[1]}; its logs and those of the workers say why, and --verbose "
        "shows what it sent to the driver."
    )


def is_given_up(error: BaseException) -> bool:
    """Returns whether a runner says that a job is over, and has failed or was canceled."""
    return _GIVEN_UP.match(str(error)) is not None


def is_full_disk(error: BaseException) -> bool:
    """Returns whether an error is, or was caused by, a full disk."""
    return any(isinstance(each, OSError) and each.errno in _FULL for each in chain(error))


def is_short_of_memory(error: BaseException) -> bool:
    """Returns whether an error is, or was caused by, a lack of memory; its own message contains row counts."""
    return any(isinstance(each, MemoryError) for each in chain(error))


def describe_unexpected(error: BaseException) -> str:
    """Describes an unexpected error by its type and place, never its message, which may hold a value."""
    if is_full_disk(error):
        return str(FULL_DISK)
    if is_short_of_memory(error):
        return NO_MEMORY
    place = ""
    traceback = error.__traceback__
    while traceback is not None:
        place = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return f"unexpected {type(error).__name__} at {place}; run again with --verbose for the traceback."
