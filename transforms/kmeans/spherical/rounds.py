"""Spherical k-means as a list of rounds: noised sums of rows, then sizes, and terms of each cluster for its name.

A row is at most as long as the clipping norm, and belongs to the center of the largest inner product; the server makes
centers as long as that norm. So a row adds to one sum, by its clipping norm at most, and no counts are needed until the
end. Source: Dhillon, Modha (2001), "Concept decompositions for large sparse text data using clustering".
"""

import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyPlan, PrivacyUnit, ReleaseSpec, RoundSpec
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.kmeans.spherical_config import CLIENT_NORM, NAMES_SHARE, SphericalFit
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Role
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.kmeans.lloyd.specs import COUNTS, allocation_as_asked, for_sampled_rows, vector_spec
from dapple_dp.transforms.kmeans.spherical import names
from dapple_dp.transforms.kmeans.spherical import server as spherical_server
from dapple_dp.transforms.kmeans.spherical.names import threshold
from dapple_dp.transforms.kmeans.spherical.server import FINE_CENTERS, KEPT, names_step, sums_step
from dapple_dp.transforms.kmeans.spherical.state import SphericalSettings, SphericalState
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

NAME = "spherical"
SIZES_SHARE = 0.05
"""Share of the budget; a size is one number, and a sum has many."""
_DIRECTION = Meaning(tells="in which direction each center lies", quantity=Quantity.LENGTH)
_TERMS = Meaning(tells="which terms each cluster has", role=Role.CLUSTER_TERMS)
COSINE = 0.9
"""Cosine between a released center and the exact one from which on a cluster counts as found."""
AGREEMENT = 0.5
"""Assumed mean inner product of rows with their center, in clipping norms."""


def round_specs(config: SphericalFit, n_features: int, _: int) -> tuple[RoundSpec, ...]:
    """Returns every release of a job before calibration; `n_features` is d."""
    settings, n_steps = SphericalSettings.from_config(config), config.spherical.n_steps
    names_share = 0.0 if config.names is None else NAMES_SHARE
    rest = 1.0 - names_share
    share, size = (1.0 - SIZES_SHARE) * rest / n_steps, settings.n_clusters

    def sums(step: int) -> RoundSpec:
        n_centers = size * (FINE_CENTERS if step < settings.fine_rounds else 1)
        spec = vector_spec("sums", (n_centers, n_features), share, meaning=_DIRECTION)
        return RoundSpec(path=f"{NAME}/sums_{step:02d}", releases=(spec,))

    last: tuple[ReleaseSpec, ...] = (vector_spec("counts", (size,), SIZES_SHARE * rest, meaning=COUNTS),)
    if settings.limits is not None:
        last += (vector_spec("terms", (size, settings.limits.n_terms), names_share, meaning=_TERMS),)
    steps = (sums(step) for step in range(n_steps))
    return for_sampled_rows(config, (*steps, RoundSpec(path=f"{NAME}/names", releases=last)))


def rounds(config: SphericalFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of a job, in order; `plan` was made from `round_specs`."""
    *steps, last = plan.rounds
    return (
        *(Round(step, sums_statistic, sums_step, lattice.SUM_BITS) for step in steps),
        # Terms are not kept, so rows are read once more for names.
        Round(last, names_statistic, names_step, lattice.SUM_BITS if config.names is None else None),
    )


def _features(block: ClientBlock, state: SphericalState) -> ClientBlock:
    """Returns the block without the terms of its rows."""
    return block._replace(points=block.points[:, : len(state.frame.lattice.center)])


def sums_statistic(block: ClientBlock, state: SphericalState) -> NDArray[np.int64]:
    """Computes the sums of rows per center (of means of clients' rows), stacked."""
    form = of_unit(state.privacy_unit).mean_sums_and_counts
    return form(_features(block, state), state.frame, state.assigner, state.sums_bound, 1.0)[: state.centers.size]


def names_statistic(block: ClientBlock, state: SphericalState) -> NDArray[np.int64]:
    """Counts rows per center and, with names, per cell of a center and a term; shares of rows for clients."""
    forms, limits = of_unit(state.privacy_unit), state.settings.limits
    counts = forms.histogram(_features(block, state), state.frame, state.assigner, 1.0, relative=True)
    if limits is None:
        return counts
    return np.concatenate([counts, forms.term_cells(block, state.frame, state.assigner, limits)])


def units_of_a_center(config: SphericalFit, plan: PrivacyPlan, n_features: int) -> int:
    """Returns the units that a cluster needs for a center of `COSINE`, if its rows agree as assumed.

    Args:
      config: the job.
      plan: calibrated.
      n_features: d.
    """
    settings, bits = SphericalSettings.from_config(config), 2.0**-lattice.SUM_BITS
    bound = settings.unit.share(CLIENT_NORM)
    sums = next(each for each in reversed(plan.rounds) if each.releases[0].spec.name == "sums").releases[0]
    # Sums of rounds with weights 1, KEPT, KEPT**2, ...: the signal adds up, noise does so in squares.
    kept = (1.0 - KEPT) / math.sqrt(1.0 - KEPT**2)
    noise = sums.noise_stddev * bits * bound * math.sqrt(n_features) * kept
    return math.ceil(noise / (min(AGREEMENT, bound) * math.sqrt(1.0 / COSINE**2 - 1.0)))


def units_of_a_name(config: SphericalFit, plan: PrivacyPlan) -> int | None:
    """Returns the units above its share that a term needs to name a cluster in half of all runs; None without names."""
    limits = SphericalSettings.from_config(config).limits
    if limits is None:
        return None
    terms = plan.rounds[-1].releases[-1]
    return math.ceil(threshold(terms.spec.size) * terms.noise_stddev / limits.cell_units)


def found_from(config: SphericalFit, plan: PrivacyPlan, n_features: int) -> tuple[str, ...]:
    """Returns sentences for people; arguments as in `units_of_a_center`."""
    words, center = UNITS[plan.unit].words, units_of_a_center(config, plan, n_features)
    result = (
        f"A cluster needs about {center:,} {words} to be found: its center then has a cosine of {COSINE:g} with the "
        f"exact one, if the mean inner product of its rows with it is {AGREEMENT:g}.",
    )
    name = units_of_a_name(config, plan)
    if name is None:
        return result
    weighed = "" if plan.unit is PrivacyUnit.RECORD else ", where a client counts by the share of its rows"
    return (*result, f"To name a cluster, a term needs about {name:,} {words} above its share in all{weighed}.")


PROTOCOL = RoundsProtocol(
    title="Spherical k-means",
    initial_state=spherical_server.initial_state,
    round_specs=round_specs,
    allocation=allocation_as_asked,
    rounds=rounds,
    names=names.cluster_names,
    one_length=True,
    found_from=found_from,
)
