"""What the sections of a `fit` report are written from: the job, its releases, and the words for its units."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipelines.kmeans.outputs.center_summary import CenterSummary
from pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from pipelines.kmeans.plan.replay import Replay, replay
from schemas.privacy.plan import Geometry, PrivacyUnit
from schemas.privacy.release import Release
from transforms.numerics.statistics.lattice import Lattice


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FitView:
    """A finished run as its report sees it; everything here is released or public.

    Attributes:
      planned: the job.
      result: what it released.
      replay: the server steps once more.
      summary: of the centers.
    """

    planned: PlannedFit
    result: FitResult
    replay: Replay
    summary: CenterSummary

    @classmethod
    def of(cls, planned: PlannedFit, result: FitResult) -> "FitView":
        """View of a run."""
        model, found = result.model, replay(planned.initial, planned.rounds, result.model.releases)
        return cls(
            planned=planned,
            result=result,
            replay=found if result.drift is None else found.reordered(result.drift.rows),
            summary=CenterSummary.of(
                model.centers,
                model.noisy_sizes,
                planned.labels,
                model.cluster_numbers,
                least=2.0 * _size_stddev(model.releases),
            ),
        )

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases, in order."""
        return self.result.model.releases

    @property
    def by_client(self) -> bool:
        """Whether the privacy unit is the client."""
        return self.planned.plan.unit is PrivacyUnit.CLIENT

    @property
    def unit_word(self) -> str:
        """The privacy unit, in a word."""
        return "client" if self.by_client else "row"

    @property
    def size_unit(self) -> str:
        """Unit of noisy sizes."""
        return "weight of clients" if self.by_client else "rows"

    @property
    def lattice(self) -> Lattice:
        """Center and clipping norm that were used; a private norm is known after its round only."""
        return self.replay.state.frame.lattice

    @property
    def size_stddev(self) -> float:
        """Noise stddev of one noisy size."""
        return _size_stddev(self.releases)

    @property
    def small_clusters(self) -> list[int]:
        """Clusters whose noisy size is below two noise stddevs."""
        return [int(index) for index in np.flatnonzero(~self.summary.found)]

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
        counted = [release for release in self.releases if release.path.endswith("/rows")]
        return float(public) if public is not None else float(counted[0].decoded[0]) if counted else None

    def shares(self) -> list[float]:
        """Share of the budget of each release, in order; they add up to 1."""
        given = [release.spec.share for each in self.planned.plan.rounds for release in each.releases]
        return [share / math.fsum(given) for share in given]

    def ratios(self) -> NDArray[np.float64]:
        """Root mean square of each release over that of its noise; 1 is noise alone."""
        return np.array([_over_noise(release) for release in self.releases])


def _size_stddev(releases: Sequence[Release]) -> float:
    """Noise stddev of one noisy size; 0 if none was released."""
    counts = [release for release in releases if release.path.endswith(("/counts", "/sizes"))]
    return counts[-1].stddev if counts else 0.0


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
