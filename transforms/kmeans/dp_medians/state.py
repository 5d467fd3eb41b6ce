"""What travels between the rounds of k-medians: public data, releases, and what was computed from them."""

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
    """Public parameters that server steps and statistics read; all from the job's config.

    Attributes:
      unit: the privacy unit.
      half_side: of the domain, feature units.
      least_radius: in clipping norms: rows nearer to their center have no direction.
      first_length: of moves, in distances to the nearest other center.
    """

    unit: Unit
    half_side: float
    least_radius: float
    first_length: float

    @classmethod
    def from_config(cls, config: DPMediansFit) -> "MedianSettings":
        """Settings of a job."""
        low, high = config.dp_lloyd.interval
        return cls(
            unit=unit_of(config.privacy.unit, config.clipping.client_rows),
            half_side=0.5 * (high - low),
            least_radius=LEAST_RADIUS,
            first_length=FIRST_LENGTH,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MedianState:
    """Everything a round may broadcast: no private number but in `releases` and what follows from them.

    Attributes:
      settings: public parameters.
      frame: public frame of the run; its center is the middle of the domain.
      server: shape (0, d): no public points are used.
      centers: integers, shape (k, d), lattice units at SUM_BITS.
      lengths: shape (k,), feature units: how far each center moves if all its rows lie in one direction.
      last: shape (k, d): along what the last round moved each center; None before it.
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
        """What one neighbor adds or removes."""
        return self.settings.unit

    @property
    def cells(self) -> None:
        """No histogram is released over cells of a grid."""

    def broadcast(self) -> "MedianState":
        """What statistics read of the state: what the rows are compared with."""
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
        """Lattice units: rows nearer to their center have no direction."""
        return max(1, int(self.settings.least_radius * lattice.SUM_UNITS))

    @property
    def directions_bound(self) -> float:
        """The largest norm of a unit's stacked mean directions: 1 for a row."""
        return self.privacy_unit.share(CLIENT_RADIUS)

    def model(self) -> ClusterModel:
        """The released clustering; asked for after the last round.

        The noise of its centers is unknown. Noise of all moves carries a center, and how far depends on how dense rows
        are around their median and how far off the start was, of which no release says anything.
        """
        if self.sizes is None:
            raise ValueError("model must be asked for after a round of medians; run that round first.")
        return ClusterModel(
            centers=self.positions,
            noisy_sizes=self.sizes,
            releases=self.releases,
            size_stddevs=np.full(len(self.sizes), self.releases[-1].stddev),
            counted=BEFORE_LAST_STEP,
        )

    @property
    def move_stddevs(self) -> NDArray[np.float64] | None:
        """Of the last move alone, which says nothing of how far the moves before it went astray; None before it."""
        if self.sizes is None:
            return None
        directions, counts = self.releases[-2:]
        moved = self.lengths * directions.stddev / np.maximum(self.sizes, counts.stddev)
        return np.repeat(moved[:, None], self.centers.shape[1], axis=1)
