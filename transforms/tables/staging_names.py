"""Names of the private folders beside an output: `OUTPUT.partial-RUN`, and `OUTPUT.partial-RUN.clients` with rows.

Each belongs to one run of one output: no id contains `.partial-` or `.clients`, and no output is named like such a
folder. Otherwise one run could delete, lock or publish the files of another.
"""

import re
from typing import NamedTuple

from dapple_dp.schemas.errors import ConfigError

PARTIAL, _COPY = ".partial-", ".clients"
_NAME = re.compile(
    rf"(?P<output>.*){re.escape(PARTIAL)}(?P<run>[a-z0-9_-][a-z0-9._-]*?)(?P<copy>{re.escape(_COPY)})?", re.I | re.S
)


class StagingName(NamedTuple):
    """Name of an output, id of the run, and whether the folder holds its copy of rows."""

    output: str
    run: str
    is_copy: bool


def staging_folder(output: str, run: str) -> str:
    """Returns the folder that a run writes before it ends.

    Raises:
      ConfigError: for an id or an output whose folder could be that of another run.
    """
    if any(mark in run.lower() for mark in (PARTIAL, _COPY)):
        raise ConfigError(
            f"run_id must not contain {PARTIAL!r} or {_COPY!r}, which end the names of folders of runs, got {run!r}; "
            "choose another one."
        )
    if any(parsed(part) for part in output.split("/")):
        raise ConfigError(
            f"--output must not be in or named like a folder that a run works in, got {output}; choose a name without "
            f"{PARTIAL!r}."
        )
    return f"{output}{PARTIAL}{run}"


def copy_folder(staging: str) -> str:
    """Returns the folder beside a run's that holds its private copy of rows."""
    return f"{staging.rstrip('/')}{_COPY}"


def parsed(name: str) -> StagingName | None:
    """Parses the name of a folder; None if it isn't the folder of a run."""
    found = _NAME.fullmatch(name)
    return None if found is None else StagingName(found["output"], found["run"], bool(found["copy"]))
