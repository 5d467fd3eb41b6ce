"""Files that are written once: whoever comes second must have the same octets."""

import os

from schemas.errors import ProtocolError
from schemas.settings.refusal import Refusal
from transforms.files import gate, new_file, stores


def write_once(path: str, content: bytes, *, private: bool = False) -> None:
    """Writes a file whole, durable on a local disk; one that is there already must be its equal.

    Args:
      path: on any Beam filesystem.
      content: of the file.
      private: whether a local file is for its owner only.

    Raises:
      ProtocolError: if something else is there.
      ConfigError: if the place cannot tell who was first.
    """
    try:
        if stores.is_local(path):
            new_file.make_folders(os.path.dirname(path))
            new_file.link_in_place(path, content, 0o600 if private else 0o666)
        else:
            new_file.create(path, content)
    except FileExistsError:
        rule, remedy = f"{path} must be written once", "a mask covers one message only"
        refusal = Refusal(kind=ProtocolError, rule=rule, remedy=remedy)
        if gate.read_octets(path, refusal, len(content)) != content:
            raise refusal.because("other content for it") from None
