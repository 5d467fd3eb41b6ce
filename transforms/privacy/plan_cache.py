"""Cache of noise levels on disk, so that the next run of a job need not search again.

A cache file is a hint: a process that loads one checks its content. Plans depend on public settings only.
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import tempfile
from typing import Annotated, Any

from pydantic import Field

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.json_schema import NumberedFile
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.files import untrusted

FORMAT_VERSION = 2
_MOST_CACHE_BYTES = 1 << 12
_REFUSAL = Refusal(kind=InputError, rule="a stored plan must be a level of noise", remedy="it is searched again")


class _Content(NumberedFile):
    level: Annotated[float, Field(gt=0.0)]
    epsilon: Annotated[float, Field(gt=0.0)]


def digest(request: dict[str, Any]) -> str:
    """Returns the SHA-256, 64 hex digits, of all that a plan depends on, including format and accountant versions.

    Args:
      request: plain data, as JSON would give it.
    """
    versions = {"format": FORMAT_VERSION, "dp_accounting": importlib.metadata.version("dp-accounting")}
    return hashlib.sha256(json.dumps([versions, request], sort_keys=True).encode()).hexdigest()


def load(request: dict[str, Any]) -> tuple[float, float] | None:
    """Returns the stored level and its spending, finite numbers > 0, unchecked otherwise; None if unreadable."""
    try:
        path = str(_path(digest(request)))
        found = untrusted.read_json(path, _Content, _REFUSAL, _MOST_CACHE_BYTES)
    except (InputError, RuntimeError):
        return None
    return found.level, found.epsilon


def store(request: dict[str, Any], level: float, epsilon: float) -> None:
    """Stores a level if the cache folder can be written, and does nothing otherwise."""
    try:
        path = _path(digest(request))
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(with_number({"level": level, "epsilon": epsilon}), file)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except (OSError, RuntimeError):
        return


def _path(request_digest: str) -> pathlib.Path:
    """Returns the file of one request; raises RuntimeError if there is no home folder."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    root = pathlib.Path(given) if os.path.isabs(given) else pathlib.Path.home() / ".cache"
    return root / "dapple" / "plans" / f"{request_digest}.json"
