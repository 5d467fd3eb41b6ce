"""What travels through the round of a window: where each window's rows are measured from, and what it released."""

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
      anchors: integers, shape (n, k, d), lattice units at SUM_BITS: where rows of each age are measured from.
      radius: lattice units: the same in all windows of an epoch.
      earlier_sums: shape (n - 1, k, d), feature units: own parts of the windows before, by age from 1.
      earlier_counts: shape (n - 1, k), rows: likewise.
      age: of the rows at hand, while the statistic is formed.
      noisy: own sums and counts of this window, after the round.
      own_noise: by which factor their noise is above that of `noisy`, which takes windows for independent.
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
        """What one neighbor adds or removes."""
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
        """Integers, shape (k, d): where the rows of this window are measured from."""
        found: NDArray[np.float64] = self.anchors[0]
        return found

    @property
    def positions(self) -> NDArray[np.float64]:
        """`centers` in feature units."""
        return self.centers * self.unit + self.frame.lattice.center

    @property
    def cells(self) -> None:
        """No histogram is released over cells of a grid."""

    def broadcast(self) -> "WindowState":
        """What the statistic reads: no releases."""
        return dataclasses.replace(
            self, earlier_sums=self.earlier_sums[:0], earlier_counts=self.earlier_counts[:0], noisy=None, releases=()
        )

    def at(self, path: str) -> "WindowState":
        """The state for the rows of one file.

        Args:
          path: of the file; "" for the shard without rows.

        Raises:
          InputError: if it is in the folder of no window.
        """
        if not path:
            return self
        date = hive.folder_value(path, self.column) if hive.has_folder(path, self.column) else None
        if date not in self.dates:
            raise InputError(
                f"{path} must be in a folder {self.column}= of one of the windows, got another; check data.path."
            )
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
        """Of the noise of the window's own part, as of `ClusterModel`; None before the round."""
        return None if self.noisy is None else self.noisy.stddevs * self.own_noise

    def model(self) -> ClusterModel:
        """The clustering of this window alone; asked for after the round."""
        if self.noisy is None:
            raise ValueError("model must be asked for after the round; run it first.")
        return ClusterModel(
            centers=self.positions,
            noisy_sizes=self.noisy.counts,
            releases=self.releases,
            noisy_means=self.positions + self.noisy.means,
            size_stddevs=np.full(len(self.noisy.counts), self.noisy.counts_stddev * self.own_noise),
            counted="of this window alone, nearest to each center that it started from",
            center_stddevs=self.noisy.stddevs * self.own_noise,
        )
