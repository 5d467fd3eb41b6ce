"""Sums of statistics that merge themselves, in jobs that release nothing of them."""

from collections.abc import Iterable
from typing import Any, Protocol, Self

import apache_beam as beam


class Mergeable(Protocol):
    """A statistic whose merge is exact, so that order and grouping don't matter."""

    def merge(self, other: Any) -> Self:
        """Returns the statistic of the rows of both."""


class MergeFn(beam.CombineFn):
    """Merges at least one statistic."""

    def create_accumulator(self) -> Mergeable | None:
        """Starts without a statistic."""
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
        """Returns the statistic of all rows."""
        return accumulator
