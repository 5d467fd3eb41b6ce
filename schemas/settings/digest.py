"""What a job's settings are known by."""

import hashlib
import json

import pydantic


def config_digest(config: pydantic.BaseModel) -> str:
    """SHA-256, 64 hex digits, of the config as canonical JSON; equal configs have equal digests."""
    canonical = json.dumps(config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
