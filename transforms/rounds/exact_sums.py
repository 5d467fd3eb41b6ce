"""Exact sums of statistics: int64 vectors in, exactly one int64 vector out, also for empty input.

`MergeFn` adds up statistics that merge themselves, in jobs whose output stays private.
"""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self

import apache_beam as beam
import numpy as np

from schemas.errors import PrivacyFlowError
from transforms.files.lean_fn import LeanFn

_LONG = 1 << 15
"""Numbers of a vector of which partial sums are formed first."""
_BRANCHES = 32


class SumVectorsFn(beam.CombineFn):
    """Adds int64 vectors of one length; addition is exact and does not depend on order."""

    def __init__(self, size: int):
        self._size = size

    def create_accumulator(self) -> np.ndarray:
        """A zero vector."""
        return np.zeros(self._size, dtype=np.int64)

    def add_input(self, accumulator: np.ndarray, element: np.ndarray) -> np.ndarray:
        """Adds one vector; the accumulator is owned and may be changed in place."""
        accumulator += element
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[np.ndarray]) -> np.ndarray:
        """Adds up into a new vector."""
        total = self.create_accumulator()
        for accumulator in accumulators:
            total += accumulator
        return total

    def extract_output(self, accumulator: np.ndarray) -> np.ndarray:
        """The exact sum; noise is added in a stage of its own."""
        return accumulator


class _BranchFn(LeanFn):
    """Numbers vectors by the branch that adds them up: one branch for each bundle, so that lifting still works.

    A bundle that a runner does again gets the same branch, as long as its vectors are the same. By chance, it could be
    added to two branches, where one of them has read the first attempt: rows would count twice.
    """

    def start_bundle(self) -> None:
        """Nothing is known yet."""
        self._branch = -1

    def process(self, vector: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(branch, vector); which branch it is does not matter to a sum of integers."""
        if self._branch < 0:
            self._branch = zlib.crc32(vector.tobytes()) % _BRANCHES
        yield self._branch, vector


class GatherFn(LeanFn):
    """Gives all elements to one sum.

    `beam.CombineGlobally` does the same in steps of its own, of which Beam inspects every method.
    """

    def process(self, element: Any) -> Iterator[tuple[None, Any]]:
        """(None, element)."""
        yield None, element


class _GatherBranchesFn(LeanFn):
    """Gives the sums of branches to the one sum of all."""

    def process(self, numbered: tuple) -> Iterator[tuple[None, Any]]:
        """(None, sum of a branch)."""
        yield None, numbered[1]


class TotalFn(LeanFn):
    """Takes the one sum of all out of its pair; that of a branch is refused, since nobody may noise it on its own."""

    def process(self, keyed: tuple) -> Iterator[Any]:
        """The total without its key; raises PrivacyFlowError for that of a single branch."""
        key, total = keyed
        if key is not None:
            raise PrivacyFlowError(f"a sum must be that of all statistics, got that of branch {key}; gather them.")
        yield total


@dataclasses.dataclass(eq=False, kw_only=True)
class SumStatistics(beam.PTransform):
    """int64 vectors of shape (size,) → their exact sum, one element.

    The input is never empty, because the empty shard is part of every listing and its statistic is zero. So
    there is no default, and the exact sum is nobody's side input.

    Attributes:
      size: length of every vector.

    Windowing: global. Cost: one shuffle of one vector per bundle; two for long vectors, so that no worker is handed
    those of all bundles as one element, which runners cannot hold.
    """

    size: int

    def expand(self, statistics: beam.PCollection) -> beam.PCollection:
        """Combines under one key."""
        gather: beam.DoFn = GatherFn()
        if self.size >= _LONG:
            numbered, gather = statistics | "Branch" >> beam.ParDo(_BranchFn()), _GatherBranchesFn()
            statistics = numbered | "SumBranches" >> beam.CombinePerKey(_SumBranchFn())
        gathered = statistics | "Gather" >> beam.ParDo(gather)
        return gathered | "Sum" >> beam.CombinePerKey(SumVectorsFn(self.size)) | "Total" >> beam.ParDo(TotalFn())


class SumPresentVectorsFn(beam.CombineFn):
    """`SumVectorsFn` for at least one vector of a length that need not be known; the sum of nothing is None."""

    def create_accumulator(self) -> np.ndarray | None:
        """Nothing yet."""
        return None

    def add_input(self, accumulator: np.ndarray | None, element: np.ndarray) -> np.ndarray:
        """Adds one vector to a copy that this combiner owns."""
        if accumulator is None:
            return element.copy()
        accumulator += element
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[np.ndarray | None]) -> np.ndarray | None:
        """Adds up into a new vector."""
        total = None
        for accumulator in accumulators:
            if accumulator is not None:
                total = self.add_input(total, accumulator)
        return total

    def extract_output(self, accumulator: np.ndarray | None) -> np.ndarray | None:
        """The exact sum; noise is added in a stage of its own."""
        return accumulator


class _SumBranchFn(SumPresentVectorsFn):
    """The sum of a branch, which for the checker is a statistic like its terms: nobody may noise it on its own."""


@dataclasses.dataclass(eq=False, kw_only=True)
class SumKeyedStatistics(beam.PTransform):
    """(number, int64 vector) → (number, exact sum), one element per number that occurs.

    Windowing: global. Cost: one shuffle of one vector per bundle and number.
    """

    def expand(self, statistics: beam.PCollection) -> beam.PCollection:
        """Combines per number."""
        return statistics | "Sum" >> beam.CombinePerKey(SumPresentVectorsFn())


class Mergeable(Protocol):
    """A statistic whose merge is exact, so that order and grouping do not matter."""

    def merge(self, other: Any) -> Self:
        """The statistic of the rows of both, a new one."""


class MergeFn(beam.CombineFn):
    """Merges statistics; there must be at least one, which the empty shard ensures."""

    def create_accumulator(self) -> Mergeable | None:
        """Nothing yet."""
        return None

    def add_input(self, accumulator: Mergeable | None, element: Mergeable) -> Mergeable:
        """Merges one statistic."""
        return element if accumulator is None else accumulator.merge(element)

    def merge_accumulators(self, accumulators: Iterable[Mergeable | None]) -> Mergeable | None:
        """Merges the parts."""
        total = self.create_accumulator()
        for accumulator in accumulators:
            total = total if accumulator is None else self.add_input(total, accumulator)
        return total

    def extract_output(self, accumulator: Mergeable | None) -> Mergeable | None:
        """The statistic of all rows."""
        return accumulator
