"""What the sections of a `fit` report are written from: the job, its releases, and the words for its units."""

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray

from pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from pipelines.kmeans.plan.replay import Replay, replay
from pipelines.kmeans.report.center_summary import CenterSummary
from pipelines.page.numbers import to_noise
from schemas.privacy.plan import Geometry, PrivacyUnit
from schemas.privacy.release import Release
from schemas.privacy.unit import UNITS, Unit
from transforms.kmeans.lloyd.state import MeansState
from transforms.numerics.kmeans.edges import Bounds
from transforms.numerics.kmeans.recurring.size_noise import size_stddevs
from transforms.numerics.statistics.lattice import Lattice


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FitView:
    """A finished run as its report sees it; everything here is released or public.

    Attributes:
      planned: the job.
      result: what it released.
      replay: the server steps once more.
      size_stddevs: shape (k,): noise stddev of each noisy size.
      summary: of the centers.
    """

    planned: PlannedFit
    result: FitResult
    replay: Replay
    size_stddevs: NDArray[np.float64]
    summary: CenterSummary

    @classmethod
    def of(cls, planned: PlannedFit, result: FitResult) -> "FitView":
        """View of a run."""
        model, found = result.model, replay(planned.initial, planned.rounds, result.model.releases)
        rows = list(range(model.n_clusters) if result.drift is None else result.drift.rows)
        leaves = found.state.size_leaves if isinstance(found.state, MeansState) else None
        epoch = planned.statement.epoch
        stddevs = size_stddevs(model.releases, model.n_clusters, epoch=epoch, n_leaves=leaves)[rows]
        return cls(
            planned=planned,
            result=result,
            replay=found if result.drift is None else found.reordered(rows),
            size_stddevs=stddevs,
            summary=CenterSummary.of(
                model.centers,
                model.noisy_sizes,
                planned.labels,
                model.cluster_numbers,
                least=2.0 * stddevs,
            ),
        )

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases, in order."""
        return self.result.model.releases

    @property
    def unit(self) -> type[Unit]:
        """Words of the privacy unit."""
        return UNITS[self.planned.plan.unit]

    @property
    def by_client(self) -> bool:
        """Whether a size is a weight of clients."""
        return self.planned.plan.unit is PrivacyUnit.CLIENT

    @property
    def lattice(self) -> Lattice:
        """Center and clipping norm that were used; a private norm is known after its round only."""
        return self.replay.state.frame.lattice

    @property
    def size_noise(self) -> str:
        """Two noise stddevs of a noisy size, or their range, as text."""
        low, high = (to_noise(2.0 * each, each) for each in (self.size_stddevs.min(), self.size_stddevs.max()))
        return low if low == high else f"{low} to {high}"

    @property
    def small_clusters(self) -> list[int]:
        """Clusters whose noisy size is below two noise stddevs."""
        return [int(index) for index in np.flatnonzero(~self.summary.found)]

    @property
    def plain_centers(self) -> NDArray[np.float64]:
        """Centers before they were shrunken to what else is known, shape (k, d), feature units; as they are if not."""
        model = self.result.model
        return model.centers if model.noisy_means is None or self.result.remembered is not None else model.noisy_means

    @functools.cached_property
    def center_noise(self) -> NDArray[np.float64]:
        """Noise stddev of one coordinate of each of them, shape (k,), feature units, to first order; NaN if unknown."""
        centers, found = self.result.model.centers, np.full(self.summary.n_clusters, math.nan)
        state, moves, remembered = self.replay.state, self.replay.movements, self.result.remembered
        if moves and len(moves[-1].noise) == len(found):
            found = moves[-1].noise
        elif isinstance(state, MeansState) and state.prior is not None and self.result.drift is None:
            found = np.sqrt(state.prior.variances)
        if remembered is not None:
            found = np.where(np.isfinite(remembered.noise), remembered.noise, found)
        return found / math.sqrt(centers.shape[1])

    @property
    def bounds(self) -> Bounds:
        """Between which ends every coordinate of a row was clipped, by the domain and by the bounds of columns."""
        box, encoder = self.replay.state.frame.box, self.planned.contract.encoder
        found = Bounds.none(self.summary.n_features)
        if box is not None:
            found = found.inside(Bounds(np.full_like(found.lower, box.low), np.full_like(found.upper, box.high)))
        if encoder is None:
            return found
        found = found.inside(Bounds(*encoder.bounds))
        # A share of rows is 0 or 1 wherever all rows of a cluster agree.
        return Bounds(
            np.where(encoder.in_percent, -np.inf, found.lower), np.where(encoder.in_percent, np.inf, found.upper)
        )

    @functools.cached_property
    def server_norms(self) -> NDArray[np.float64]:
        """Norms of the centered public rows, shape (q,)."""
        return np.linalg.norm(self.planned.initial.server - self.lattice.center, axis=1)

    @property
    def representative(self) -> bool:
        """Whether there are server data, not points that stand in for them."""
        return self.planned.config.server_data is not None and len(self.planned.initial.server) > 0

    @property
    def noisy_total(self) -> float | None:
        """Public or noisy number of rows (clients); None where neither is known."""
        public = self.planned.config.data.public_rows
        counted = self.counted
        return float(public) if public is not None else None if counted is None else float(counted.decoded[0])

    @property
    def counted(self) -> Release | None:
        """The release that says how many rows (clients) there are; None where that is public or unknown."""
        return next((release for release in self.releases if release.path.endswith("/rows")), None)

    def shares(self) -> list[float]:
        """Share of the budget of each release, in order; they add up to 1."""
        given = [release.spec.share for each in self.planned.plan.rounds for release in each.releases]
        return [share / math.fsum(given) for share in given]

    def ratios(self) -> NDArray[np.float64]:
        """Root mean square of each release over that of its noise; 1 is noise alone."""
        return np.array([_over_noise(release) for release in self.releases])


def _over_noise(release: Release) -> float:
    """Root mean square of a release over the root mean square of noise alone, in lattice units."""
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
