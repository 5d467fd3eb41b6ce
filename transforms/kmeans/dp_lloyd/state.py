"""What travels between the rounds of DP-Lloyd: public data, releases, and what was computed from them."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from schemas.kmeans.model import ClusterModel
from schemas.privacy.release import Release
from schemas.privacy.unit import Unit
from transforms.kmeans.lloyd.box import LloydSettings
from transforms.numerics.kmeans.noisy_means import last_means
from transforms.numerics.kmeans.starts.grid import Grid
from transforms.numerics.statistics import lattice
from transforms.numerics.statistics.frame import Frame
from transforms.numerics.statistics.relative_sums import Neighborhoods

KMEANS_RESTARTS = 10
"""Restarts of k-means on the cells of a grid."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LloydState:
    """Everything a round may broadcast: no private number but in `releases` and what follows from them.

    Attributes:
      settings: public parameters.
      frame: public frame of the run; its center is the middle of the domain.
      server: shape (q, d), feature units: public points, where the start uses some.
      centers: integers, shape (k, d), lattice units at SUM_BITS; None before a private start has found them.
      radius: lattice units: radius of the next round of relative sums.
      n_rows: public or noisy number of rows (clients); None before it is known.
      origins: as `centers`: from where the last round measured its sums; None for the middle of the domain.
      sizes: shape (k,): noisy counts, after a Lloyd round.
      mean: integers, shape (d,), lattice units: noisy mean of the rows, after the round that finds it.
      near: frame around that mean in which the scatter is formed.
      grid: cells of the next histogram.
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
    releases: tuple[Release, ...] = ()

    @property
    def privacy_unit(self) -> Unit:
        """What one neighbor adds or removes."""
        return self.settings.unit

    def broadcast(self) -> "LloydState":
        """What statistics read of the state: all but public points and releases."""
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
            raise ValueError("centers must be asked for after the start; run its rounds first.")
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

    @property
    def subspace(self) -> NDArray[np.float64] | None:
        """Orthonormal basis, shape (d, n_dims), in which centers are taken to move most; None where none is known."""
        return None

    def model(self) -> ClusterModel:
        """The released clustering; asked for after the last round."""
        if self.sizes is None:
            raise ValueError("model must be asked for after a Lloyd round; run that round first.")
        middle, noisy = self.frame.lattice.center, last_means(self.releases, len(self.known_centers))
        origins = middle if self.origins is None else self.origins * self.unit + middle
        return ClusterModel(
            centers=self.known_centers * self.unit + middle,
            noisy_sizes=self.sizes,
            releases=self.releases,
            noisy_means=None if noisy is None else origins + noisy.means,
        )
