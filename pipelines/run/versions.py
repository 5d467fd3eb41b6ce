"""Versions of this program and of what it builds on: recorded and reported, and never a reason to end a run."""

import functools
import importlib.metadata
import logging
import platform
from collections.abc import Mapping

_LOGGER = logging.getLogger(__name__)
_LIBRARIES = ("dapple-dp", "apache-beam", "numpy", "pyarrow", "scikit-learn", "dp-accounting", "pipeline-dp")


@functools.cache
def version(name: str) -> str:
    """Installed version of a distribution, or "unknown"; that of this process, which reads it once."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Versions that decide what a run computes, Python first."""
    return {"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES}


def tell_others(run: str, began: Mapping[str, str]) -> None:
    """Warns, in one line, if a run goes on under other versions than it began with.

    Args:
      run: its id.
      began: `versions` then.
    """
    now = versions()
    changed = [f"{name} {began.get(name)}, now {now.get(name)}" for name in now if began.get(name) != now[name]]
    if changed:
        _LOGGER.warning("warning: run %s goes on under other versions than it began with: %s", run, "; ".join(changed))
