"""The declared exception to the noise stage: mechanisms whose noise PipelineDP draws itself.

Inputs: exact sums and elements of `MeasureClusters`. Output element: `Noised`, differentially private. All bounds
are enforced before, so PipelineDP samples no contributions, and all sums are computed before. Mechanisms are
those of the plan.
PipelineDP's noise is not keyed by the run: a bundle that is retried draws it again.
"""

import dataclasses
import math
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pipeline_dp
from pipeline_dp import partition_selection
from pipeline_dp.aggregate_params import MechanismType
from pipeline_dp.budget_accounting import MechanismSpec

from dapple_dp.schemas.errors import UnsupportedEventError
from dapple_dp.schemas.profile.plan import (
    CLIENTS,
    COUNT,
    TREE_LEVELS,
    UNITS_PER_HALF_RANGE,
    ProfileEvent,
    ProfileLaw,
    ProfilePlan,
    histogram_path,
    percentile_path,
    selection_path,
)
from dapple_dp.transforms.on_beam.steps import DeclaredMechanism
from dapple_dp.transforms.profile.accounting import mechanism_spec
from dapple_dp.transforms.profile.measure_clusters import SUMS

_EXTRACTORS = pipeline_dp.DataExtractors(
    partition_extractor=operator.itemgetter(0), value_extractor=operator.itemgetter(1)
)


class Noised(NamedTuple):
    """Numbers with their noise.

    Attributes:
      path: of the event.
      key: the cluster of percentiles; cluster and text of a selected value; empty for sums.
      values: flat; for sums all coordinates in C order, in the unit of the sums.
    """

    path: str
    key: tuple[int | str, ...]
    values: tuple[float, ...]


class PlannedBudget(pipeline_dp.BudgetAccountant):
    """Returns a mechanism that was calibrated, with all others of the run, before the graph was built.

    Args:
      plan: the plan of the event.
      event: the only mechanism of one aggregation.
    """

    def __init__(self, plan: ProfilePlan, event: ProfileEvent):
        super().__init__(plan.epsilon, plan.delta, None, None)
        self._left = [mechanism_spec(event)]

    def request_budget(
        self,
        mechanism_type: MechanismType,
        sensitivity: float = 1,
        weight: float = 1,
        count: int = 1,
        noise_standard_deviation: float | None = None,
        name: str = "",
    ) -> MechanismSpec:
        """Returns the mechanism, once.

        Raises:
          UnsupportedEventError: if it was returned before, or is of another type.
        """
        single = (sensitivity, count, noise_standard_deviation) == (1, 1, None)
        if not self._left or self._left[0].mechanism_type is not mechanism_type or not single:
            raise UnsupportedEventError(
                f"a mechanism of PipelineDP must be the one that was accounted for, got {name or mechanism_type}; "
                "account for it."
            )
        return self._left.pop()

    def compute_budgets(self) -> None:
        """Does nothing: the mechanism is calibrated already."""


def _gaussian(event: ProfileEvent) -> pipeline_dp.AddDPNoiseParams:
    """Returns parameters of noise for aggregated and bounded data."""
    return pipeline_dp.AddDPNoiseParams(noise_kind=pipeline_dp.NoiseKind.GAUSSIAN, l2_sensitivity=event.sensitivity)


def _coordinates(total: np.ndarray, start: int, stop: int) -> tuple[None, np.ndarray]:
    return None, total[start:stop].astype(np.float64)


def _noised_sums(noisy: tuple[None, np.ndarray], path: str) -> Noised:
    return Noised(path, (), tuple(noisy[1].tolist()))


def _noised_percentiles(noisy: tuple[int, tuple], path: str) -> Noised:
    return Noised(path, (noisy[0],), tuple(map(float, noisy[1])))


def _noised_count(noisy: tuple[tuple[int, str], float], path: str) -> Noised:
    return Noised(path, noisy[0], (float(noisy[1]),))


class _SelectFn(beam.DoFn):
    """Keeps pairs of cluster and value that pass PipelineDP's noisy threshold, which is made once per worker."""

    def __init__(self, event: ProfileEvent, max_values: int):
        self._event = event
        self._max_values = max_values

    def setup(self) -> None:
        """Creates the threshold for units with at most `max_values` pairs each."""
        event = self._event
        self._threshold = partition_selection.create_gaussian_thresholding(
            event.normalized_stddev, event.threshold_delta, self._max_values
        )

    def process(self, counted: tuple[tuple[int, str], int]) -> Iterator[tuple[tuple[int, str], int]]:
        """Yields the pair with its exact count, which gets its own noise."""
        if self._threshold.should_keep(counted[1]):
            yield counted


@dataclasses.dataclass(eq=False, kw_only=True)
class AddPipelineDPNoise(DeclaredMechanism):
    """The outputs of `MeasureClusters` → `Noised`, differentially private as in `plan`.

    Attributes:
      plan: calibrated.

    Windowing: global. Privacy: (plan.epsilon, plan.delta) for neighbors that add or remove one unit. Cost: one
    shuffle per column with percentiles, whose rows are sent singly, since PipelineDP needs that.
    """

    plan: ProfilePlan

    def declared(self) -> ProfilePlan:
        """Returns the plan with all mechanisms of the profile."""
        return self.plan

    def measured(self) -> ProfilePlan:
        """Returns the plan that bounds a unit's contribution."""
        return self.plan

    def understatement(self) -> str | None:
        """Compares the events with the most by which one unit moves them; describes a fault, or returns None."""
        for event in self.plan.events:
            required = self._bound(event)
            if not event.sensitivity >= required:
                return f"{event.sensitivity:g} for {event.path}, which one unit moves by {required:g}"
        return None

    def _bound(self, event: ProfileEvent) -> float:
        """Returns the most by which the counted rows of one unit move an event's input; infinity if unknown.

        Each row moves one count by 1, one sum by half the range, and one count on each level of one tree by 1. Distinct
        clusters and values of a client move as many cells by 1 each.
        """
        plan, rows = self.plan, self.plan.unit_rows
        kind, _, column = event.path.removeprefix("profile/").partition("/")
        if event.path == COUNT:
            return float(rows)
        if event.path == CLIENTS:
            return math.sqrt(min(rows, plan.n_clusters))
        if kind == "means":
            return float(rows * UNITS_PER_HALF_RANGE)
        if kind == "percentiles":
            return float(rows * (math.sqrt(TREE_LEVELS) if event.law is ProfileLaw.GAUSSIAN else TREE_LEVELS))
        if kind in ("histograms", "selections") and column in plan.categorical:
            values = plan.categorical[column].values
            return math.sqrt(rows if values is None else min(rows, plan.n_clusters * len(values)))
        return math.inf

    def expand(self, measured: Any) -> beam.PCollection:
        """Runs one aggregation per event, or per choice of values with their counts."""
        noised = [*self._sums(measured[SUMS]), *self._percentiles(measured), *self._selected(measured)]
        return noised | "Noised" >> beam.Flatten()

    def _engine(self, event: ProfileEvent) -> pipeline_dp.DPEngine:
        return pipeline_dp.DPEngine(PlannedBudget(self.plan, event), pipeline_dp.BeamBackend(suffix=event.path))

    def _sums(self, total: beam.PCollection) -> Iterator[beam.PCollection]:
        """Adds noise to the exact sums, which are aggregated already."""
        start = 0
        for event in self.plan.sums:
            stop = start + int(np.prod(event.shape or ()))
            exact = total | f"Coordinates {event.path}" >> beam.Map(_coordinates, start, stop)
            noisy = self._engine(event).add_dp_noise(exact, _gaussian(event))
            yield noisy | f"Noised {event.path}" >> beam.Map(_noised_sums, event.path)
            start = stop

    def _percentiles(self, measured: dict[str, beam.PCollection]) -> Iterator[beam.PCollection]:
        """Builds one tree per cluster; a unit's rows move all trees of a column together no more than a single one."""
        kinds = {ProfileLaw.GAUSSIAN: pipeline_dp.NoiseKind.GAUSSIAN, ProfileLaw.LAPLACE: pipeline_dp.NoiseKind.LAPLACE}
        for name, column in self.plan.numeric.items():
            if not column.percentiles:
                continue
            event = self.plan.event(percentile_path(name))
            params = pipeline_dp.AggregateParams(
                metrics=list(map(pipeline_dp.Metrics.PERCENTILE, column.percentiles)),
                noise_kind=kinds[event.law],
                min_value=column.lower,
                max_value=column.upper,
                max_partitions_contributed=1,
                max_contributions_per_partition=self.plan.unit_rows,
                contribution_bounds_already_enforced=True,
                public_partitions_already_filtered=True,
            )
            clusters = list(range(self.plan.n_clusters))
            noisy = self._engine(event).aggregate(measured[event.path], params, _EXTRACTORS, clusters)
            yield noisy | f"Noised {event.path}" >> beam.Map(_noised_percentiles, event.path)

    def _selected(self, measured: dict[str, beam.PCollection]) -> Iterator[beam.PCollection]:
        """Selects values that enough units share, with their counts."""
        for name, listed in self.plan.categorical.items():
            if listed.values is not None:
                continue
            select, event = self.plan.event(selection_path(name)), self.plan.event(histogram_path(name))
            kept = measured[event.path] | f"Select {event.path}" >> beam.ParDo(_SelectFn(select, self.plan.unit_rows))
            noisy = self._engine(event).add_dp_noise(kept, _gaussian(event))
            yield noisy | f"Noised {event.path}" >> beam.Map(_noised_count, event.path)
