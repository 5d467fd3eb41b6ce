"""What a job's settings are known by."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pydantic

from dapple_dp.schemas.settings.gone import with_defaults

_NO_MATTER: Mapping[str, Any] = {"experimental": True, "job": {"experimental": True}}
"""Settings that are no part of a job: a user who adds the word goes on with the run that had begun without it."""
_ADDED = frozenset({"csv", "preset"})
"""What earlier versions did not have, or not count: a job without it has the digest that it had there."""


def content_of(config: pydantic.BaseModel) -> dict[str, Any]:
    """What a job is known by, as JSON, with the last defaults of settings that are gone.

    So a job that never named them has the digest that it had, and its run goes on.
    """
    found: dict[str, Any] = _without_added(config.model_dump(mode="json", exclude=dict(_NO_MATTER)))
    if isinstance(data := found.get("data"), dict) and not data.get("missing", True):
        del data["missing"]
    return with_defaults(found)


def _without_added(content: Any) -> Any:
    """The content without what is in `_ADDED` and not given, at any depth."""
    if not isinstance(content, dict):
        return content
    return {name: _without_added(value) for name, value in content.items() if not (value is None and name in _ADDED)}


def config_digest(config: pydantic.BaseModel) -> str:
    """SHA-256, 64 hex digits, of the config as canonical JSON; equal configs have equal digests."""
    content = content_of(config)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
