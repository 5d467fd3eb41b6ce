"""DoFns that are quick to build, and DoFns that hold a key on the worker; no other transform reads a key."""

from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor

from dapple_dp.transforms.core.keys import KeySource

_BEAMS_OWN = frozenset(dir(beam.DoFn)) - {"process", "start_bundle", "finish_bundle"}


class LeanFn(beam.DoFn):
    """A DoFn that Beam inspects faster.

    Beam looks for state and timers in the signatures of all methods that `dir` names, eight times a step. Most of them
    are its own and have none, and building and starting a graph is most of a small job.
    """

    def __dir__(self) -> list[str]:
        """Lists what the class adds, with the methods that get elements or bundles."""
        return list({name for base in type(self).__mro__ for name in vars(base)} - _BEAMS_OWN)


class HeldKeyFn(LeanFn):
    """Holds the key between `setup` and `teardown` only; it is never pickled.

    Args:
      key_source: finds the key on the worker.

    Attributes:
      of_a_run: True if the key must be that of one run. False if the labels of what it draws name the run.
    """

    of_a_run: ClassVar[bool] = True

    def __init__(self, key_source: KeySource):
        self._key_source = key_source
        self._key: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_key": None}

    def setup(self) -> None:
        """Reads the key on the worker."""
        self._key = self._key_source.read_key()

    def teardown(self) -> None:
        """Drops the key."""
        self._key = None

    def _held_key(self) -> bytes:
        """Returns the key; raises RuntimeError outside of `setup` and `teardown`."""
        if self._key is None:
            raise RuntimeError("process must be called between setup and teardown; run it in a pipeline.")
        return self._key

    @property
    def place(self) -> str:
        """Place of the key; empty if none is needed."""
        return self._key_source.place


class _HeldKeys(PipelineVisitor):
    """Collects DoFns that hold keys."""

    def __init__(self) -> None:
        self.held: list[tuple[str, HeldKeyFn]] = []

    def visit_transform(self, node: AppliedPTransform) -> None:
        """Records a DoFn with its label."""
        function = getattr(node.transform, "fn", None)
        if isinstance(function, HeldKeyFn):
            self.held.append((node.full_label, function))


def held_keys(pipeline: beam.Pipeline) -> list[tuple[str, HeldKeyFn]]:
    """Returns (label, DoFn) for the DoFns of a pipeline that hold keys."""
    visitor = _HeldKeys()
    pipeline.visit(visitor)
    return visitor.held
