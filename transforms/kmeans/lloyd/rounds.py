"""Rounds of sums and counts by cluster: FedDP-Lloyds, and the round that evaluates the centers at the end.

Source: Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with server-side
data", Algorithm 5.
"""

import functools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import Auto, StartSpace
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import (
    Allocation,
    Mechanism,
    PrivacyPlan,
    PrivacyUnit,
    ReleaseSpec,
    RoundPlan,
    RoundSpec,
)
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.sections.privacy_config import Shares
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.kmeans.lloyd import quality
from dapple_dp.transforms.kmeans.lloyd.server import means_step
from dapple_dp.transforms.kmeans.lloyd.specs import (
    COUNTS,
    SUMS,
    counting_mechanism,
    for_sampled_rows,
    samples_rows,
    vector_spec,
)
from dapple_dp.transforms.kmeans.lloyd.state import MeansState

DEFAULT_SHARES = {
    (Allocation.PAPER, PrivacyUnit.RECORD): Shares(0.20, 0.20, 0.45, 0.15),
    (Allocation.PAPER, PrivacyUnit.CLIENT): Shares(0.35, 0.10, 0.45, 0.10),
    (Allocation.TUNED, PrivacyUnit.RECORD): Shares(0.35, 0.10, 0.45, 0.10),
    (Allocation.TUNED, PrivacyUnit.CLIENT): Shares(0.35, 0.05, 0.50, 0.10),
}


FULL_SPACE_SHARES = Shares(0.0, 0.15, 0.70, 0.15)
"""Shares of a start that releases no outer product, tuned, at both levels."""


def shares_of(config: FitConfig) -> Shares:
    """Returns the shares of FedDP-Init's four releases; in full space the outer product has none.

    Raises:
      ValueError: if they haven't been chosen yet.
    """
    given = config.privacy.shares
    if isinstance(given, Auto):
        raise ValueError("the shares are not chosen yet; resolve the job on its server data first.")
    if given is None:
        tuned = config.privacy.allocation is Allocation.TUNED
        if tuned and config.feddp_kmeans.space is StartSpace.FULL:
            return FULL_SPACE_SHARES
        return DEFAULT_SHARES[config.privacy.allocation, config.privacy.unit]
    return given


def round_specs(config: FitConfig, n_features: int, total: float | None = None) -> tuple[RoundSpec, ...]:
    """Returns the Lloyd rounds of a job with another start, and the round that evaluates the centers if requested.

    The shares of the Lloyd rounds add up to `total`; None after a public start, for all of the remaining budget.
    """
    if total is None:
        total = 1.0 - (config.quality.share if config.quality else 0.0)
    return finished(config, lloyd_specs(config, n_features, total))


def finished(config: FitConfig, specs: Iterable[RoundSpec]) -> tuple[RoundSpec, ...]:
    """Returns all rounds of a job: its algorithm's, and the one that evaluates the centers if requested."""
    judging = () if config.quality is None else (quality.round_spec(config, config.quality.share),)
    return for_sampled_rows(config, (*specs, *judging))


def lloyd_specs(config: FitConfig, n_features: int, total: float) -> list[RoundSpec]:
    """Returns Lloyd rounds that share `total` of the budget equally."""
    shares = shares_of(config)
    scale = total / max(config.lloyd.steps, 1) / (shares.sums + shares.counts)
    releases = means_specs(config, n_features, scale)
    return [
        RoundSpec(path=f"{config.algorithm}/lloyd_{step:02d}", releases=releases) for step in range(config.lloyd.steps)
    ]


def means_specs(config: FitConfig, n_features: int, scale: float) -> tuple[ReleaseSpec, ...]:
    """Returns specs of sums and counts, their shares times `scale`."""
    shares, n_clusters = shares_of(config), config.max_clusters
    return (
        vector_spec("sums", (n_clusters, n_features), shares.sums * scale, meaning=SUMS),
        vector_spec("counts", (n_clusters,), shares.counts * scale, counting_mechanism(config), meaning=COUNTS),
    )


def rounds(config: FitConfig, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of a job that starts from known centers; `plan` was made from `round_specs`."""
    return bound(config, plan.rounds)


def bound(config: FitConfig, plans: Iterable[RoundPlan]) -> tuple[Round, ...]:
    """Returns the calibrated rounds for some of the plans of a job."""
    return tuple(bind(config, plan) for plan in plans)


def bind(config: FitConfig, plan: RoundPlan) -> Round:
    """Joins the plan of one of these rounds with its statistic and its server step."""
    if config.quality is not None and plan.path.endswith(f"/{quality.ROUND}"):
        n_units = None if samples_rows(config) else config.data.public_rows
        return quality.bind(plan, config.quality.max_distance, n_units)
    return bind_means(plan, absolute=True)


def bind_means(plan: RoundPlan, *, absolute: bool) -> Round:
    """Creates a round of sums and counts; `absolute` as in `means_statistic`."""
    return Round(
        plan, functools.partial(means_statistic, absolute=absolute, l1=clips_l1(plan)), means_step, lattice.SUM_BITS
    )


def clips_l1(plan: RoundPlan) -> bool:
    """Returns whether a round's counts, its last release, have Laplace noise, so that clients are clipped in L1."""
    return plan.releases[-1].spec.mechanism is Mechanism.DISCRETE_LAPLACE


def means_statistic(block: ClientBlock, state: MeansState, *, absolute: bool, l1: bool) -> NDArray[np.int64]:
    """Computes sums per cluster, then counts.

    Args:
      block: rows.
      state: of the round.
      absolute: True if the paper's client level sums rows, not means.
      l1: True to clip the counts of a client in L1, as in the paper; False to clip sums and counts in L2.
    """
    statistics, assigner = of_unit(state.privacy_unit), state.known_assigner
    form = statistics.clipped_sums_and_counts if absolute else statistics.means_of_means
    if not l1:
        form = statistics.mean_sums_and_counts
    found = form(block, state.frame, assigner, state.bounds.sums, state.bounds.counts)
    return padded(found, assigner.size, state.settings.n_clusters)


def padded(statistic: NDArray[np.int64], n_found: int, n_clusters: int) -> NDArray[np.int64]:
    """Adds zeros to sums and counts of `n_found` clusters, for clusters that were not chosen."""
    if n_found == n_clusters:
        return statistic
    n_sums = len(statistic) - n_found
    missing = n_clusters - n_found
    no_sums = np.zeros(missing * (n_sums // n_found), dtype=np.int64)
    return np.concatenate([statistic[:n_sums], no_sums, statistic[n_sums:], np.zeros(missing, dtype=np.int64)])
