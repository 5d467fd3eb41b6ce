"""What a job's settings are known by."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pydantic

NO_MATTER: Mapping[str, Any] = {"experimental": True, "job": {"experimental": True}}
"""Settings that are no part of a job: a user who adds the word goes on with the run that had begun without it."""


def config_digest(config: pydantic.BaseModel) -> str:
    """SHA-256, 64 hex digits, of the config as canonical JSON; equal configs have equal digests."""
    content = config.model_dump(mode="json", exclude=dict(NO_MATTER))
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
