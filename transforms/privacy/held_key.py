"""DoFns that hold a secret on the worker, and nowhere else; in transforms no other code reads a key."""

from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor

from transforms.files.lean_fn import LeanFn
from transforms.privacy.keys import read_key


class HeldKeyFn(LeanFn):
    """Holds the key between `setup` and `teardown` only; it is never pickled.

    Args:
      key_uri: where workers find the key.
      setting: what the place is called in error messages.

    Attributes:
      of_a_run: whether the key must be that of one run; not where what is drawn names its run otherwise.
    """

    of_a_run: ClassVar[bool] = True

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

    @property
    def place(self) -> str:
        """Where the key is; empty if none is needed."""
        return self._key_uri


class _HeldKeys(PipelineVisitor):
    """Collects DoFns that hold keys."""

    def __init__(self) -> None:
        self.found: list[tuple[str, HeldKeyFn]] = []

    def visit_transform(self, node: AppliedPTransform) -> None:
        """Keeps a DoFn with its label."""
        function = getattr(node.transform, "fn", None)
        if isinstance(function, HeldKeyFn):
            self.found.append((node.full_label, function))


def held_keys(pipeline: beam.Pipeline) -> list[tuple[str, HeldKeyFn]]:
    """Labels and DoFns of a pipeline that hold keys."""
    visitor = _HeldKeys()
    pipeline.visit(visitor)
    return visitor.found
