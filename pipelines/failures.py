"""Errors on their way back from the workers: a runner hands over a text, the user gets one sentence."""

import re

from schemas import errors
from schemas.errors import DappleError

_RAISED = re.compile(r"(?:^|\\n)schemas\.errors\.(\w+): (.+?)(?: \[while running |\\n|$)", re.MULTILINE)


def original_error(error: BaseException) -> DappleError | None:
    """The `DappleError` behind an exception of a runner, or None if there is none.

    Runners report a failed worker as the text of its traceback, so the class and the sentence are read from it.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, DappleError):
            return type(seen)(re.sub(r" \[while running '.*'\]$", "", str(seen).splitlines()[0]))
        found = _RAISED.findall(str(seen))
        kind = getattr(errors, found[-1][0], None) if found else None
        if isinstance(kind, type) and issubclass(kind, DappleError):
            return kind(found[-1][1])
        seen = seen.__cause__ or seen.__context__
    return None


def describe_unexpected(error: BaseException) -> str:
    """One sentence on an error nobody foresaw: its type and place, never its message, which may carry a value."""
    place = ""
    traceback = error.__traceback__
    while traceback is not None:
        place = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return f"unexpected {type(error).__name__} at {place}; run again with --verbose for the traceback."
