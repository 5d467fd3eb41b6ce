"""Names of clusters: terms that are more frequent in a cluster than among all rows, by more than noise explains.

This post-processes two releases: noisy sizes of clusters, and noisy counts for each cluster and term. Both count
rows, with a total weight of 1 for a unit's rows: a row weighs 1 at unit record, and 1 / R for a client of R rows. A
row has a term if it is among the first `names.most_per_row` different known terms of its list, and then counts with
all of its weight, regardless of its other terms. A name is false if n <= h * N: rows of the cluster that have the term
weigh n, all that have it weigh N, and the rows of the cluster weigh a share h of all. At most `FALSE_NAMES` false
ones are expected in a whole run, for any rows:

- Given sizes, count - g * (counts of the term) has mean n - g * N and noise of stddev * sqrt((1 - g)^2 + (k - 1) * g^2)
  for any g that follows from sizes alone, since counts have a noise of their own. If g >= h then this mean is at most 0
  where a name would be false, and one of k * V cells is above `threshold` of these stddevs with odds of
  (1 - OF_SHARES) * FALSE_NAMES / (k * V). Where the sum of noisy counts is below 0 it is taken for 0, which makes the
  difference smaller.
- g is below h in one cluster with odds of OF_SHARES * FALSE_NAMES / (k * MOST_NAMES) (`largest_shares`), and then that
  cluster has `MOST_NAMES` false ones at most.

Noise is discrete, with a stddev of 2^10 lattice steps or more. So a tail from z stddevs has the odds of the normal
law, but for a factor of about 1 + z / 2^11. At unit record the integers that are noised are exact. Shares of clients
are rounded: n and N are off by less than a lattice step of counts for each client, and the share of a cluster by
sizes is below h by less than 2^-20. So n - g * N is off by less than 3 steps for each client, and a name must be
`ROUNDING` steps for each above the threshold. There are as many clients as noisy sizes add up to and 10 stddevs of
that sum, at most, but for a part of k / 2^20, by which truncated shares of a client may be below 1 together: hence 4
steps and not 3.
"""

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.model import ClusterNames
from dapple_dp.schemas.kmeans.spherical_config import SphericalFit
from dapple_dp.schemas.privacy.meaning import Role
from dapple_dp.transforms.core.statistics.term_cells import CellLimits
from dapple_dp.transforms.numerics.kmeans.centers import released_as

FALSE_NAMES = 0.05
"""Largest expected number of names in a whole run that are due to noise alone."""
OF_SHARES = 0.2
"""Part of these due to the noise of sizes, which hides how large clusters are; the noise of counts causes the rest."""
MOST_NAMES = 5
"""Most names of a cluster."""
ROUNDING = 4
"""Lattice steps of counts for each client by which a name must be above the threshold."""


def threshold(n_cells: int) -> float:
    """Returns the stddevs that noise exceeds in an expected (1 - `OF_SHARES`) * `FALSE_NAMES` of this many cells."""
    return _exceeded_by((1.0 - OF_SHARES) * FALSE_NAMES / max(n_cells, 1))


def _exceeded_by(probability: float) -> float:
    """Returns the stddevs that a normal variable exceeds with this probability."""
    return -statistics.NormalDist().inv_cdf(probability)


def cluster_names(config: SphericalFit, releases: Sequence[Release]) -> ClusterNames | None:
    """Returns the names that the releases of a run give; None for a job without names.

    Args:
      config: the job, with the terms of its vocabulary.
      releases: of the run, with their units.
    """
    if config.terms is None:
        return None
    terms, sizes = (released_as(releases, role) for role in (Role.CLUSTER_TERMS, Role.CLUSTER_COUNTS))
    if terms is None or sizes is None:
        raise ValueError("a job with names needs releases of terms and sizes of clusters; pass those of its run.")
    units = CellLimits(len(config.terms.vocabulary), config.terms.most).cell_units
    step = 0.0 if config.privacy.unit is PrivacyUnit.RECORD else ROUNDING / units
    return named(terms.decoded, terms.stddev, sizes.decoded, sizes.stddev, config.terms.vocabulary, step)


def named(
    counts: NDArray[np.float64],
    stddev: float,
    sizes: NDArray[np.float64],
    size_stddev: float,
    vocabulary: Sequence[str],
    rounding: float = 0.0,
) -> ClusterNames:
    """Names clusters by noisy counts.

    Args:
      counts: shape (k, V): units per cluster and term.
      stddev: of the noise of each.
      sizes: shape (k,): units per cluster.
      size_stddev: of the noise of each.
      vocabulary: the V terms.
      rounding: units by which a name must be above the threshold, for each unit.
    """
    least = threshold(counts.size)
    positive = np.maximum(sizes, 0.0)
    excess = excesses(counts, positive / max(float(positive.sum()), size_stddev, 1e-300))
    largest = largest_shares(sizes, size_stddev)
    # Sizes have noise of their own: given them, the noise of these differences is exactly that of counts.
    deviation = stddev * np.sqrt((1.0 - largest) ** 2 + largest**2 * (len(sizes) - 1))
    most_units = float(positive.sum()) + 10.0 * len(sizes) ** 0.5 * size_stddev
    above = excesses(counts, largest) > least * deviation[:, None] + rounding * most_units
    strength = np.where(above, excess, -np.inf)
    order = np.argsort(-strength, axis=1, kind="stable")[:, :MOST_NAMES]
    clusters, places = np.nonzero(np.take_along_axis(above, order, axis=1))
    found = order[clusters, places]
    return ClusterNames(
        clusters=clusters,
        terms=tuple(vocabulary[index] for index in found),
        counts=counts[clusters, found],
        excess=excess[clusters, found],
        count_stddev=stddev,
        threshold=least,
        most_false=FALSE_NAMES,
    )


def excesses(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the units by which each cell (k, V) exceeds its cluster's share (k,) of all that have the term."""
    return counts - shares[:, None] * np.maximum(counts.sum(axis=0), 0.0)


def largest_shares(sizes: NDArray[np.float64], stddev: float) -> NDArray[np.float64]:
    """Returns the largest share of all units that each cluster may have by noisy sizes; exceeded with small odds.

    A share h is possible if size - h * (sum of sizes), of mean 0 where h is true, is above -z times its stddev. Each of
    k clusters may get `MOST_NAMES` false names if its share is larger, so z is such that `OF_SHARES` of
    `FALSE_NAMES` are expected of that. Source: Fieller (1954), "Some problems in interval estimation".

    Args:
      sizes: shape (k,), noisy.
      stddev: of the noise of each.

    Returns:
      Shape (k,), from 0 to 1.
    """
    if len(sizes) == 1:
        # The roots below are 1 but for rounding, which a count would be tested against.
        return np.ones(1)
    variance = (_exceeded_by(OF_SHARES * FALSE_NAMES / (len(sizes) * MOST_NAMES)) * stddev) ** 2
    total = float(sizes.sum())
    # The larger root of (size - h * total)**2 = variance * ((1 - h)**2 + (k - 1) * h**2).
    square, half, rest = total**2 - len(sizes) * variance, sizes * total - variance, sizes**2 - variance
    if total <= 0.0 or square <= 0.0:
        return np.ones(len(sizes))
    return np.clip((half + np.sqrt(np.maximum(half**2 - square * rest, 0.0))) / square, 0.0, 1.0)
