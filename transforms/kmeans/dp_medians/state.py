"""State between the rounds of k-medians: public data, releases, and what was computed from them."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import Unit, unit_of
from dapple_dp.schemas.kmeans.lloyd_config import CLIENT_RADIUS
from dapple_dp.schemas.kmeans.medians_config import FIRST_LENGTH, LEAST_RADIUS, DPMediansFit
from dapple_dp.schemas.kmeans.model import BEFORE_LAST_STEP, ClusterModel
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Frame


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MedianSettings:
    """Public parameters for server steps and statistics, all from the job's config.

    Attributes:
      unit: the privacy unit.
      half_side: of the domain, feature units.
      least_radius: in clipping norms; rows nearer to their center have no direction.
      first_length: first length of moves, in distances to the nearest other center.
    """

    unit: Unit
    half_side: float
    least_radius: float
    first_length: float

    @classmethod
    def from_config(cls, config: DPMediansFit) -> "MedianSettings":
        """Creates the settings of a job."""
        low, high = config.dp_lloyd.interval
        return cls(
            unit=unit_of(config.privacy.unit, config.clipping.client_rows),
            half_side=0.5 * (high - low),
            least_radius=LEAST_RADIUS,
            first_length=FIRST_LENGTH,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MedianState:
    """State that a round may broadcast; it depends on private rows only through `releases`.

    Attributes:
      settings: public parameters.
      frame: public frame of the run; its center is the middle of the domain.
      server: shape (0, d): no public points are used.
      centers: integers, shape (k, d), lattice units at SUM_BITS.
      lengths: shape (k,), feature units: move of each center if all its rows lie in one direction.
      last: shape (k, d): directions in which the last round moved centers; None before it.
      sizes: shape (k,): noisy counts, after a round.
      releases: all so far, in order.
    """

    settings: MedianSettings
    frame: Frame
    server: NDArray[np.float64]
    centers: NDArray[np.float64]
    lengths: NDArray[np.float64]
    last: NDArray[np.float64] | None = None
    sizes: NDArray[np.float64] | None = None
    releases: tuple[Release, ...] = ()

    @property
    def privacy_unit(self) -> Unit:
        """Unit that one neighbor adds or removes."""
        return self.settings.unit

    @property
    def cells(self) -> None:
        """None, since no histogram is released over cells of a grid."""

    def broadcast(self) -> "MedianState":
        """Returns the part of the state that statistics read: all that rows are compared with."""
        return dataclasses.replace(self, last=None, releases=())

    @property
    def unit(self) -> float:
        """Feature units of one lattice step at SUM_BITS."""
        return self.frame.lattice.unit(lattice.SUM_BITS)

    @property
    def positions(self) -> NDArray[np.float64]:
        """Centers in feature units, shape (k, d)."""
        return self.centers * self.unit + self.frame.lattice.center

    @property
    def least_radius(self) -> int:
        """Radius in lattice units within which rows have no direction."""
        return max(1, int(self.settings.least_radius * lattice.SUM_UNITS))

    @property
    def directions_bound(self) -> float:
        """The largest norm of a unit's stacked mean directions: 1 for a row."""
        return self.privacy_unit.share(CLIENT_RADIUS)

    def model(self) -> ClusterModel:
        """Returns the released clustering; raises ValueError before a round of medians.

        The noise of its centers is unknown. The noise of all moves adds up, and its size depends on how dense rows
        are around their median and how far off the start was, which no release tells.
        """
        if self.sizes is None:
            raise ValueError("the model is unknown until a round of medians is released; run that round first.")
        return ClusterModel(
            centers=self.positions,
            noisy_sizes=self.sizes,
            releases=self.releases,
            size_stddevs=np.full(len(self.sizes), self.releases[-1].stddev),
            counted=BEFORE_LAST_STEP,
        )

    @property
    def move_stddevs(self) -> NDArray[np.float64] | None:
        """Stddevs of the noise of the last move alone, without the errors of earlier moves; None before it."""
        if self.sizes is None:
            return None
        directions, counts = self.releases[-2:]
        moved = self.lengths * directions.stddev / np.maximum(self.sizes, counts.stddev)
        return np.repeat(moved[:, None], self.centers.shape[1], axis=1)
