"""DoFns that hold a secret on the worker, and nowhere else."""

from typing import Any

import apache_beam as beam

from transforms.privacy.keys import read_key


class HeldKeyFn(beam.DoFn):
    """Holds the key between `setup` and `teardown` only; it is never pickled.

    Args:
      key_uri: where workers find the key.
      setting: what the place is called in error messages.
    """

    def __init__(self, key_uri: str, setting: str = "key_uri"):
        self._key_uri = key_uri
        self._key_setting = setting
        self._key: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_key": None}

    def setup(self) -> None:
        """Reads the key on the worker."""
        self._key = read_key(self._key_uri, self._key_setting)

    def teardown(self) -> None:
        """Forgets the key."""
        self._key = None

    def _held_key(self) -> bytes:
        """The key; raises RuntimeError outside of `setup` and `teardown`."""
        if self._key is None:
            raise RuntimeError("process must be called between setup and teardown; run it in a pipeline.")
        return self._key
