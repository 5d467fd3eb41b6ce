"""Exceptions for users. Each message says what happened and, after a semicolon, what to do.

Messages may name a file, row group, column, shape or dtype, but never a row value. Every exception takes
exactly one string, so that a runner can pickle it and raise it again in another process.
"""

import importlib.metadata
import re
from collections.abc import Callable, Iterator, Sequence

DISTRIBUTION = "dapple-dp"


def what_installs(extra: str) -> str:
    """Returns the pip command that installs the libraries of an extra, which works for a local wheel, too."""
    needs = (require.partition(";") for require in importlib.metadata.requires(DISTRIBUTION) or ())
    wanted = [need.strip() for need, _, marker in needs if marker.replace("'", '"').strip() == f'extra == "{extra}"']
    return f"pip install {' '.join(map(repr, wanted))}"


def not_installed(error: BaseException) -> str | None:
    """Returns the message for a missing required library, as with `requirements-core.txt`; None for other errors."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    name = str(error.name).partition(".")[0].replace("_", "-")
    try:
        needs = [need for need in importlib.metadata.requires(DISTRIBUTION) or () if ";" not in need]
    except importlib.metadata.PackageNotFoundError:
        return None
    need = next((need for need in needs if re.match(r"[\w.-]+", need)[0].lower() == name), None)  # type: ignore[index]
    return None if need is None else f"This needs {name}, which is not installed; run pip install '{need}'."


def one_line(text: str) -> str:
    """Escapes line ends, lone surrogates and control characters, so that a text is one printable line."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def few(names: Sequence[object], most: int = 5, written: Callable[[object], str] = repr) -> str:
    """Joins names in a message: the first few, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(written, names[:most])) + more


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, its causes and contexts, and the errors that store libraries keep in `exception_details`."""
    seen: list[BaseException] = []
    left = [error]
    while left:
        current = left.pop()
        if any(current is other for other in seen):
            continue
        seen.append(current)
        yield current
        details = getattr(current, "exception_details", None)
        inner = list(details.values()) if isinstance(details, dict) else []
        left += [more for more in (current.__context__, current.__cause__, *inner) if isinstance(more, BaseException)]


class DappleError(Exception):
    """Base of the errors Dapple raises on purpose; `exit_code` is what the command returns."""

    exit_code = 1

    def __init__(self, *sentence: str):
        super().__init__(*map(one_line, sentence))


class PrivacyWarning(UserWarning):
    """A fit may spend more, or be worth less, than its caller thinks; from settings and releases only."""


class ConfigError(DappleError, ValueError):
    """A setting is wrong; nothing has been read yet."""

    exit_code = 2


class InputError(DappleError, ValueError):
    """Input data cannot be used: unreadable file, null, non-finite value, too few rows."""

    exit_code = 2


class NoInputYetError(InputError):
    """No file is where the input should be: it has not arrived yet, or the path is wrong."""

    exit_code = 66


class UnavailableError(InputError):
    """The input's server, such as a broker, doesn't answer; nothing was lost."""

    exit_code = 75


class ProducerStoppedError(DappleError):
    """All windows that were due are released, and one had fewer rows than `stream.expected_rows` says."""

    exit_code = 67


class SchemaMismatchError(InputError):
    """A file's columns are missing or have another type than the table contract asks for."""


class LatticeOverflowError(DappleError, OverflowError):
    """A bound check found that exact integer arithmetic could leave its range."""

    exit_code = 2


class ProtocolError(DappleError):
    """A message or a file of masked aggregation is not what the protocol lets be sent at this point."""

    exit_code = 5


class NotYetError(ProtocolError):
    """Another party must act first in a run of masked aggregation; what was refused may be right later."""


class JobDiffersError(ProtocolError):
    """A party's job is not that of the run; `keys` are the settings that differ, as far as they are known."""

    keys: tuple[str, ...] = ()


class AbsentError(DappleError):
    """A party of masked aggregation has waited as long as it may, and another party has not answered."""

    exit_code = 6


class StoreAwayError(DappleError, OSError):
    """The store of the files, such as an object store, doesn't answer; you can run the same command again later."""

    exit_code = 75


class StoreDeniedError(ConfigError, OSError):
    """The store of the files denies access; retrying doesn't help."""


class RunnerError(DappleError):
    """The runner gave a job up, for a reason of its own."""


class LedgerRefusedError(DappleError):
    """The ledger refused the run, and its records stay as they are."""

    exit_code = 3


class BudgetExceededError(LedgerRefusedError):
    """The ledger refused the run: its limit would be passed."""


class LedgerUnavailableError(LedgerRefusedError):
    """The server that holds the ledger does not answer; whatever was asked of it may be asked again."""

    exit_code = 75


class PrivacyFlowError(DappleError):
    """The built graph lets private data flow around the noise stage."""

    exit_code = 4


class UnsupportedEventError(DappleError, ValueError):
    """The accountant cannot compose an event of the plan."""

    exit_code = 2
