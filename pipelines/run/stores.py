"""Libraries for paths on object stores; a missing one is reported before anything is tried."""

import dataclasses
import importlib.util
import re
from collections.abc import Iterator, Mapping

import pydantic

from dapple_dp.schemas.errors import ConfigError, what_installs

STORES = {
    "s3": ("obstore", "aws"),
    "gs": ("google.cloud.storage", "gcp"),
    "azfs": ("azure.storage.blob", "azure"),
    "hdfs": ("hdfs", "hdfs"),
}
"""Library and extra that provides it, by path scheme."""
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@")
_SCHEME = re.compile(rf"({'|'.join(STORES)})://")


def check_stores(settings: object) -> None:
    """Refuses store paths without their library, URLs with a password, and `file://`.

    Args:
      settings: settings or flags of a job; every text in them that looks like such a path counts as one.

    Raises:
      ConfigError: with the missing extra, never with the password.
    """
    for name, text in _texts(settings, ""):
        if _PASSWORD.search(text):
            raise ConfigError(
                f"{name or 'a path'} must hold no password, got a URL with one; set it in the configuration or "
                "environment of the store's library."
            )
        if text.strip().lower().startswith("file://"):
            raise ConfigError(
                f"{name or 'a path'} must name a file of a local disk by its path alone, got {text}; leave out file://."
            )
        found = _SCHEME.match(text)
        if found is not None and not _installed(STORES[found[1]][0]):
            raise ConfigError(
                f"{name or 'a path'} needs the library for {found[0]}, which is not installed; run "
                f"{what_installs(STORES[found[1]][1])}."
            )


def check_local(settings: object) -> None:
    """Refuses store paths for `--runner=InProcess`; same argument and error as `check_stores`."""
    for name, text in _texts(settings, ""):
        if _SCHEME.match(text):
            raise ConfigError(
                f"{name or 'a path'} is in a store, and --runner=InProcess reads and writes local files only; leave "
                "the flag out, or copy the files."
            )


def _installed(module: str) -> bool:
    """Returns whether a module is installed; imports its parents."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _texts(value: object, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, pydantic.BaseModel):
        yield from _texts(dict(value), name)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _texts({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, name)
    elif isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from _texts(each, name)
