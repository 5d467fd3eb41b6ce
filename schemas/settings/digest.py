"""Digest of a job's settings, by which its run is identified."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pydantic

from dapple_dp.schemas.settings.gone import with_defaults

_NO_MATTER: Mapping[str, Any] = {"experimental": True, "job": {"experimental": True}}
"""Settings that aren't part of the digest, so that adding the word doesn't start another run."""
_ADDED = frozenset({"csv", "preset", "one_message"})
"""Settings that earlier versions lacked or didn't count; unless set, they are left out of the digest."""


def content_of(config: pydantic.BaseModel) -> dict[str, Any]:
    """Returns the settings that identify a job, as JSON, with the last defaults of removed settings.

    A job that never set those keeps its digest, and its run can be resumed.
    """
    settings: dict[str, Any] = _without_added(config.model_dump(mode="json", exclude=dict(_NO_MATTER)))
    if isinstance(data := settings.get("data"), dict) and not data.get("missing", True):
        del data["missing"]
    return with_defaults(settings)


def _without_added(content: Any) -> Any:
    """Returns the content without unset settings of `_ADDED`, at any depth."""
    if not isinstance(content, dict):
        return content
    return {name: _without_added(value) for name, value in content.items() if not (value is None and name in _ADDED)}


def config_digest(config: pydantic.BaseModel) -> str:
    """Returns the SHA-256, 64 hex digits, of the config as canonical JSON; equal configs have equal digests."""
    content = content_of(config)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
