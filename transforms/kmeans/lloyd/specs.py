"""Releases of protocols before calibration: their sensitivities, and what sampled rows make of these."""

import dataclasses
import math
from collections.abc import Iterable

from schemas.kmeans.fit_config import FitConfig
from schemas.privacy.plan import Geometry, Mechanism, PrivacyUnit, ReleaseSpec, RoundSpec
from transforms.kmeans.lloyd import quality
from transforms.numerics.statistics import lattice, rows

VECTORS = ("sums", "directions")
"""Names of releases whose parts may turn around, so that one row in place of another moves them twice as far."""


def vector_spec(
    name: str, shape: tuple[int, ...], share: float, mechanism: Mechanism = Mechanism.DISCRETE_GAUSSIAN
) -> ReleaseSpec:
    """A release whose sensitivity is a plain norm of the lattice: of sums of rows, or of counts."""
    return ReleaseSpec(name=name, shape=shape, mechanism=mechanism, sensitivity=lattice.SUM_UNITS, share=share)


def scatter_spec(n_features: int, share: float, geometry: Geometry = Geometry.SYMMETRIC) -> ReleaseSpec:
    """The upper triangle of an outer product, with Gaussian noise.

    Its sensitivity holds for the Frobenius norm of the matrix, and so for the norm of the triangle as a vector, too.
    """
    return ReleaseSpec(
        name="scatter",
        shape=(rows.triangle_size(n_features),),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=rows.OUTER_SENSITIVITY,
        share=share,
        geometry=geometry,
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

    Sums may move by twice the norm of a row, and so may any L1 norm. Counts leave one bin for another, and two
    outer products have a non-negative inner product: both move by at most sqrt(2) times as far in L2. Costs lie
    between zero and their bound, and so does the distance of two of them.
    """
    if spec.name == quality.COST:
        return spec.sensitivity
    if spec.name in VECTORS or spec.mechanism is Mechanism.DISCRETE_LAPLACE:
        return 2 * spec.sensitivity
    return math.isqrt(2 * spec.sensitivity**2) + 1
