"""Passes rows through a file instead of the runner, which may keep everything that it shuffles in memory.

Spilled rows are private; they stay in hidden files in the private folder of the data set until `remove`.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable
from typing import NamedTuple

_PREFIX = ".rows-"


class Spilled(NamedTuple):
    """Place of some spilled bytes."""

    path: str
    offset: int
    length: int


def spill(folder: str, origin: str, pieces: Iterable[bytes]) -> list[Spilled]:
    """Writes pieces one after another; a second attempt replaces the file with an equal one.

    Args:
      folder: on a disk that all workers share; exists.
      origin: names the file; equal for equal pieces, different otherwise.
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
    """Reads a spilled piece."""
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        return file.read(place.length)


def remove(folder: str) -> None:
    """Deletes all spilled rows of a folder."""
    for name in os.listdir(folder):
        if name.startswith(_PREFIX):
            os.unlink(os.path.join(folder, name))
