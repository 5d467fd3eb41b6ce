"""Versions of this program and its libraries: recorded and reported, but never a reason to stop a run."""

import functools
import importlib.metadata
import logging
import platform
from collections.abc import Mapping

_LOGGER = logging.getLogger(__name__)
_LIBRARIES = ("dapple-dp", "apache-beam", "numpy", "pyarrow", "scikit-learn", "dp-accounting", "pipeline-dp")


@functools.cache
def version(name: str) -> str:
    """Installed version of a distribution, or "unknown"; read once per process."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Versions that affect the results of a run, Python first."""
    return {"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES}


def tell_others(run: str, began: Mapping[str, str]) -> None:
    """Warns if a run is resumed with other versions than it started with.

    Args:
      run: id of the run.
      began: `versions` at the start.
    """
    now = versions()
    changed = [f"{name} {began.get(name)}, now {now.get(name)}" for name in now if began.get(name) != now[name]]
    if changed:
        _LOGGER.warning("warning: run %s goes on under other versions than it began with: %s", run, "; ".join(changed))
