"""The declared exception of the noise stage: what PipelineDP noises itself, with its own noise.

Inputs: exact sums and elements of `MeasureClusters`. Output element: `Noised`, differentially private. All bounds
have been enforced before, so PipelineDP samples no contributions; mechanisms and noise are those of the plan.
PipelineDP's noise is not keyed by the run: a bundle that is retried draws it anew.
"""

import dataclasses
import operator
from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pipeline_dp
from pipeline_dp.aggregate_params import MechanismType
from pipeline_dp.budget_accounting import MechanismSpec

from schemas.profile_plan import (
    ProfileEvent,
    ProfileLaw,
    ProfilePlan,
    histogram_path,
    percentile_path,
    selection_path,
)
from transforms.measure_clusters import SUMS
from transforms.profile_accounting import mechanism_spec

_EXTRACTORS = pipeline_dp.DataExtractors(
    partition_extractor=operator.itemgetter(0), value_extractor=operator.itemgetter(1)
)


class Noised(NamedTuple):
    """Some numbers with their noise.

    Attributes:
      path: of the event.
      key: the cluster of percentiles; cluster and text of a value that was selected; nothing for sums.
      values: flat; for sums all coordinates in C order, in the unit of the sums.
    """

    path: str
    key: tuple[int | str, ...]
    values: tuple[float, ...]


class PlannedBudget(pipeline_dp.BudgetAccountant):
    """Hands out mechanisms that were calibrated, all together, before the graph was built.

    Args:
      plan: what they are part of.
      events: those of one aggregation, one per type of mechanism.
    """

    def __init__(self, plan: ProfilePlan, *events: ProfileEvent):
        super().__init__(plan.epsilon, plan.delta, None, None)
        self._specs = {spec.mechanism_type: spec for spec in map(mechanism_spec, events)}

    def request_budget(
        self,
        mechanism_type: MechanismType,
        sensitivity: float = 1,
        weight: float = 1,
        count: int = 1,
        noise_standard_deviation: float | None = None,
        name: str = "",
    ) -> MechanismSpec:
        """The mechanism of that type; raises KeyError if the plan has none, or it was handed out before."""
        if (sensitivity, count, noise_standard_deviation) != (1, 1, None):
            raise KeyError(f"{name} must be a single mechanism of the plan; plan for it.")
        return self._specs.pop(mechanism_type)

    def compute_budgets(self) -> None:
        """Nothing is left to compute."""


def _coordinates(total: np.ndarray, start: int, stop: int) -> tuple[None, np.ndarray]:
    return None, total[start:stop].astype(np.float64)


def _noised_sums(noisy: tuple[None, np.ndarray], path: str) -> Noised:
    return Noised(path, (), tuple(noisy[1].tolist()))


def _noised_percentiles(noisy: tuple[int, tuple], path: str) -> Noised:
    return Noised(path, (noisy[0],), tuple(map(float, noisy[1])))


def _noised_count(noisy: tuple[tuple[int, str], tuple], path: str) -> Noised:
    return Noised(path, noisy[0], tuple(map(float, noisy[1])))


@dataclasses.dataclass(eq=False, kw_only=True)
class AddPipelineDPNoise(beam.PTransform):
    """The outputs of `MeasureClusters` → `Noised`, differentially private as `plan` says.

    Attributes:
      plan: calibrated.

    Windowing: global. Privacy: (plan.epsilon, plan.delta) for neighbors that add or remove one unit. Cost: one
    shuffle per output; about 15 microseconds per element of percentiles, 50 per element of values.
    """

    plan: ProfilePlan

    def expand(self, measured: dict[str, beam.PCollection]) -> beam.PCollection:
        """One aggregation per event, or per choice of values with their counts."""
        noised = [*self._sums(measured[SUMS]), *self._percentiles(measured), *self._selected(measured)]
        return noised | "Noised" >> beam.Flatten()

    def _engine(self, *events: ProfileEvent) -> pipeline_dp.DPEngine:
        """An engine that can spend these events."""
        backend = pipeline_dp.BeamBackend(suffix=events[-1].path)
        return pipeline_dp.DPEngine(PlannedBudget(self.plan, *events), backend)

    def _sums(self, total: beam.PCollection) -> Iterator[beam.PCollection]:
        """Exact sums are aggregated already; noise is all that is left."""
        start = 0
        for event in self.plan.sums:
            stop = start + int(np.prod(event.shape or ()))
            exact = total | f"Coordinates {event.path}" >> beam.Map(_coordinates, start, stop)
            params = pipeline_dp.AddDPNoiseParams(
                noise_kind=pipeline_dp.NoiseKind.GAUSSIAN, l2_sensitivity=event.sensitivity
            )
            noisy = self._engine(event).add_dp_noise(exact, params)
            yield noisy | f"Noised {event.path}" >> beam.Map(_noised_sums, event.path)
            start = stop

    def _percentiles(self, measured: dict[str, beam.PCollection]) -> Iterator[beam.PCollection]:
        """One tree per cluster; a unit's rows move all trees of a column together by no more than one of them alone."""
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
        """Values that enough units share, with their counts."""
        for name, listed in self.plan.categorical.items():
            if listed.values is not None:
                continue
            selection, count = self.plan.event(selection_path(name)), self.plan.event(histogram_path(name))
            params = pipeline_dp.AggregateParams(
                metrics=[pipeline_dp.Metrics.COUNT],
                noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
                max_partitions_contributed=self.plan.unit_rows,
                max_contributions_per_partition=1,
                contribution_bounds_already_enforced=True,
                partition_selection_strategy=pipeline_dp.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING,
            )
            noisy = self._engine(selection, count).aggregate(measured[count.path], params, _EXTRACTORS)
            yield noisy | f"Noised {count.path}" >> beam.Map(_noised_count, count.path)
