"""Which topics a plan can find: how many units one needs, by the noise alone, before any row is read."""

import math

from dapple_dp.schemas.core.plan import PrivacyPlan, PrivacyUnit
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.kmeans.spherical_config import SphericalFit
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.kmeans.spherical.names import threshold
from dapple_dp.transforms.kmeans.spherical.server import KEPT
from dapple_dp.transforms.kmeans.spherical.state import SphericalSettings

COSINE = 0.9
"""Of a released center and the exact one, from which on a cluster is called found."""
AGREEMENT = 0.5
"""Mean inner product of rows with their center that is assumed, in clipping norms."""


def units_of_a_center(config: SphericalFit, plan: PrivacyPlan, n_features: int) -> int:
    """Units that a cluster needs for a center of `COSINE`, if its rows agree as assumed.

    Args:
      config: the job.
      plan: calibrated.
      n_features: d.
    """
    settings, bits = SphericalSettings.from_config(config), 2.0**-lattice.SUM_BITS
    bound = settings.unit.share(settings.client_norm)
    sums = next(each for each in reversed(plan.rounds) if each.releases[0].spec.name == "sums").releases[0]
    # Sums of rounds with weights 1, KEPT, KEPT**2, ...: the signal adds up, noise does so in squares.
    kept = (1.0 - KEPT) / math.sqrt(1.0 - KEPT**2)
    noise = sums.noise_stddev * bits * bound * math.sqrt(n_features) * kept
    return math.ceil(noise / (min(AGREEMENT, bound) * math.sqrt(1.0 / COSINE**2 - 1.0)))


def units_of_a_name(config: SphericalFit, plan: PrivacyPlan) -> int | None:
    """Units above its share that a term needs to name a cluster in half of all runs; None without names."""
    limits = SphericalSettings.from_config(config).limits
    if limits is None:
        return None
    terms = plan.rounds[-1].releases[-1]
    return math.ceil(threshold(terms.spec.size) * terms.noise_stddev / limits.cell_units)


def found_from(config: SphericalFit, plan: PrivacyPlan, n_features: int) -> tuple[str, ...]:
    """Sentences for people; arguments as of `units_of_a_center`."""
    words, center = UNITS[plan.unit].words, units_of_a_center(config, plan, n_features)
    found = (
        f"A cluster is found from about {center:,} {words}: its center has a cosine of {COSINE:g} with the exact one, "
        f"if the mean inner product of its rows with it is {AGREEMENT:g}.",
    )
    name = units_of_a_name(config, plan)
    if name is None:
        return found
    weighed = "" if plan.unit is PrivacyUnit.RECORD else ", a client counting by the share of its rows"
    return (*found, f"A term can name a cluster from about {name:,} {words} above its share in all clusters{weighed}.")
