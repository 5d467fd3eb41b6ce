"""State between the rounds of spherical k-means: public data, releases, and what was computed from them."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import Unit, unit_of
from dapple_dp.schemas.kmeans.model import AT_CENTERS, ClusterModel
from dapple_dp.schemas.kmeans.spherical_config import CLIENT_NORM, SphericalFit
from dapple_dp.schemas.privacy.meaning import Role
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.term_cells import CellLimits
from dapple_dp.transforms.numerics.kmeans.centers import released_as


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SphericalSettings:
    """Public parameters for server steps and statistics, all from the job's config.

    Attributes:
      unit: the privacy unit.
      n_clusters: k.
      fine_rounds: rounds with `FINE_CENTERS` centers for each cluster, which are then merged to k.
      limits: of a row's terms; None without names.
      seed: of public randomness.
    """

    unit: Unit
    n_clusters: int
    fine_rounds: int
    limits: CellLimits | None
    seed: int

    @classmethod
    def from_config(cls, config: SphericalFit) -> "SphericalSettings":
        """Creates the settings of a job."""
        seed, names, terms = (config.seed or 0) % 2**63, config.names, config.terms
        given, unit = config.server_data is not None, unit_of(config.privacy.unit, config.clipping.client_rows)
        return cls(
            unit=unit,
            n_clusters=config.max_clusters,
            fine_rounds=0 if given else config.spherical.n_steps // 2,
            limits=None if names is None or terms is None else CellLimits(len(terms.vocabulary), names.most_per_row),
            seed=seed,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SphericalState:
    """State that a round may broadcast; it depends on private rows only through `releases`.

    Attributes:
      settings: public parameters.
      frame: public frame of the run, around the origin.
      server: shape (0, d): public points are used before the first round only.
      centers: integers, shape (n_centers, d), lattice units at SUM_BITS, each as long as the clipping norm.
      totals: shape of `centers`, feature units: sums of the rounds so far, older ones with less weight.
      variance: of the noise of one number in them.
      step: number of rounds of sums so far.
      sizes: shape (k,): noisy counts, after the last round.
      releases: all so far, in order.
    """

    settings: SphericalSettings
    frame: Frame
    server: NDArray[np.float64]
    centers: NDArray[np.float64]
    totals: NDArray[np.float64]
    variance: float = 0.0
    step: int = 0
    sizes: NDArray[np.float64] | None = None
    releases: tuple[Release, ...] = ()

    @property
    def privacy_unit(self) -> Unit:
        """Unit that one neighbor adds or removes."""
        return self.settings.unit

    @property
    def cells(self) -> None:
        """None, since no histogram is released over cells of a grid."""

    def broadcast(self) -> "SphericalState":
        """Returns the part of the state that statistics read: all that rows are compared with."""
        return dataclasses.replace(self, totals=self.totals[:0], sizes=None, releases=())

    @property
    def unit(self) -> float:
        """Feature units of one lattice step at SUM_BITS."""
        return self.frame.lattice.unit(lattice.SUM_BITS)

    @property
    def assigner(self) -> Assigner:
        """Assigns rows to the center of the largest inner product: all are equally long, so it is the nearest one."""
        return Assigner(self.centers)

    @property
    def sums_bound(self) -> float:
        """Feature units: the largest norm of a unit's stacked mean rows."""
        return self.frame.lattice.clipping_norm * self.privacy_unit.share(CLIENT_NORM)

    @property
    def positions(self) -> NDArray[np.float64]:
        """Centers in feature units, shape (n_centers, d)."""
        return self.centers * self.unit

    def model(self) -> ClusterModel:
        """Returns the released clustering; raises ValueError before the round of sizes."""
        counts = released_as(self.releases, Role.CLUSTER_COUNTS)
        if self.sizes is None or counts is None:
            raise ValueError("the model is unknown until the sizes are released; run that round first.")
        moved = self._turned_by(math.sqrt(self.variance)) if self.variance else None
        return ClusterModel(
            centers=self.positions,
            noisy_sizes=self.sizes,
            releases=self.releases,
            size_stddevs=np.full(len(self.sizes), counts.stddev),
            counted=AT_CENTERS,
            center_stddevs=np.zeros((0, 0)) if moved is None else moved,
        )

    @property
    def move_stddevs(self) -> NDArray[np.float64] | None:
        """Stddevs of the noise of the last round of sums; None before it, and after centers were merged."""
        return self._turned_by(self.releases[-1].stddev) if self.variance and self.releases else None

    def _turned_by(self, stddev: float) -> NDArray[np.float64]:
        """Returns the stddev of each coordinate of each center from that of each number in `totals`, to first order."""
        lengths = np.maximum(np.linalg.norm(self.totals, axis=1), math.sqrt(self.variance))
        turned = self.frame.lattice.clipping_norm * stddev / lengths
        return np.repeat(turned[:, None], self.centers.shape[1], axis=1)
