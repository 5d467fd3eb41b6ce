"""k-medians as a list of rounds: noised sums of directions from centers to rows, with noised counts.

A center moves along the mean direction of its rows, which is the gradient of their mean distance. The lengths of moves
start at the distance to the next center, and fall as a center turns around. A row adds a vector of length 1 wherever
it is, so the noise does not depend on the size of the domain; a large domain costs rounds instead.
Source: arXiv 2505.20189 (2025), on the private geometric median, for gradient steps whose noise does not follow the
domain; Riedmiller, Braun (1993), "Rprop", for lengths that follow from whether successive directions agree.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyPlan, ReleaseSpec, RoundSpec
from dapple_dp.schemas.kmeans.medians_config import DPMediansFit
from dapple_dp.schemas.privacy.meaning import Meaning
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.kmeans.dp_medians.server import median_step
from dapple_dp.transforms.kmeans.dp_medians.state import MedianState
from dapple_dp.transforms.kmeans.lloyd.specs import COUNTS, for_sampled_rows, vector_spec
from dapple_dp.transforms.numerics.kmeans import lloyd_rules

NAME = "dp_medians"
_DIRECTIONS = Meaning(tells="in which direction from each center its rows lie")


def round_specs(config: DPMediansFit, n_features: int, total: float) -> tuple[RoundSpec, ...]:
    """Returns the rounds of medians before calibration, all with the same noise; their shares add up to `total`."""
    weight, size = lloyd_rules.sums_weight(n_features), config.max_clusters
    share = total / config.n_steps / (weight + 1.0)

    def releases(step: int) -> tuple[ReleaseSpec, ...]:
        directions = dataclasses.replace(_DIRECTIONS, settles=step > 0)
        return (
            vector_spec("directions", (size, n_features), share * weight, meaning=directions),
            vector_spec("counts", (size,), share, meaning=COUNTS),
        )

    rounds = [RoundSpec(path=f"{NAME}/median_{step:02d}", releases=releases(step)) for step in range(config.n_steps)]
    return for_sampled_rows(config, rounds)


def rounds(config: DPMediansFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of medians of a plan, in order."""
    own = (each for each in plan.rounds if each.path.startswith(f"{NAME}/"))
    return tuple(Round(each, median_statistic, median_step, lattice.SUM_BITS) for each in own)


def median_statistic(block: ClientBlock, state: MedianState) -> NDArray[np.int64]:
    """Computes sums of directions per cluster, then counts."""
    form = of_unit(state.privacy_unit).direction_sums
    return form(block, state.frame, state.centers, state.least_radius, state.directions_bound)
