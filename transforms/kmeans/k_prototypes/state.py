"""State between the rounds of k-prototypes: public data, releases, and numbers computed from them."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import Unit, unit_of
from dapple_dp.schemas.kmeans.lloyd_config import CLIENT_RADIUS
from dapple_dp.schemas.kmeans.model import BEFORE_LAST_STEP, ClusterModel
from dapple_dp.schemas.kmeans.prototypes_config import KPrototypesFit
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import Neighborhoods, stretch
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.k_prototypes.columns import Columns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeSettings:
    """Public parameters that server steps and statistics read; all from the job's config.

    Attributes:
      unit: the privacy unit.
      n_clusters: k.
      columns: places of numbers and codes.
      seed: of public randomness.
    """

    unit: Unit
    n_clusters: int
    columns: Columns
    seed: int

    @classmethod
    def from_config(cls, config: KPrototypesFit) -> "PrototypeSettings":
        """Settings of a job."""
        return cls(
            unit=unit_of(config.privacy.unit, config.clipping.client_rows),
            n_clusters=config.max_clusters,
            columns=Columns.of(config),
            seed=(config.seed or 0) % 2**63,
        )

    @property
    def radius(self) -> float:
        """To which differences of rows from their prototype are shortened, feature units.

        That of a row half the diagonal of the domain away in its numbers, and with other codes in every column.
        """
        return math.sqrt(len(self.columns.numbers) + 2.0 * len(self.columns.codes) * self.columns.length**2)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrototypeState:
    """Everything a round may broadcast: no private number but in `releases` and what follows from them.

    Attributes:
      settings: public parameters.
      frame: public frame of the run, around the middle of the domain, which is 0.
      server: shape (0, n_features): no public points are used.
      centers: integers, shape (n, n_features), lattice units at SUM_BITS: prototypes as rows have them, so that the
        nearest one is the one of the least distance of Huang's.
      origins: as `centers`, before the last round moved them; None before there are any of that round.
      counts: shape (n,): noisy sizes, likewise.
      histograms: shape (n, n_cells), rows (clients): noisy cells, likewise.
      releases: all so far, in order.
    """

    settings: PrototypeSettings
    frame: Frame
    server: NDArray[np.float64]
    centers: NDArray[np.float64]
    origins: NDArray[np.float64] | None = None
    counts: NDArray[np.float64] | None = None
    histograms: NDArray[np.float64] | None = None
    releases: tuple[Release, ...] = ()

    @property
    def privacy_unit(self) -> Unit:
        """Unit that one neighbor adds or removes."""
        return self.settings.unit

    @property
    def cells(self) -> None:
        """No histogram is released over cells of a grid."""

    def broadcast(self) -> "PrototypeState":
        """Returns the part of the state that statistics read: prototypes to compare rows with."""
        return dataclasses.replace(self, origins=None, counts=None, histograms=None, releases=())

    @property
    def unit(self) -> float:
        """Feature units of one lattice step at SUM_BITS."""
        return self.frame.lattice.unit(lattice.SUM_BITS)

    @property
    def around(self) -> Neighborhoods:
        """Prototypes and radius with which rows are compared."""
        radius = min(max(1, int(self.settings.radius / self.unit)), 2 * lattice.SUM_UNITS)
        return Neighborhoods(self.centers, radius, shortens=True)

    @property
    def bound(self) -> int:
        """Lattice units: the largest norm of a unit's stacked differences, divided by its rows."""
        return max(1, int(self.privacy_unit.share(CLIENT_RADIUS) * self.around.radius))

    @property
    def sums_unit(self) -> float:
        """Feature units of one lattice step of sums."""
        return self.unit / stretch(self.bound)

    @property
    def positions(self) -> NDArray[np.float64]:
        """Prototypes as rows have them, shape (n, n_features)."""
        return self.centers * self.unit

    @property
    def numbers(self) -> NDArray[np.float64]:
        """Numbers of the prototypes, shape (n, d)."""
        return self.centers[:, list(self.settings.columns.numbers)] * self.unit

    @property
    def modes(self) -> NDArray[np.int64]:
        """Codes of the prototypes, shape (n, m)."""
        return self.settings.columns.codes_of(self.centers * self.unit)

    def placed(self, numbers: NDArray[np.float64], modes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Prototypes of numbers (n, d) and codes (n, m) as `centers`: like rows, so in the domain."""
        return self.frame.quantize(self.settings.columns.features(numbers, modes), lattice.SUM_BITS)

    def weighed(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sizes, shape (n,), by cells (n, n_cells): those of every column add up to them, but for noise.

        The mean of the sums of the columns, with weights that are inverse to their noise.
        """
        weights = 1.0 / self.settings.columns.widths
        totals = np.stack([part.sum(axis=1) for part in self.settings.columns.by_column(cells)], axis=1)
        return totals @ (weights / weights.sum())

    def size_stddev(self, stddev: float) -> float:
        """Stddev of the noise of a size by that of a cell."""
        return stddev / math.sqrt(float((1.0 / self.settings.columns.widths).sum()))

    @property
    def known_counts(self) -> NDArray[np.float64]:
        """`counts`, at least the noise of one; raises ValueError before there are some."""
        if self.counts is None:
            raise ValueError("the sizes are unknown until a round of prototypes is released; run that round first.")
        return np.maximum(self.counts, self.size_stddev(self.releases[-1].stddev))

    def model(self) -> ClusterModel:
        """The released clustering; asked for after the last round.

        Its centers have modes, with which rows are compared; its noisy means have shares of codes in their places.
        """
        counts, columns = self.known_counts, self.settings.columns
        assert self.origins is not None  # which the last round has set
        assert self.counts is not None
        own = list(columns.numbers)
        means = columns.features(
            self.origins[:, own] * self.unit, np.broadcast_to(columns.widths - 1, self.modes.shape)
        )
        means[:, own] += self.releases[-2].decoded[:, own] / counts[:, None]
        for (first, size), shares in zip(columns.codes, columns.by_column(self._noisy_shares()), strict=True):
            means[:, first : first + size] = columns.length * shares[:, :size]
        return ClusterModel(
            centers=self.positions,
            noisy_sizes=self.counts,
            releases=self.releases,
            noisy_means=means,
            size_stddevs=np.full(len(counts), self.size_stddev(self.releases[-1].stddev)),
            counted=BEFORE_LAST_STEP,
            center_stddevs=np.zeros((0, 0)) if self.move_stddevs is None else self.move_stddevs,
        )

    def _noisy_shares(self) -> NDArray[np.float64]:
        """Cells over sizes, shape (n, n_cells): how frequent each code is, as the last round alone says it."""
        assert self.histograms is not None  # which the last round has set
        return self.histograms / self.known_counts[:, None]

    @property
    def move_stddevs(self) -> NDArray[np.float64] | None:
        """Standard deviations of the last noise in means of numbers and shares of codes, whose sizes are noisy, too."""
        if self.counts is None:
            return None
        columns, (sums, cells), counts = self.settings.columns, self.releases[-2:], self.known_counts
        found = np.repeat(sums.stddev / counts[:, None], columns.n_features, axis=1)
        weights = 1.0 / columns.widths
        parts = columns.by_column(np.clip(self._noisy_shares(), 0.0, 1.0))
        for (first, size), weight, shares in zip(columns.codes, weights, parts, strict=True):
            # Of a cell less its share of the size, which has a part of the noise of the cell.
            noise = cells.stddev * np.sqrt(1.0 - (2.0 * weight - shares) * shares / weights.sum())
            found[:, first : first + size] = columns.length * noise[:, :size] / counts[:, None]
        return found
