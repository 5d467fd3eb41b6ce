"""Releases of protocols before calibration: their sensitivities, and what sampled rows make of these."""

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
"""A scatter around anything, of anything."""
LENGTHS = dataclasses.replace(SPREAD, role=Role.SQUARED_LENGTHS)
"""A scatter of rows (of the means of outer products of clients' rows) around the frame's center."""


def triangle_size(n_features: int) -> int:
    """Entries of the upper triangle, diagonal included."""
    return n_features * (n_features + 1) // 2


def histogram_of(tells: str, role: Role = Role.OTHER) -> Meaning:
    """Meaning of how many rows (clients) fall into each of some parts."""
    return Meaning(tells=tells, role=role, replaced=Replaced.LEFT)


def counting_mechanism(config: FitConfig) -> Mechanism:
    """Noise of counts and histograms: the paper's is Laplace."""
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
    """A release whose sensitivity is a plain norm of the lattice: of sums of rows, or of counts."""
    return ReleaseSpec(
        name=name, shape=shape, mechanism=mechanism, sensitivity=lattice.SUM_UNITS, share=share, meaning=meaning
    )


def scatter_spec(
    n_features: int, share: float, geometry: Geometry = Geometry.SYMMETRIC, *, meaning: Meaning = SPREAD
) -> ReleaseSpec:
    """The upper triangle of an outer product, with Gaussian noise.

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
    """The rounds with larger sensitivities where rows of a client are sampled; as they are elsewhere."""
    return tuple(map(_for_sampled_rows, specs)) if samples_rows(config) else tuple(specs)


def samples_rows(config: FitConfig) -> bool:
    """Whether one row decides on another: a client over its bound loses a row and shows the next one instead."""
    return config.privacy.unit is PrivacyUnit.RECORD and config.data.max_rows_per_client is not None


def _for_sampled_rows(spec: RoundSpec) -> RoundSpec:
    """The round when one added row may replace another, so that neighbors differ by a row more and a row less."""
    releases = tuple(dataclasses.replace(each, sensitivity=_replacing(each)) for each in spec.releases)
    return dataclasses.replace(spec, releases=releases)


def _replacing(spec: ReleaseSpec) -> int:
    """Sensitivity when one row takes the place of another.

    By what each release says of itself; in L1 it is twice as far whatever it says.
    """
    if meaning_of(spec).replaced is Replaced.BOUNDED:
        return spec.sensitivity
    if meaning_of(spec).replaced is Replaced.TURNED or spec.mechanism is Mechanism.DISCRETE_LAPLACE:
        return 2 * spec.sensitivity
    return math.isqrt(2 * spec.sensitivity**2) + 1


def allocation_as_asked(config: FitConfig) -> Allocation:
    """How the shares of releases become noise, as the job says it."""
    return config.privacy.allocation
