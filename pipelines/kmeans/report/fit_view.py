"""Inputs of a `fit` report's sections: the job, its releases, and the words for its units."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from dapple_dp.pipelines.kmeans.plan.replay import Replay, replay
from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary
from dapple_dp.pipelines.page.numbers import at_most
from dapple_dp.schemas.core.plan import Geometry, Mechanism, PrivacyUnit
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import UNITS, Unit
from dapple_dp.schemas.kmeans.model import ClusterModel, ClusterNames
from dapple_dp.schemas.privacy.meaning import Role
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.numerics.kmeans.centers import released_as
from dapple_dp.transforms.numerics.kmeans.edges import Bounds
from dapple_dp.transforms.rounds.protocol import ProtocolState


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FitView:
    """A finished run, prepared for its report; everything here is released or public.

    Attributes:
      planned: the job.
      result: release of the job.
      replay: replayed server steps.
      summary: summary of the centers.
    """

    planned: PlannedFit
    result: FitResult
    replay: Replay
    summary: CenterSummary

    @classmethod
    def of(cls, planned: PlannedFit, result: FitResult, states: Sequence[ProtocolState] = ()) -> "FitView":
        """Builds the view of a run; replays the server steps unless their states are given."""
        model, rounds = result.model, planned.rounds
        found = Replay.of(rounds, states) if states else replay(planned.initial, rounds, model.releases)
        rows = list(range(model.n_clusters) if result.drift is None else result.drift.rows)
        return cls(
            planned=planned,
            result=result,
            replay=found if result.drift is None else found.reordered(rows),
            summary=CenterSummary.of(
                _shown(planned, model),
                model.noisy_sizes,
                planned.labels,
                model.cluster_numbers,
                least=2.0 * model.size_stddevs,
                noise=_noise_of(result),
            ),
        )

    @functools.cached_property
    def names(self) -> ClusterNames | None:
        """Names of the clusters; None for a run without names."""
        return cluster_names(self.planned, self.result)

    @property
    def size_stddevs(self) -> NDArray[np.float64]:
        """Noise stddev of each noisy size, shape (k,)."""
        return self.result.model.size_stddevs

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases, in order."""
        return self.result.model.releases

    @property
    def unit(self) -> type[Unit]:
        """Words for the privacy unit."""
        return UNITS[self.planned.plan.unit]

    @property
    def by_client(self) -> bool:
        """True if a size is a weight of clients."""
        return self.planned.plan.unit is PrivacyUnit.CLIENT

    @property
    def most_weight(self) -> float:
        """Largest weight of one client in a size; 1 if sizes aren't counts as released."""
        counts = released_as(self.releases, Role.CLUSTER_COUNTS)
        if counts is None or not np.allclose(self.size_stddevs, counts.stddev):
            return 1.0
        return min(1.0, counts.plan.spec.sensitivity * counts.lattice_unit)

    @property
    def lattice(self) -> Lattice:
        """Center and clipping norm of the run; a private norm is known only after its round."""
        return self.replay.state.frame.lattice

    @property
    def size_noise(self) -> str:
        """Two noise stddevs of a noisy size, or their range, as text."""
        ends = self.size_stddevs.min(), self.size_stddevs.max()
        low, high = ("unknown" if math.isnan(end) else at_most(2.0 * end) for end in ends)
        return low if low == high else f"{low} to {high}"

    @property
    def in_two_stddevs(self) -> str:
        """Share of noise within two stddevs, in words: 95.4% for Gaussian and 94.1% for Laplace noise."""
        laplace = any(release.plan.spec.mechanism is Mechanism.DISCRETE_LAPLACE for release in self.releases)
        return "18 of 20 cases" if laplace else "19 of 20 cases"

    @property
    def small_clusters(self) -> list[int]:
        """Indices of clusters whose noisy size is below two noise stddevs."""
        return [int(index) for index in np.flatnonzero(~self.summary.found)]

    @property
    def plain_centers(self) -> NDArray[np.float64]:
        """Centers before any shrinkage or memory, shape (k, d), feature units."""
        model = self.result.model
        return model.centers if model.noisy_means is None or self.result.remembered is not None else model.noisy_means

    @property
    def center_stddevs(self) -> NDArray[np.float64]:
        """Noise stddev of each center coordinate, shape (k, d), feature units; NaN if unknown."""
        return _noise_of(self.result)

    @functools.cached_property
    def center_noise(self) -> NDArray[np.float64]:
        """Root mean square noise stddev of each center, shape (k,), feature units, to first order; NaN if unknown."""
        return np.sqrt((self.center_stddevs**2).mean(axis=1))

    @property
    def unknown_noise(self) -> str:
        """Sentence on why the noise of the centers is unknown; "" if it is known."""
        return "" if self.summary.knows_noise else protocol_of(self.planned.config.algorithm).unknown_noise or _UNKNOWN

    @property
    def bounds(self) -> Bounds:
        """Range to which each coordinate of a row was clipped, by the domain and the bounds of columns."""
        box, encoder = self.replay.state.frame.box, self.planned.contract.encoder
        result = Bounds.none(self.summary.n_features)
        if box is not None:
            result = result.inside(Bounds(np.full_like(result.lower, box.low), np.full_like(result.upper, box.high)))
        if encoder is None:
            return result
        result = result.inside(Bounds(*encoder.bounds))
        # Shares have no bounds here: they are 0 or 1 whenever all rows of a cluster agree.
        return Bounds(
            np.where(encoder.in_percent, -np.inf, result.lower), np.where(encoder.in_percent, np.inf, result.upper)
        )

    @functools.cached_property
    def server_norms(self) -> NDArray[np.float64]:
        """Norms of the centered public rows, shape (q,)."""
        return np.linalg.norm(self.planned.initial.server - self.lattice.center, axis=1)

    @property
    def unit_words(self) -> str:
        """Unit of lengths across features, in words; encoded columns have no unit of their own."""
        return "feature units" if self.planned.contract.encoder is None else "encoded units"

    @property
    def is_projected(self) -> bool:
        """True if single features have no meaning."""
        encoder = self.planned.contract.encoder
        return encoder is not None and encoder.is_projected

    @property
    def representative(self) -> bool:
        """True if there are server data, not just stand-in points."""
        return self.planned.config.server_data is not None and len(self.planned.initial.server) > 0

    @property
    def noisy_total(self) -> float | None:
        """Public or noisy number of rows (clients); None if neither is known."""
        public = self.planned.config.data.public_rows
        counted = self.counted
        return float(public) if public is not None else None if counted is None else float(counted.decoded[0])

    @property
    def counted(self) -> Release | None:
        """The release with the number of rows (clients); None if it is public or unknown."""
        return released_as(self.releases, Role.UNITS)

    def shares(self) -> list[float]:
        """Budget share of each release, in order; they add up to 1."""
        given = [release.spec.share for each in self.planned.plan.rounds for release in each.releases]
        return [share / math.fsum(given) for share in given]

    def ratios(self) -> NDArray[np.float64]:
        """Root mean square of each release over that of its noise; 1 means only noise."""
        return np.array([_over_noise(release) for release in self.releases])


def counted_words(planned: PlannedFit, model: ClusterModel) -> str:
    """Describes what a size counts."""
    if planned.plan.unit is PrivacyUnit.CLIENT:
        return f"clients by where their rows are, {model.counted}, each within a bound"
    return f"rows {model.counted}"


_UNKNOWN = "How far noise moves the centers is unknown."


def cluster_names(planned: PlannedFit, result: FitResult) -> ClusterNames | None:
    """Names of a run's clusters, in the order of its model; None for a run without names."""
    config = planned.config
    found: ClusterNames | None = protocol_of(config.algorithm).names(config, result.model.releases)
    return found if found is None or result.drift is None else found.reordered(list(result.drift.rows))


def _shown(planned: PlannedFit, model: ClusterModel) -> NDArray[np.float64]:
    """Centers as people see them, shape (k, d): with noisy shares of codes where they have modes."""
    encoder = planned.contract.encoder
    if encoder is None or model.noisy_means is None or not protocol_of(planned.config.algorithm).has_modes:
        return model.centers
    return np.where(encoder.in_percent, model.noisy_means, model.centers)


def _noise_of(result: FitResult) -> NDArray[np.float64]:
    """Noise stddev of each center coordinate, shape (k, d), feature units; NaN if unknown."""
    found, remembered = result.model.center_stddevs, result.remembered
    if remembered is None:
        return found
    known = np.repeat(remembered.noise[:, None] / math.sqrt(found.shape[1]), found.shape[1], axis=1)
    return np.where(np.isfinite(known), known, found)


def _over_noise(release: Release) -> float:
    """Root mean square of a release over that of its noise, in lattice units."""
    values = release.values.astype(np.float64)
    signal = math.sqrt(float(np.mean(values**2))) if values.size else 0.0
    noise = release.plan.noise_stddev
    if release.plan.spec.geometry is Geometry.SYMMETRIC:
        noise *= _triangle_noise(math.isqrt(2 * values.size))
    return signal / noise if noise > 0.0 else math.inf


def _triangle_noise(n_features: int) -> float:
    """Root mean square noise of an upper triangle over that of its diagonal; other entries have half the variance."""
    beside = n_features * (n_features - 1) / 2
    return math.sqrt((n_features + beside / 2.0) / (n_features + beside))
