"""Exact sums of statistics: int64 vectors in, exactly one int64 vector out."""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.transforms.on_beam.workers import LeanFn

_LONG = 1 << 15
"""Length from which vectors are added up in branches first."""
_BRANCHES = 32


class SumVectorsFn(beam.CombineFn):
    """Adds int64 vectors of one length, exactly and in any order."""

    def __init__(self, size: int):
        self._size = size

    def create_accumulator(self) -> np.ndarray:
        """Creates a zero vector."""
        return np.zeros(self._size, dtype=np.int64)

    def add_input(self, accumulator: np.ndarray, element: np.ndarray) -> np.ndarray:
        """Adds one vector in place; the accumulator is owned."""
        accumulator += element
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[np.ndarray]) -> np.ndarray:
        """Adds vectors into a new one."""
        total = self.create_accumulator()
        for accumulator in accumulators:
            total += accumulator
        return total

    def extract_output(self, accumulator: np.ndarray) -> np.ndarray:
        """Returns the exact sum."""
        return accumulator


class _BranchFn(LeanFn):
    """Assigns vectors to the branch that adds them up: one branch per bundle, so that combiner lifting still works.

    The branch follows from the bundle's first vector and not from chance. So a bundle that a runner repeats gets the
    same branch, and no attempt is added to two branches, even on a runner that has kept a part of the first attempt.
    """

    def start_bundle(self) -> None:
        """Resets the branch."""
        self._branch = -1

    def process(self, vector: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (branch, vector)."""
        if self._branch < 0:
            self._branch = zlib.crc32(vector.tobytes()) % _BRANCHES
        yield self._branch, vector


class GatherFn(LeanFn):
    """Keys all elements alike, for one sum; `beam.CombineGlobally` takes more steps to do the same."""

    def process(self, element: Any) -> Iterator[tuple[None, Any]]:
        """Yields (None, element)."""
        yield None, element


class _GatherBranchesFn(LeanFn):
    """Keys the sums of branches alike, for one sum."""

    def process(self, numbered: tuple[Any, Any]) -> Iterator[tuple[None, Any]]:
        """Yields (None, sum of a branch)."""
        yield None, numbered[1]


class TotalFn(LeanFn):
    """Unpacks the total; refuses the sum of one branch, which must not get noise separately."""

    def process(self, keyed: tuple[Any, Any]) -> Iterator[Any]:
        """Yields the total; raises PrivacyFlowError for the sum of a branch."""
        key, total = keyed
        if key is not None:
            raise PrivacyFlowError("a sum must be that of all statistics, got that of a branch; gather them.")
        yield total


@dataclasses.dataclass(eq=False, kw_only=True)
class SumStatistics(beam.PTransform):
    """Adds int64 vectors of shape (size,): their exact sum is the one output element.

    The input is never empty, because every listing contains the empty shard, whose statistic is zero. So there is no
    default, and the exact sum is never a side input.

    Attributes:
      size: length of every vector.

    Windowing: any, with a sum a window. Cost: one shuffle of one vector per bundle; two for long vectors, since runners
    can't give one worker those of all bundles as one element.
    """

    size: int

    def expand(self, statistics: beam.PCollection) -> beam.PCollection:
        """Adds the steps."""
        gather: beam.DoFn = GatherFn()
        if self.size >= _LONG:
            numbered, gather = statistics | "Branch" >> beam.ParDo(_BranchFn()), _GatherBranchesFn()
            statistics = numbered | "SumBranches" >> beam.CombinePerKey(SumVectorsFn(self.size))
        gathered = statistics | "Gather" >> beam.ParDo(gather)
        return gathered | "Sum" >> beam.CombinePerKey(SumVectorsFn(self.size)) | "Total" >> beam.ParDo(TotalFn())
