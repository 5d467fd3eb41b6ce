"""Files on Beam's filesystems, whose modules are imported with the first store: files on a disk need none of them."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

_SCHEME = re.compile(r"([a-zA-Z][-a-zA-Z0-9+.]*)://")
_LATER: list[Callable[[], Any]] = []
"""What makes the options of stores, until it has."""


class StoredFile(NamedTuple):
    """What a store tells of a file.

    Attributes:
      size: octets.
      changed: time of the last change; empty if it tells none.
    """

    size: int
    changed: str


def is_local(path: str) -> bool:
    """Whether a path is on a disk of this machine, or mounted like one; by the rule of Beam."""
    scheme = _SCHEME.match(path.strip())
    return scheme is None or scheme[1] == "file"


def open_store(path: str) -> Any:
    """Octets of a file on a store, as they lie there.

    Raises:
      OSError: if it cannot be opened.
      ValueError: if there is no filesystem for it.
    """
    from apache_beam.io.filesystem import CompressionTypes

    return _filesystems().open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def stored(path: str) -> StoredFile:
    """The present state of a file on a store; raises what `open_store` raises."""
    found = _filesystems().get_filesystem(path).metadata(path)
    return StoredFile(found.size_in_bytes, str(found.last_updated_in_seconds or ""))


def options() -> Any:
    """The flags of the job that stores of this process ask for; None if there are none."""
    from apache_beam.io.filesystems import FileSystems

    return FileSystems._pipeline_options


def give_options(make: Callable[[], Any]) -> None:
    """Has stores of this process ask for other flags, which are made when the first store is met."""
    _LATER[:] = [make]


def _filesystems() -> Any:
    """Beam's filesystems."""
    from apache_beam.io.filesystems import FileSystems

    while _LATER:
        FileSystems.set_options(_LATER.pop()())
    return FileSystems
