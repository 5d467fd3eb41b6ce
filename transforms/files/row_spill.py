"""Rows on their way through a file instead of through the runner, which may keep all it shuffles in memory.

Spilled rows are private; they are in the private folder of the data set in hidden files, until `remove`.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable
from typing import NamedTuple

_PREFIX = ".rows-"


class Spilled(NamedTuple):
    """Where some bytes are."""

    path: str
    offset: int
    length: int


def spill(folder: str, origin: str, pieces: Iterable[bytes]) -> list[Spilled]:
    """Writes pieces one behind the other; a second attempt replaces the file by its equal.

    Args:
      folder: on a disk that all workers share; exists.
      origin: names the file; the same pieces have the same one, and no others.
      pieces: any number.

    Returns:
      The place of each piece, in order.
    """
    path = os.path.join(folder, _PREFIX + hashlib.blake2b(origin.encode(), digest_size=16).hexdigest())
    target = f"{path}.{secrets.token_hex(8)}"
    places, offset = [], 0
    with open(target, "wb") as file:
        for piece in pieces:
            file.write(piece)
            places.append(Spilled(path, offset, len(piece)))
            offset += len(piece)
    os.replace(target, path)
    return places


def load(place: Spilled) -> bytes:
    """A spilled piece."""
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        return file.read(place.length)


def remove(folder: str) -> None:
    """Deletes everything that was spilled there."""
    for name in os.listdir(folder):
        if name.startswith(_PREFIX):
            os.unlink(os.path.join(folder, name))
