"""Releases of protocols before calibration, with their sensitivities, also for sampled rows."""

import dataclasses
import math
from collections.abc import Iterable

from dapple_dp.schemas.core.plan import Allocation, Geometry, Mechanism, PrivacyUnit, ReleaseSpec, RoundSpec
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Replaced, Role, meaning_of
from dapple_dp.transforms.core.statistics import lattice, rows

SUMS = Meaning(tells="where each center lies", role=Role.CLUSTER_SUMS, quantity=Quantity.LENGTH)
"""Sums of rows by cluster."""
COUNTS = Meaning(tells="how large each cluster is", role=Role.CLUSTER_COUNTS, replaced=Replaced.LEFT)
MIDDLE = Meaning(tells="where the middle of the data lies", quantity=Quantity.LENGTH)
N_UNITS = Meaning(tells="how many there are", role=Role.UNITS, replaced=Replaced.LEFT)
SPREAD = Meaning(tells="directions in which the data spread", quantity=Quantity.SQUARE, replaced=Replaced.LEFT)
"""Meaning of a scatter of anything, around anything."""
LENGTHS = dataclasses.replace(SPREAD, role=Role.SQUARED_LENGTHS)
"""Meaning of a scatter of rows (of the means of outer products of clients' rows) around the frame's center."""


def triangle_size(n_features: int) -> int:
    """Returns the number of entries of the upper triangle, diagonal included."""
    return n_features * (n_features + 1) // 2


def histogram_of(tells: str, role: Role = Role.OTHER) -> Meaning:
    """Returns the meaning of a histogram of rows (clients)."""
    return Meaning(tells=tells, role=role, replaced=Replaced.LEFT)


def counting_mechanism(config: FitConfig) -> Mechanism:
    """Returns the mechanism for counts and histograms; the paper's is Laplace."""
    tuned = config.privacy.allocation is Allocation.TUNED
    return Mechanism.DISCRETE_GAUSSIAN if tuned else Mechanism.DISCRETE_LAPLACE


def vector_spec(
    name: str,
    shape: tuple[int, ...],
    share: float,
    mechanism: Mechanism = Mechanism.DISCRETE_GAUSSIAN,
    *,
    meaning: Meaning,
) -> ReleaseSpec:
    """Creates a release of sums of rows or of counts, whose sensitivity is the lattice's plain norm."""
    return ReleaseSpec(
        name=name, shape=shape, mechanism=mechanism, sensitivity=lattice.SUM_UNITS, share=share, meaning=meaning
    )


def scatter_spec(
    n_features: int, share: float, geometry: Geometry = Geometry.SYMMETRIC, *, meaning: Meaning = SPREAD
) -> ReleaseSpec:
    """Creates the release of the upper triangle of an outer product, with Gaussian noise.

    Its sensitivity holds for the Frobenius norm of the matrix, and so for the norm of the triangle as a vector, too.
    """
    return ReleaseSpec(
        name="scatter",
        shape=(triangle_size(n_features),),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=rows.OUTER_SENSITIVITY,
        share=share,
        geometry=geometry,
        meaning=meaning,
    )


def for_sampled_rows(config: FitConfig, specs: Iterable[RoundSpec]) -> tuple[RoundSpec, ...]:
    """Returns the rounds with larger sensitivities if rows of a client are sampled; unchanged otherwise."""
    return tuple(map(_for_sampled_rows, specs)) if samples_rows(config) else tuple(specs)


def samples_rows(config: FitConfig) -> bool:
    """Returns whether one row affects another: a client over its limit loses a row and shows the next one instead."""
    return config.privacy.unit is PrivacyUnit.RECORD and config.data.max_rows_per_client is not None


def _for_sampled_rows(spec: RoundSpec) -> RoundSpec:
    """Returns the round if one added row may replace another, so that neighbors differ by a row more and a row less."""
    releases = tuple(dataclasses.replace(release, sensitivity=_replacing(release)) for release in spec.releases)
    return dataclasses.replace(spec, releases=releases)


def _replacing(spec: ReleaseSpec) -> int:
    """Returns the sensitivity if one row takes the place of another.

    It follows from the release's meaning; in L1 it is always twice as large.
    """
    if meaning_of(spec).replaced is Replaced.BOUNDED:
        return spec.sensitivity
    if meaning_of(spec).replaced is Replaced.TURNED or spec.mechanism is Mechanism.DISCRETE_LAPLACE:
        return 2 * spec.sensitivity
    return math.isqrt(2 * spec.sensitivity**2) + 1


def allocation_as_asked(config: FitConfig) -> Allocation:
    """Returns the allocation that the job asks for."""
    return config.privacy.allocation
