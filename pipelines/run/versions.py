"""Versions of this program and of what it builds on."""

import functools
import hashlib
import importlib.metadata
import json
import pathlib
import platform

_PACKAGES = ("schemas", "transforms", "pipelines", "dapple_dp")
_LIBRARIES = ("dapple-dp", "apache-beam", "numpy", "pyarrow", "scikit-learn", "dp-accounting", "pipeline-dp")


def version(name: str) -> str:
    """Installed version of a distribution, or "unknown"."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Versions that decide what a run computes, Python first."""
    return {"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES}


@functools.cache
def code_digest() -> str:
    """SHA-256, 64 hex digits, of the source files of this program and of `versions`, however it was installed."""
    root = pathlib.Path(__file__).resolve().parents[2]
    files = sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py"))
    sources = {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return hashlib.sha256(json.dumps([versions(), sources], sort_keys=True).encode()).hexdigest()
