"""State between the rounds of DP-Lloyd: public data, releases, and what was computed from them."""

import dataclasses
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import Unit
from dapple_dp.schemas.kmeans.model import BEFORE_LAST_STEP, ClusterModel
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.numerics.kmeans import moves
from dapple_dp.transforms.numerics.kmeans.centers import last_means
from dapple_dp.transforms.numerics.kmeans.starts.grid import Grid

KMEANS_RESTARTS = 10
"""Restarts of k-means on the cells of a grid."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LloydState:
    """State that a round may broadcast; it depends on private rows only through `releases`.

    Attributes:
      settings: public parameters.
      frame: public frame of the run; its center is the middle of the domain.
      server: shape (q, d), feature units: public points, if the start uses some.
      centers: integers, shape (k, d), lattice units at SUM_BITS; None before a private start has found them.
      radius: lattice units: radius of the next round of relative sums.
      n_rows: public or noisy number of rows (clients); None before it is known.
      origins: as `centers`: points from which the last round measured its sums; None for the middle of the domain.
      sizes: shape (k,): noisy counts, after a Lloyd round.
      mean: integers, shape (d,), lattice units: noisy mean of the rows, after its round.
      near: frame around that mean in which the scatter is formed.
      grid: cells of the next histogram.
      errors: of the centers after the last round, as in `moves.Blended`; None before it.
      releases: all so far, in order.
    """

    settings: LloydSettings
    frame: Frame
    server: NDArray[np.float64]
    centers: NDArray[np.float64] | None
    radius: int
    n_rows: float | None = None
    origins: NDArray[np.float64] | None = None
    sizes: NDArray[np.float64] | None = None
    mean: NDArray[np.float64] | None = None
    near: Frame | None = None
    grid: Grid | None = None
    errors: NDArray[np.float64] | None = None
    releases: tuple[Release, ...] = ()

    @property
    def privacy_unit(self) -> Unit:
        """Unit that one neighbor adds or removes."""
        return self.settings.unit

    @property
    def cells(self) -> NDArray[np.float64] | None:
        """Middles of the cells of a grid over the domain, shape (n, d), feature units; None for any other grid."""
        if self.grid is None or self.grid.projection is not None:
            return None
        return self.grid.midpoints() * self.unit + self.frame.lattice.center

    def broadcast(self) -> "LloydState":
        """Returns the part of the state that statistics read: all but public points and releases."""
        return dataclasses.replace(self, server=self.server[:0], origins=None, releases=())

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.frame.lattice.center)

    @property
    def unit(self) -> float:
        """Feature units of one lattice step at SUM_BITS."""
        return self.frame.lattice.unit(lattice.SUM_BITS)

    @property
    def known_centers(self) -> NDArray[np.float64]:
        """`centers`; raises ValueError before the start has found them."""
        if self.centers is None:
            raise ValueError("the centers are unknown until the start is released; run its rounds first.")
        return self.centers

    @property
    def positions(self) -> NDArray[np.float64] | None:
        """Centers in feature units, shape (k, d); None before the start has found them."""
        return None if self.centers is None else self.centers * self.unit + self.frame.lattice.center

    @property
    def neighborhoods(self) -> Neighborhoods:
        """Centers and radius of the next round of relative sums."""
        return Neighborhoods(self.known_centers, self.radius, self.settings.options.shrinks)

    @property
    def sums_bound(self) -> int:
        """Lattice units: the largest norm of a unit's stacked relative sums, divided by its rows."""
        return max(1, int(self.settings.unit_radius * self.radius))

    @property
    def count_bound(self) -> float:
        """The largest norm of a unit's stacked counts, divided by its rows, in (0, 1]."""
        return 1.0

    def moved(
        self, sums: NDArray[np.float64], counts: NDArray[np.float64], stddev: float
    ) -> tuple[Self, NDArray[np.float64]]:
        """Returns the next state, without new centers, and their moves, shape (k, d), beyond what noise explains.

        Args:
          sums: shape (k, d), feature units: noisy, relative to the centers.
          counts: shape (k,), > 0.
          stddev: of the noise of one entry of `sums`.
        """
        found = moves.blended(sums, counts, stddev, self.subspace, self.errors)
        return dataclasses.replace(self, errors=found.errors), found.moves

    @property
    def subspace(self) -> NDArray[np.float64] | None:
        """Orthonormal basis, shape (d, n_dims), along which centers may differ; None if no release gives one."""
        return None

    @property
    def move_stddevs(self) -> NDArray[np.float64] | None:
        """Stddevs of the noise of the last Lloyd round, as in `ClusterModel`; None before it."""
        noisy = None if self.centers is None else last_means(self.releases, len(self.centers))
        return None if noisy is None else noisy.stddevs

    @property
    def counted(self) -> str:
        """Description of the rows that a size counts, as in `ClusterModel`."""
        radius = "" if self.settings.options.shrinks else f", and within {self.radius * self.unit:.4g} of it"
        return BEFORE_LAST_STEP + radius

    def model(self) -> ClusterModel:
        """Returns the released clustering; raises ValueError before a Lloyd round."""
        if self.sizes is None:
            raise ValueError("the model is unknown until a Lloyd round is released; run that round first.")
        middle, noisy = self.frame.lattice.center, last_means(self.releases, len(self.known_centers))
        origins = middle if self.origins is None else self.origins * self.unit + middle
        return ClusterModel(
            centers=self.known_centers * self.unit + middle,
            noisy_sizes=self.sizes,
            releases=self.releases,
            noisy_means=None if noisy is None else origins + noisy.means,
            size_stddevs=np.zeros(0) if noisy is None else np.full(len(self.sizes), noisy.counts_stddev),
            counted=self.counted,
            center_stddevs=np.zeros((0, 0)) if noisy is None else noisy.stddevs,
        )
