"""What the accountant can calibrate: budgets and releases outside of this are refused before anything is searched."""

import math

from schemas.choices import Allocation
from schemas.errors import ConfigError, UnsupportedEventError
from schemas.privacy.plan import Geometry, Mechanism, ReleaseSpec, RoundSpec

MIN_DELTA = 1e-12
"""Smallest delta that the accountant's float64 convolutions resolve."""


def check_budget(epsilon: float, delta: float) -> None:
    """Refuses what the accountant cannot resolve."""
    if not 0.0 < epsilon < math.inf:
        raise ConfigError(f"epsilon must be a finite number > 0, got {epsilon}; give the total of the run.")
    if not MIN_DELTA <= delta < 1.0:
        raise ConfigError(
            f"delta must be at least {MIN_DELTA:g} and less than 1, got {delta}; "
            "give about one part in the squared number of units."
        )


def check_specs(specs: tuple[RoundSpec, ...], allocation: Allocation) -> None:
    """Refuses releases that cannot be calibrated."""
    releases = [release for each in specs for release in each.releases]
    if not releases:
        raise ConfigError("rounds must have at least one release, got none; a plan without releases needs no budget.")
    for spec in releases:
        if not (0.0 < spec.share < math.inf and spec.sensitivity >= 1):
            raise ConfigError(
                f"{spec.name} must have a finite share > 0 and a sensitivity >= 1 lattice unit, "
                f"got {spec.share} and {spec.sensitivity}; leave out what needs no noise."
            )
        if spec.mechanism is Mechanism.DISCRETE_LAPLACE:
            _check_laplace(spec, allocation)
        if spec.geometry is Geometry.SYMMETRIC and math.isqrt(8 * spec.size + 1) ** 2 != 8 * spec.size + 1:
            raise ConfigError(
                f"{spec.name} must have d * (d + 1) / 2 coordinates for geometry {spec.geometry}, got {spec.size}; "
                f"release the upper triangle or use geometry {Geometry.VECTOR}."
            )


def _check_laplace(spec: ReleaseSpec, allocation: Allocation) -> None:
    if allocation is Allocation.TUNED:
        raise UnsupportedEventError(
            f"the mechanism of {spec.name} must be {Mechanism.DISCRETE_GAUSSIAN} for allocation tuned, "
            f"got {spec.mechanism}; use Gaussian noise or allocation paper."
        )
    if spec.geometry is not Geometry.VECTOR:
        raise UnsupportedEventError(
            f"the geometry of {spec.name} must be {Geometry.VECTOR} for Laplace noise, got {spec.geometry}; "
            "use Gaussian noise."
        )
