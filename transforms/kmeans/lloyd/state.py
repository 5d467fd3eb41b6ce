"""State between rounds of sums and counts: public data, releases, and what was computed from them."""

import dataclasses
from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import Allocation, PrivacyUnit
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import Unit, unit_of
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel, NoisyCost
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.numerics.kmeans.centers import Prior, last_means


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeansSettings:
    """Public parameters for server steps and statistics, all from the job's config.

    `n_clusters` is the largest number that may be chosen if `chooses` is set.
    """

    n_clusters: int
    chooses: bool
    unit: Unit
    epsilon: float
    tuned: bool
    as_printed: bool
    centered: bool
    restarts: int
    seed: int
    public_rows: int | None
    representative: bool

    @classmethod
    def from_config(cls, config: FitConfig) -> "MeansSettings":
        """Creates the settings of a job; `representative` is False if public points stand in for server data."""
        return cls(
            n_clusters=config.max_clusters,
            chooses=config.chooses_clusters,
            unit=unit_of(config.privacy.unit, config.clipping.client_rows),
            epsilon=config.privacy.epsilon,
            tuned=config.privacy.allocation is Allocation.TUNED,
            as_printed=config.as_printed,
            centered=config.clipping.center == "server_mean",
            restarts=config.feddp_kmeans.restarts,
            seed=config.seed or 0,
            public_rows=config.data.public_rows,
            representative=config.server_data is not None,
        )

    @property
    def shrinks(self) -> bool:
        """True if releases are blended with the server data."""
        return self.tuned and self.representative


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClippingBounds:
    """Public bounds on what one unit adds; those of clients are found on public data.

    Attributes:
      scatter: feature units squared (Frobenius).
      histogram: fraction of rows (L2) in the tuned allocation, rows (L1) in the paper's.
      sums: feature units (L2), for the kind of sums that the round forms.
      counts: of the counts or presences that go with them.
    """

    scatter: float = float("nan")
    histogram: float = float("nan")
    sums: float = float("nan")
    counts: float = float("nan")

    @classmethod
    def of_row(cls, clipping_norm: float) -> "ClippingBounds":
        """Returns bounds that every row in the clipping ball meets."""
        return cls(scatter=clipping_norm**2, histogram=1.0, sums=clipping_norm, counts=1.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeansState:
    """State that a round may broadcast; it depends on private rows only through `releases`.

    Attributes:
      settings: public parameters.
      server: shape (q, d), feature units: the public server points as they were read.
      frame: public frame of the run.
      samples: shape (n_clients, client_rows): bootstrapped pseudo-clients; empty if rows are units.
      bounds: of the next round.
      n_rows: public or noisy number of rows; None before it is known.
      assigner: assigns the rows of the next round.
      prior: of each center before that round, centered feature units.
      centers: shape (k, d), centered feature units, after a sums-and-counts round.
      sizes: shape (k,): noisy counts.
      size_stddevs: shape (k,): of the noise of each size.
      counted: the rows that a size counts, as in `ClusterModel`.
      proxy_costs: shape (n_clusters,): costs of the weighted server points for 1, 2, ... clusters; empty unless
        the number of clusters is chosen.
      noisy_cost: after the round that releases it.
      releases: all so far, in order.
    """

    settings: MeansSettings
    server: NDArray[np.float64]
    frame: Frame
    samples: NDArray[np.int64]
    bounds: ClippingBounds = ClippingBounds()
    n_rows: float | None = None
    assigner: Assigner | None = None
    prior: Prior | None = None
    centers: NDArray[np.float64] | None = None
    sizes: NDArray[np.float64] | None = None
    size_stddevs: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    counted: str = ""
    proxy_costs: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    noisy_cost: NoisyCost | None = None
    releases: tuple[Release, ...] = ()

    @property
    def privacy_unit(self) -> Unit:
        """Unit that one neighbor adds or removes."""
        return self.settings.unit

    def bounded(self, found: Callable[[], ClippingBounds]) -> Self:
        """Returns the state with bounds of the next round: the plain ones of rows or, for clients, those of `found`."""
        rows = self.privacy_unit.kind is PrivacyUnit.RECORD
        bounds = ClippingBounds.of_row(self.frame.lattice.clipping_norm) if rows else found()
        return dataclasses.replace(self, bounds=bounds)

    @property
    def cells(self) -> None:
        """None, since no histogram is released over cells of a grid."""

    def broadcast(self) -> Self:
        """Returns the small part of the state that statistics read."""
        no_rows = np.zeros((len(self.server), 0))
        return dataclasses.replace(self, server=no_rows, samples=self.samples[:0], prior=None, releases=())

    def server_integers(self) -> NDArray[np.float64]:
        """Returns the server points on the lattice at SUM_BITS, shape (q, d)."""
        return self.frame.quantize(self.server, lattice.SUM_BITS)

    def server_rows(self) -> NDArray[np.float64]:
        """Returns the server points centered and clipped, feature units, shape (q, d)."""
        return self.server_integers() * self.sum_unit

    def integers(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Clips points in centered feature units, shape (n, d), and puts them on the lattice at SUM_BITS."""
        centered = self.frame.lattice._replace(center=np.zeros(points.shape[1]))
        return lattice.quantize(points, centered, lattice.SUM_BITS)

    @property
    def sum_unit(self) -> float:
        """Feature units of one lattice step in sums of rows."""
        return self.frame.lattice.unit(lattice.SUM_BITS)

    @property
    def positions(self) -> NDArray[np.float64] | None:
        """Centers in feature units, shape (k, d); before the first of them those of the prior; None without either."""
        known = self.centers if self.centers is not None else self.prior and self.prior.means
        return None if known is None else known + self.frame.lattice.center

    def labels(self) -> NDArray[np.int64]:
        """Returns the labels of the server points by `assigner`, shape (q,)."""
        return self.known_assigner.labels(self.server_integers())

    @property
    def known_assigner(self) -> Assigner:
        """`assigner`; raises ValueError before there is one."""
        if self.assigner is None:
            raise ValueError("the state has no assigner yet; run the earlier rounds first.")
        return self.assigner

    @property
    def move_stddevs(self) -> NDArray[np.float64] | None:
        """Stddevs of the noise of the last round of sums and counts, or else of the leaves, as in `ClusterModel`."""
        noisy = None if self.centers is None else last_means(self.releases, len(self.centers))
        if noisy is not None or self.centers is None or self.prior is None:
            return None if noisy is None else noisy.stddevs
        n_features = self.centers.shape[1]
        return np.repeat(np.sqrt(self.prior.variances / n_features)[:, None], n_features, axis=1)

    def model(self) -> ClusterModel:
        """Returns the released clustering; raises ValueError before a sums-and-counts round."""
        if self.centers is None or self.sizes is None:
            raise ValueError("the model is unknown until a round of sums and counts is released; run that round first.")
        middle, noisy = self.frame.lattice.center, last_means(self.releases, len(self.centers))
        return ClusterModel(
            centers=self.centers + middle,
            noisy_sizes=self.sizes,
            releases=self.releases,
            proxy_costs=self.proxy_costs,
            noisy_cost=self.noisy_cost,
            noisy_means=None if noisy is None else noisy.means + middle,
            size_stddevs=self.size_stddevs,
            counted=self.counted,
            center_stddevs=np.zeros((0, 0)) if self.move_stddevs is None else self.move_stddevs,
        )
