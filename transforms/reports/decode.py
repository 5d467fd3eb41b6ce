"""Decodes batches of reports into a model, one per window.

Input element: `ReportBatch`. Output element: `DecodedBatch`. Guarantee: reports are private on their own, so all of
this is post-processing; a batch below its guaranteed minimum is refused if the guarantee needs it.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from dapple_dp.schemas.choices import ReportMode
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.reports.parameters import ReportParameters
from dapple_dp.transforms.numerics.reports.decoding import decode_leaves, decode_points
from dapple_dp.transforms.numerics.reports.decoding.decode_points import CodewordMixture, SoftSums
from dapple_dp.transforms.numerics.reports.sums import DecodedCenters, ReportSums
from dapple_dp.transforms.reports.batches import FEW_GROUPS, MANY_GROUPS, GroupReports, check_apart, distinct_reports
from dapple_dp.transforms.rounds.merge import MergeFn
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedBatch:
    """Result of the reports of one window.

    Attributes:
      n_reports: distinct ones; public, like the reports.
      model: None if there were fewer than the guaranteed minimum.
    """

    n_reports: int
    model: ClusterModel | None

    @classmethod
    def of(cls, n_reports: int, decoded: DecodedCenters, radius: float) -> "DecodedBatch":
        """Creates a batch with its model, in feature units."""
        model = ClusterModel(centers=decoded.centers * radius, noisy_sizes=decoded.sizes, releases=())
        return cls(n_reports=n_reports, model=model)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecodeParams:
    """Parameters for decoding reports.

    Attributes:
      parameters: of the collection.
      seed: of k-means, public.
    """

    parameters: ReportParameters
    seed: int = 0


class _GroupFn(SmallBlocksFn):
    """Works on groups of reports; products are small, so BLAS gets one thread."""

    def __init__(self, params: DecodeParams):
        self._params = params


class _SumFn(_GroupFn):
    def process(self, group: tuple) -> Iterator[ReportSums]:
        parameters = self._params.parameters
        yield ReportSums.of(distinct_reports(group, parameters), parameters)


class _ProjectFn(_GroupFn):
    """Second pass, for reports without levels."""

    def process(self, group: tuple, directions: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        parameters = self._params.parameters
        reports = distinct_reports(group, parameters)
        yield reports.nonces, decode_points.project(reports, parameters, directions)


class _SoftSumFn(_GroupFn):
    """Third pass, for reports without levels."""

    def process(self, group: tuple, directions: np.ndarray, mixture: CodewordMixture) -> Iterator[SoftSums]:
        parameters = self._params.parameters
        yield SoftSums.of(distinct_reports(group, parameters), parameters, directions, mixture)


class _KeepPointsFn(beam.CombineFn):
    """Keeps the points with the lowest scrambled nonces, in their order: a fixed sample, independent of the data."""

    def create_accumulator(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return []

    def add_input(self, accumulator: list, element: tuple) -> list:
        return self._bounded([*accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[list]) -> list:
        return self._bounded([part for accumulator in accumulators for part in accumulator])

    def extract_output(self, accumulator: list) -> np.ndarray:
        return _lowest(accumulator)[1]

    def _bounded(self, parts: list) -> list:
        n_points = sum(len(nonces) for nonces, _ in parts)
        return [_lowest(parts)] if n_points > 2 * decode_points.MOST_POINTS else parts


def _lowest(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    nonces = np.concatenate([part[0] for part in parts])
    order = np.argsort(decode_points.scrambled(nonces), kind="stable")[: decode_points.MOST_POINTS]
    return nonces[order], np.concatenate([part[1] for part in parts])[order]


def _decode_tree(sums: ReportSums, params: DecodeParams) -> DecodedBatch:
    if not params.parameters.guarantee.is_met_by(sums.n_reports):
        return DecodedBatch(n_reports=sums.n_reports, model=None)
    decoded = decode_leaves.decode(sums, params.parameters, params.seed)
    return DecodedBatch.of(sums.n_reports, decoded, params.parameters.radius)


def _decode_points(soft_sums: SoftSums, sums: ReportSums, params: DecodeParams) -> DecodedBatch:
    if not params.parameters.guarantee.is_met_by(sums.n_reports):
        return DecodedBatch(n_reports=sums.n_reports, model=None)
    decoded = soft_sums.centers(params.parameters, sums.n_reports)
    return DecodedBatch.of(sums.n_reports, decoded, params.parameters.radius)


def _directions(sums: ReportSums, params: DecodeParams) -> np.ndarray:
    return decode_points.principal_directions(sums, params.parameters)


def _mixture(points: np.ndarray, params: DecodeParams) -> CodewordMixture:
    return decode_points.fit_mixture(points, params.parameters, params.seed)


@dataclasses.dataclass(eq=False, kw_only=True)
class DecodeReports(beam.PTransform):
    """`ReportBatch`es → `DecodedBatch`, one element per window that has reports.

    Reports with one nonce count once per window.

    Attributes:
      params: parameters for decoding.
      spill_folder: see `GroupReports`.

    Windowing: any with one final pane and, for shuffled reports, without overlap; others are refused. Privacy:
    post-processing. Cost: one shuffle of all reports; one pass, for reports without levels three; memory for one group
    of reports, 2**depth sums and `MOST_POINTS` points.
    """

    params: DecodeParams
    spill_folder: str | None = None

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Groups, adds up and decodes."""
        parameters = self.params.parameters
        if parameters.guarantee.mode is not ReportMode.LOCAL:
            check_apart(batches)
        n_groups = FEW_GROUPS if self.spill_folder else MANY_GROUPS
        groups = batches | "ByNonce" >> GroupReports(
            parameters=parameters, spill_folder=self.spill_folder, n_groups=n_groups
        )
        sums = groups | "Sums" >> beam.ParDo(_SumFn(self.params)) | "Total" >> _merged()
        if parameters.depth > 0:
            return sums | "DecodeTree" >> beam.Map(_decode_tree, self.params)
        directions = AsSingleton(sums | "Directions" >> beam.Map(_directions, self.params))
        points = groups | "Project" >> beam.ParDo(_ProjectFn(self.params), directions)
        kept = points | "Keep" >> beam.CombineGlobally(_KeepPointsFn()).without_defaults()
        mixture = AsSingleton(kept | "Mixture" >> beam.Map(_mixture, self.params))
        soft = (
            groups | "SoftSums" >> beam.ParDo(_SoftSumFn(self.params), directions, mixture) | "SoftTotal" >> _merged()
        )
        return soft | "DecodePoints" >> beam.Map(_decode_points, AsSingleton(sums), self.params)


def _merged() -> beam.PTransform:
    """Merges statistics; an empty window has none."""
    return beam.CombineGlobally(MergeFn()).without_defaults()
