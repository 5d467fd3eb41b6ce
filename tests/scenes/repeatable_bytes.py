"""Random bytes that follow from the name of a test, so that what noise decides is the same in every run of the suite.

Dapple takes all that is random from `secrets`. A stream stands in for it while a test runs, and another one while a
fixture is made. Other calls give other bytes, as they must. A process that is forked draws from the system again, or
it would repeat its parent's draws; a new process never knew of the streams.
"""

import contextlib
import os
import random
import secrets
from collections.abc import Iterator

ANOTHER = "DAPPLE_TEST_BYTES"
"""An environment variable: another text gives all tests other bytes."""

_token_bytes, _randbits = secrets.token_bytes, secrets.randbits
_streams: list[random.Random | None] = [None]
_owner = os.getpid()


@contextlib.contextmanager
def bytes_of(name: str) -> Iterator[None]:
    """Random bytes drawn meanwhile follow from a name."""
    _streams.append(random.Random(f"{os.environ.get(ANOTHER, '')} {name}"))
    try:
        yield
    finally:
        _streams.pop()


def stand_in() -> None:
    """From now on `secrets` asks the streams."""
    secrets.token_bytes, secrets.randbits = token_bytes, randbits


def token_bytes(nbytes: int | None = None) -> bytes:
    """Replaces `secrets.token_bytes`."""
    stream = _stream()
    if stream is None:
        return _token_bytes(nbytes)
    return stream.randbytes(secrets.DEFAULT_ENTROPY if nbytes is None else nbytes)


def randbits(k: int) -> int:
    """Replaces `secrets.randbits`."""
    stream = _stream()
    return _randbits(k) if stream is None else stream.getrandbits(k)


def _stream() -> random.Random | None:
    return _streams[-1] if os.getpid() == _owner else None
