"""The round that evaluates the final centers: their noisy cost and the noisy sizes of their clusters.

It is the last round of a job with a `quality` section, for any algorithm, and spends a share of its budget.
"""

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import ReleaseSpec, RoundPlan, RoundSpec
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import AT_CENTERS, NoisyCost
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Replaced
from dapple_dp.transforms.core.round import Releases, Round
from dapple_dp.transforms.core.statistics import distances, lattice
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.kmeans.lloyd.specs import counting_mechanism
from dapple_dp.transforms.kmeans.lloyd.state import MeansState
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound

ROUND = "quality"
COST = "cost"
SIZES = "sizes"
COST_MEANING = Meaning(tells="how far rows lie from their centers", quantity=Quantity.SQUARE, replaced=Replaced.BOUNDED)
_SIZES = Meaning(tells="how large each final cluster is", replaced=Replaced.LEFT)


def round_spec(config: FitConfig, share: float) -> RoundSpec:
    """Returns the round's releases before calibration; each has half of `share` of the budget."""
    mechanism, bound = counting_mechanism(config), distances.SENSITIVITY
    releases = tuple(
        ReleaseSpec(name=name, shape=(size,), mechanism=mechanism, sensitivity=bound, share=share / 2, meaning=meaning)
        for name, size, meaning in ((COST, 1, COST_MEANING), (SIZES, config.max_clusters, _SIZES))
    )
    return RoundSpec(path=f"{config.algorithm}/{ROUND}", releases=releases)


def statistic(block: ClientBlock, state: MeansState, *, max_distance: float | None) -> NDArray[np.int64]:
    """Computes the cost, then sizes, with zeros for clusters that were not chosen."""
    centers, bound = _final_centers(state), _bound(state, max_distance)
    found = of_unit(state.privacy_unit).quality(block, state.frame, centers, bound)
    return np.concatenate([found, np.zeros(state.settings.n_clusters - len(centers), dtype=np.int64)])


def _final_centers(state: MeansState) -> NDArray[np.float64]:
    """Returns the centers as integers in full space."""
    if state.centers is None or state.assigner is None:
        raise ValueError("the quality depends on the centers; run a round of sums and counts first.")
    return state.assigner.centers


def _bound(state: MeansState, max_distance: float | None) -> int:
    """Returns the squared distance, lattice units, at which costs are capped; `max_distance` is in feature units."""
    cap = math.inf if max_distance is None else max_distance / state.sum_unit
    return squared_bound(_final_centers(state), cap)


def step(state: MeansState, releases: Releases, *, max_distance: float | None, n_units: int | None) -> MeansState:
    """Handles the round: finds the mean cost, and sizes of the final clusters that replace those of earlier rounds.

    Args:
      state: with the final centers, which stay unchanged.
      releases: cost and sizes.
      max_distance: public cap, as in the statistic.
      n_units: public number of rows (clients) that were summed; None to use the sum of the noisy sizes.
    """
    bound = _bound(state, max_distance) * state.sum_unit**2
    cost, sizes = releases[0].with_unit(bound / lattice.SUM_UNITS), releases[1].with_unit(1.0 / lattice.SUM_UNITS)
    chosen = sizes.decoded[: len(_final_centers(state))]
    return dataclasses.replace(
        state,
        sizes=chosen,
        size_stddevs=np.full(len(chosen), sizes.stddev),
        counted=AT_CENTERS,
        noisy_cost=_mean(cost, chosen, sizes.stddev, n_units),
        releases=(*state.releases, cost, sizes),
    )


def _mean(cost: Release, sizes: NDArray[np.float64], sizes_stddev: float, n_units: int | None) -> NoisyCost:
    """Returns the cost per unit, with the stddev of its noise."""
    total = float(cost.decoded[0])
    number, number_stddev = float(n_units or 0), 0.0
    if n_units is None:
        number_stddev = math.sqrt(len(sizes)) * sizes_stddev
        number = max(float(sizes.sum()), number_stddev)
    mean = total / number
    return NoisyCost(mean=mean, stddev=math.hypot(cost.stddev, mean * number_stddev) / number)


def bind(plan: RoundPlan, max_distance: float | None, n_units: int | None) -> Round:
    """Returns the calibrated round; arguments as in `step`."""
    return Round(
        plan,
        functools.partial(statistic, max_distance=max_distance),
        functools.partial(step, max_distance=max_distance, n_units=n_units),
        lattice.SUM_BITS,
    )
