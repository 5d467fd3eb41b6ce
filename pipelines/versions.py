"""Versions of this program and of what it builds on."""

import importlib.metadata
import platform

_LIBRARIES = ("dapple", "apache-beam", "numpy", "pyarrow", "scikit-learn", "dp-accounting", "pipeline-dp")


def version(name: str) -> str:
    """Installed version of a distribution, or "unknown"."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Versions that decide what a run computes, Python first."""
    return {"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES}
