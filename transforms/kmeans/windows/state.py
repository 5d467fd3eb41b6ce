"""State in the round of a window: the anchors that each window's rows are measured from, and its release."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import Unit
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans
from dapple_dp.transforms.tables import hive


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowState:
    """State of one window; ages count windows back from it.

    Attributes:
      settings: public parameters of DP-Lloyd.
      frame: public frame of the epoch.
      server: shape (0, d): no public points are used.
      column: partition column of the dates.
      dates: of the windows, by age.
      anchors: integers, shape (n, k, d), lattice units at SUM_BITS: points from which rows of each age are measured.
      radius: lattice units: the same in all windows of an epoch.
      earlier_sums: shape (n - 1, k, d), feature units: own parts of the windows before, by age from 1.
      earlier_counts: shape (n - 1, k), rows: likewise.
      age: of the current rows, while the statistic is computed.
      noisy: own sums and counts of this window, after the round.
      own_noise: factor of their noise over that of `noisy`, which assumes independent windows.
      releases: of the round.
    """

    settings: LloydSettings
    frame: Frame
    server: NDArray[np.float64]
    column: str
    dates: tuple[str, ...]
    anchors: NDArray[np.float64]
    radius: int
    earlier_sums: NDArray[np.float64]
    earlier_counts: NDArray[np.float64]
    age: int = 0
    noisy: NoisyMeans | None = None
    own_noise: float = 1.0
    releases: tuple[Release, ...] = ()

    @property
    def privacy_unit(self) -> Unit:
        """Unit that one neighbor adds or removes."""
        return self.settings.unit

    @property
    def unit(self) -> float:
        """Feature units of one lattice step at SUM_BITS."""
        return self.frame.lattice.unit(lattice.SUM_BITS)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.frame.lattice.center)

    @property
    def centers(self) -> NDArray[np.float64]:
        """Centers of this window, from which its rows are measured; integers, shape (k, d)."""
        result: NDArray[np.float64] = self.anchors[0]
        return result

    @property
    def positions(self) -> NDArray[np.float64]:
        """`centers` in feature units."""
        return self.centers * self.unit + self.frame.lattice.center

    @property
    def cells(self) -> None:
        """None, since no histogram is released over cells of a grid."""

    def broadcast(self) -> "WindowState":
        """Returns the part of the state that the statistic reads: all but releases."""
        return dataclasses.replace(
            self, earlier_sums=self.earlier_sums[:0], earlier_counts=self.earlier_counts[:0], noisy=None, releases=()
        )

    def at(self, path: str) -> "WindowState":
        """Returns the state for the rows of one file.

        Args:
          path: of the file; "" for the shard without rows.

        Raises:
          InputError: if the file is in the folder of no window.
        """
        if not path:
            return self
        date = hive.folder_value(path, self.column) if hive.has_folder(path, self.column) else None
        if date not in self.dates:
            raise InputError(f"{path} is not in a folder {self.column}= of one of the windows; check data.path.")
        return dataclasses.replace(self, age=self.dates.index(date))

    @property
    def neighborhoods(self) -> Neighborhoods:
        """Centers and radius for rows of `age`."""
        return Neighborhoods(self.anchors[self.age], self.radius, self.settings.options.shrinks)

    @property
    def sums_bound(self) -> int:
        """Lattice units: the largest norm of a unit's stacked relative sums, divided by its rows of one window."""
        return max(1, int(self.settings.unit_radius * self.radius))

    @property
    def move_stddevs(self) -> NDArray[np.float64] | None:
        """Stddevs of the noise of the window's own part, as in `ClusterModel`; None before the round."""
        return None if self.noisy is None else self.noisy.stddevs * self.own_noise

    def model(self) -> ClusterModel:
        """Returns the clustering of this window alone; raises ValueError before the round."""
        if self.noisy is None:
            raise ValueError("the model is unknown until the round is released; run it first.")
        return ClusterModel(
            centers=self.positions,
            noisy_sizes=self.noisy.counts,
            releases=self.releases,
            noisy_means=self.positions + self.noisy.means,
            size_stddevs=np.full(len(self.noisy.counts), self.noisy.counts_stddev * self.own_noise),
            counted="of this window alone, nearest to each of the centers at its start",
            center_stddevs=self.noisy.stddevs * self.own_noise,
        )
