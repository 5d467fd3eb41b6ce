"""Chooses the statistics of a privacy unit: `rows` and `clients` have the same functions.

Each function bounds what one unit adds and sums it over the units of a block. The constants are these bounds, and
`tests/property/kmeans/test_sensitivity.py` checks them.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.unit import Clients, Rows, Unit
from dapple_dp.transforms.core.statistics import clients, rows

Statistic = Callable[..., NDArray[np.int64]]


class UnitStatistics(Protocol):
    """Functions of `rows` and `clients`, which describe them, below the sensitivity of each."""

    OUTER_SENSITIVITY: int
    outer_product: Statistic
    SUM_SENSITIVITY: int
    mean_sums_and_counts: Statistic
    means_of_means: Statistic
    clipped_sums_and_counts: Statistic
    COUNT_SENSITIVITY: int
    count: Statistic
    histogram: Statistic
    norm_histogram: Statistic
    RELATIVE_SENSITIVITY: int
    relative_sums: Statistic
    DIRECTION_SENSITIVITY: int
    direction_sums: Statistic
    TERMS_SENSITIVITY: int
    term_cells: Statistic
    QUALITY_SENSITIVITY: int
    quality: Statistic
    gain: Statistic


STATISTICS: dict[type[Unit], UnitStatistics] = {Rows: rows, Clients: clients}


def of_unit(unit: Unit) -> UnitStatistics:
    """Statistics of which one unit moves each by at most its sensitivity."""
    return STATISTICS[type(unit)]
