"""Statistics of a block by privacy unit: `rows` and `clients` have the same functions, and here one of them is chosen.

Every function bounds what one unit adds and sums it over the units of a block; the constants say by how much one unit
moves each, and `tests/property/kmeans/test_sensitivity.py` shows that they are true. A row is its own mean, so a bound
that may be less for the mean of several rows is that of a single row there.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.privacy.unit import Clients, Rows, Unit
from schemas.tables.client_block import ClientBlock
from transforms.numerics.statistics import clients, rows
from transforms.numerics.statistics.assignment import RowLabels
from transforms.numerics.statistics.frame import Frame
from transforms.numerics.statistics.relative_sums import Neighborhoods
from transforms.numerics.statistics.term_cells import CellLimits


class UnitStatistics(Protocol):
    """What both modules have; arguments and results are described there, bounds are public.

    Attributes:
      OUTER_SENSITIVITY: of `outer_product`, in the Frobenius norm.
      SUM_SENSITIVITY: of the sums in `sums_and_counts`, in L2.
      COUNT_SENSITIVITY: of counts and histograms.
      RELATIVE_SENSITIVITY: of the sums in `relative_sums`, in L2.
      DIRECTION_SENSITIVITY: of the sums in `direction_sums`, in L2.
      TERMS_SENSITIVITY: of `term_cells`, in L2.
      QUALITY_SENSITIVITY: of the cost and of the sizes in `quality`, and of `gain`.
    """

    OUTER_SENSITIVITY: int
    SUM_SENSITIVITY: int
    COUNT_SENSITIVITY: int
    RELATIVE_SENSITIVITY: int
    DIRECTION_SENSITIVITY: int
    TERMS_SENSITIVITY: int
    QUALITY_SENSITIVITY: int

    def mean_sums_and_counts(
        self, block: ClientBlock, frame: Frame, assigner: RowLabels, sums_bound: float, counts_bound: float, /
    ) -> NDArray[np.int64]:
        """Fractions of a unit's rows, both parts clipped by one factor."""

    def means_of_means(
        self, block: ClientBlock, frame: Frame, assigner: RowLabels, sums_bound: float, counts_bound: float, /
    ) -> NDArray[np.int64]:
        """Means by cluster, and the clusters that have rows."""

    def clipped_sums_and_counts(
        self, block: ClientBlock, frame: Frame, assigner: RowLabels, sums_bound: float, counts_bound: float, /
    ) -> NDArray[np.int64]:
        """All rows of a unit, each part clipped on its own."""

    def count(self, block: ClientBlock) -> NDArray[np.int64]:
        """Number of units."""

    def outer_product(self, block: ClientBlock, frame: Frame, bound: float, *, relative: bool) -> NDArray[np.int64]:
        """Scatter (upper triangle)."""

    def histogram(
        self, block: ClientBlock, frame: Frame, assigner: RowLabels, bound: float, *, relative: bool
    ) -> NDArray[np.int64]:
        """Rows per bin."""

    def relative_sums(
        self, block: ClientBlock, frame: Frame, neighborhoods: Neighborhoods, bound: int, count_bound: float = 1.0
    ) -> NDArray[np.int64]:
        """Sums of differences to the nearest center, then counts."""

    def direction_sums(
        self, block: ClientBlock, frame: Frame, centers: NDArray[np.float64], least_radius: int, bound: float, /
    ) -> NDArray[np.int64]:
        """Sums of directions from the nearest center, then counts."""

    def term_cells(
        self, block: ClientBlock, frame: Frame, assigner: RowLabels, limits: CellLimits
    ) -> NDArray[np.int64]:
        """Units per cell of a cluster and a term, at most this many cells of each."""

    def norm_histogram(self, block: ClientBlock, center: NDArray[np.float64]) -> NDArray[np.int64]:
        """Rows per bin of their norm."""

    def quality(self, block: ClientBlock, frame: Frame, centers: NDArray[np.float64], bound: int) -> NDArray[np.int64]:
        """Cost of the centers, then rows per nearest center."""

    def gain(
        self, block: ClientBlock, frame: Frame, before: NDArray[np.float64], after: NDArray[np.float64], bound: int, /
    ) -> NDArray[np.int64]:
        """By how much nearer a unit's rows are to other centers."""


STATISTICS: dict[type[Unit], UnitStatistics] = {Rows: rows, Clients: clients}


def of_unit(unit: Unit) -> UnitStatistics:
    """Statistics of which one unit moves each by at most its sensitivity."""
    return STATISTICS[type(unit)]
