"""Files that are written once: whoever comes second must have the same octets."""

import os
import secrets

from apache_beam.io.filesystems import FileSystems

from schemas.errors import ProtocolError
from transforms.files import new_file
from transforms.files.octets import read_bytes


def write_once(path: str, content: bytes, *, private: bool = False) -> None:
    """Writes a file whole; one that is there already must be its equal.

    Args:
      path: on any Beam filesystem.
      content: of the file.
      private: whether a local file is for its owner only.

    Raises:
      ProtocolError: if another one is there.
      ConfigError: if the place cannot tell who was first.
    """
    try:
        _create(path, content, private=private)
    except FileExistsError:
        if read_bytes(path) != content:
            raise ProtocolError(
                f"{path} must be written once, got other content for it; a mask covers one message only."
            ) from None


def _create(path: str, content: bytes, *, private: bool) -> None:
    """Makes the file, which is never seen half written; raises FileExistsError if somebody else was first."""
    if FileSystems.get_scheme(path) not in (None, "file"):
        new_file.create(path, content)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{secrets.token_hex(8)}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    try:
        os.link(part, path)
    finally:
        os.unlink(part)
