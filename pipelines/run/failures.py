"""Errors on their way back from the workers: a runner hands over a text, the user gets one sentence."""

import re

from schemas import errors
from schemas.errors import DappleError, RunnerError

_RAISED = re.compile(r"(?:^|\\n)schemas\.errors\.(\w+): (.+?)(?: \[while running |\\n|$)", re.MULTILINE)
# What a runner appends; errors escape line ends.
_APPENDED = re.compile(r"( \[while running '.*'\])?(\\nTraceback .*)?$")
# What Beam's portable runners raise; the runner's own message follows.
_GIVEN_UP = re.compile(r"^Pipeline \S+ failed in state ([A-Z]+)")


def original_error(error: BaseException) -> DappleError | None:
    """The `DappleError` behind an exception of a runner, or None if there is none.

    Runners report a failed worker as the text of its traceback, so the class and the sentence are read from it.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, DappleError):
            return type(seen)(_APPENDED.sub("", str(seen)))
        found = _RAISED.findall(str(seen))
        kind = getattr(errors, found[-1][0], None) if found else None
        if isinstance(kind, type) and issubclass(kind, DappleError):
            return kind(found[-1][1])
        seen = seen.__cause__ or seen.__context__
    if type(error).__name__ == "FutureTimeoutError":  # of grpc, which only Beam needs
        return RunnerError("no job server answered at the address of --job_endpoint; start it or correct the flag.")
    given_up = _GIVEN_UP.match(str(error))
    if given_up is None:
        return None
    return RunnerError(
        f"the runner ended the job in state {given_up[1]}; its logs and those of the workers say why, and --verbose "
        "shows what it told the driver."
    )


def describe_unexpected(error: BaseException) -> str:
    """One sentence on an error nobody foresaw: its type and place, never its message, which may carry a value."""
    place = ""
    traceback = error.__traceback__
    while traceback is not None:
        place = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return f"unexpected {type(error).__name__} at {place}; run again with --verbose for the traceback."
