"""FedDP-KMeans as a list of rounds: FedDP-Init, its optional preparations, and FedDP-Lloyds.

Source: Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with server-side
data", Algorithms 1, 2, 4, 5 and Lemma 16.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.choices import Allocation, ClippingRule
from schemas.client_block import ClientBlock
from schemas.config import FitConfig
from schemas.plan import Geometry, Mechanism, PrivacyPlan, PrivacyUnit, ReleaseSpec, RoundPlan, RoundSpec
from transforms import feddp_server, quality
from transforms.feddp_state import FedDPState
from transforms.numerics import client_statistics, lattice, norms, server_points, statistics
from transforms.rounds import Round

NAME = "feddp_kmeans"
ROWS_SHARE = 0.01
"""Share of the tuned budget that buys a noisy number of rows (clients) when it is not public."""


class Shares(NamedTuple):
    """Budget shares of FedDP-Init: nominal epsilons (paper) or weights 1 / noise multiplier^2 (tuned)."""

    outer_product: float
    weights: float
    sums: float
    counts: float


DEFAULT_SHARES = {
    (Allocation.PAPER, PrivacyUnit.RECORD): Shares(0.20, 0.20, 0.45, 0.15),
    (Allocation.PAPER, PrivacyUnit.CLIENT): Shares(0.35, 0.10, 0.45, 0.10),
    (Allocation.TUNED, PrivacyUnit.RECORD): Shares(0.35, 0.10, 0.45, 0.10),
    (Allocation.TUNED, PrivacyUnit.CLIENT): Shares(0.35, 0.05, 0.50, 0.10),
}


def round_specs(config: FitConfig, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Every release of a job, before calibration.

    Args:
      config: the job.
      n_features: d.
      n_bins: number of server points.
    """
    shares, extra = _init_shares(config), _extra_shares(config)
    scale = (1.0 - sum(extra.values())) / sum(shares)
    tuned = config.privacy.allocation is Allocation.TUNED
    laplace = Mechanism.DISCRETE_GAUSSIAN if tuned else Mechanism.DISCRETE_LAPLACE

    def histogram(share: float) -> tuple[ReleaseSpec, ...]:
        return (_spec("histogram", (n_bins,), laplace, lattice.SUM_UNITS, share),)

    specs: list[RoundSpec] = []
    if "norms" in extra:
        specs.append(
            _round("norms", (_spec("histogram", (norms.NORM_BINS,), laplace, lattice.SUM_UNITS, extra["norms"]),))
        )
    for name in _preparations(config, n_bins, "diameter"):
        specs.append(_round(name, histogram(extra["diameter"])))
    specs.append(_round("outer_product", _outer_specs(config, n_features, shares.outer_product * scale)))
    thinning = _preparations(config, n_bins, "simplify")
    for name in thinning:
        specs.append(_round(name, histogram(extra["simplify"] / len(thinning))))
    specs.append(_round("weights", histogram(shares.weights * scale)))
    specs.append(_round("centers", _means_specs(config, n_features, shares, scale)))
    specs += _lloyd_specs(config, n_features, shares, extra.get("lloyd", 0.0))
    return _finished(config, specs)


def lloyd_round_specs(config: FitConfig, n_features: int, total: float | None = None) -> tuple[RoundSpec, ...]:
    """The Lloyd rounds of a job with another start, and the round that judges the centers if it is asked for.

    The shares of the Lloyd rounds add up to `total`; None after a public start, for all that is left of the budget.
    """
    total = 1.0 - _extra_shares(config).get("quality", 0.0) if total is None else total
    return _finished(config, _lloyd_specs(config, n_features, _init_shares(config), total))


def _finished(config: FitConfig, specs: list[RoundSpec]) -> tuple[RoundSpec, ...]:
    """All rounds of a job: those of its algorithm, and the one that judges the centers if it is asked for."""
    if config.quality is not None:
        specs = [*specs, quality.round_spec(config, config.quality.share)]
    return for_sampled_rows(config, specs)


def _lloyd_specs(config: FitConfig, n_features: int, shares: Shares, total: float) -> list[RoundSpec]:
    """Lloyd rounds that share `total` of the budget equally."""
    scale = total / max(config.lloyd.steps, 1) / (shares.sums + shares.counts)
    releases = _means_specs(config, n_features, shares, scale)
    return [_round(f"lloyd_{step:02d}", releases, config.algorithm) for step in range(config.lloyd.steps)]


def _means_specs(config: FitConfig, n_features: int, shares: Shares, scale: float) -> tuple[ReleaseSpec, ...]:
    """Sums and counts, their shares times `scale`."""
    tuned = config.privacy.allocation is Allocation.TUNED
    by_counts = Mechanism.DISCRETE_GAUSSIAN if tuned else Mechanism.DISCRETE_LAPLACE
    shape = (config.max_clusters, n_features)
    return (
        _spec("sums", shape, Mechanism.DISCRETE_GAUSSIAN, lattice.SUM_UNITS, shares.sums * scale),
        _spec("counts", shape[:1], by_counts, lattice.SUM_UNITS, shares.counts * scale),
    )


def for_sampled_rows(config: FitConfig, specs: list[RoundSpec]) -> tuple[RoundSpec, ...]:
    """The rounds with larger sensitivities where rows of a client are sampled; as they are elsewhere."""
    return tuple(map(_for_sampled_rows, specs)) if _samples_rows(config) else tuple(specs)


def _samples_rows(config: FitConfig) -> bool:
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
    if spec.name == "sums" or spec.mechanism is Mechanism.DISCRETE_LAPLACE:
        return 2 * spec.sensitivity
    return math.isqrt(2 * spec.sensitivity**2) + 1


def _spec(name: str, shape: tuple[int, ...], mechanism: Mechanism, sensitivity: int, share: float) -> ReleaseSpec:
    """A release whose sensitivity is a plain vector norm."""
    return ReleaseSpec(name=name, shape=shape, mechanism=mechanism, sensitivity=sensitivity, share=share)


def _outer_specs(config: FitConfig, n_features: int, share: float) -> tuple[ReleaseSpec, ...]:
    """The outer product, and a noisy number of rows where the tuned allocation needs one."""
    outer = ReleaseSpec(
        name="scatter",
        shape=(statistics.triangle_size(n_features),),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=statistics.OUTER_SENSITIVITY,
        share=share,
        geometry=Geometry.SYMMETRIC,
    )
    if not _counts_rows(config):
        return (outer,)
    return outer, _spec("rows", (1,), Mechanism.DISCRETE_GAUSSIAN, lattice.SUM_UNITS, ROWS_SHARE)


def _counts_rows(config: FitConfig) -> bool:
    """Whether a noisy number of rows (clients) is released."""
    return config.privacy.allocation is Allocation.TUNED and config.data.public_rows is None


def _round(name: str, releases: tuple[ReleaseSpec, ...], protocol: str = NAME) -> RoundSpec:
    """A round of a protocol."""
    return RoundSpec(path=f"{protocol}/{name}", releases=releases)


def _init_shares(config: FitConfig) -> Shares:
    """Shares of FedDP-Init's four releases."""
    given = config.privacy.shares
    if given is None:
        return DEFAULT_SHARES[config.privacy.allocation, config.privacy.unit]
    return Shares(given.outer_product, given.weights, given.sums, given.counts)


def _extra_shares(config: FitConfig) -> dict[str, float]:
    """Shares of the whole budget that go to the optional parts."""
    options = config.feddp_kmeans
    extra = {}
    if config.clipping.norm is ClippingRule.PRIVATE:
        extra["norms"] = config.clipping.share
    if config.quality is not None:
        extra["quality"] = config.quality.share
    if config.lloyd.steps:
        extra["lloyd"] = config.lloyd.share
    if options.simplify is not None:
        extra["simplify"] = options.simplify.share
    if options.reduce_diameter is not None:
        extra["diameter"] = options.reduce_diameter.share
    return extra


def _preparations(config: FitConfig, n_bins: int, kind: str) -> list[str]:
    """Names of the optional histogram rounds of one kind."""
    options = config.feddp_kmeans
    if kind == "diameter":
        return ["diameter"] if options.reduce_diameter is not None else []
    if options.simplify is None:
        return []
    n_rounds = options.simplify.rounds
    if n_rounds == "auto":
        epsilon = config.privacy.epsilon * options.simplify.share
        n_rounds = server_points.thinning_rounds(n_bins, epsilon, options.simplify.w_min)
    return [f"simplify_{step:02d}" for step in range(int(n_rounds))]


def rounds(config: FitConfig, plan: PrivacyPlan) -> tuple[Round, ...]:
    """The calibrated rounds of a job, in order; `plan` was made from `round_specs` of the same config."""
    thinning = [each for each in plan.rounds if "/simplify_" in each.path]
    return tuple(_bind(config, each, thinning) for each in plan.rounds)


def _bind(config: FitConfig, plan: RoundPlan, thinning: list[RoundPlan]) -> Round:
    """Joins a round's plan with its statistic and its server step."""
    name = plan.path.rpartition("/")[2]
    options = config.feddp_kmeans
    if name == "outer_product":
        counted = len(plan.releases) > 1
        return Round(plan, functools.partial(outer_statistic, counted=counted), feddp_server.outer_product_step)
    if name == quality.ROUND and config.quality is not None:
        n_units = None if _samples_rows(config) else config.data.public_rows
        return quality.bind(plan, config.quality.max_distance, n_units)
    if name == "norms":
        step = functools.partial(feddp_server.norm_step, quantile=config.clipping.quantile)
        return Round(plan, norm_statistic, step)
    if name == "weights":
        return Round(plan, histogram_statistic, feddp_server.weights_step)
    if name == "diameter" and options.reduce_diameter is not None:
        step = functools.partial(feddp_server.diameter_step, config=options.reduce_diameter)
        return Round(plan, histogram_statistic, step)
    if plan in thinning and options.simplify is not None:
        index = thinning.index(plan)
        last = index == len(thinning) - 1
        simplify = functools.partial(feddp_server.simplify_step, config=options.simplify, step=index, last=last)
        return Round(plan, histogram_statistic, simplify)
    return Round(plan, functools.partial(means_statistic, absolute=name != "centers"), feddp_server.means_step)


def outer_statistic(block: ClientBlock, state: FedDPState, *, counted: bool) -> NDArray[np.int64]:
    """Scatter (upper triangle), followed by the number of rows or clients if `counted`."""
    if state.settings.by_client:
        parts = [client_statistics.outer_product(block, state.frame, state.bounds.scatter)]
        count = client_statistics.client_count(block)
    else:
        parts = [statistics.outer_product(block.points, state.frame)]
        count = statistics.row_count(block.points)
    return np.concatenate([*parts, count]) if counted else parts[0]


def norm_statistic(block: ClientBlock, state: FedDPState) -> NDArray[np.int64]:
    """Rows (fractions of clients) per bin of the norm."""
    center = state.frame.lattice.center
    if state.settings.by_client:
        return norms.client_norm_histogram(block, center)
    return norms.norm_histogram(block.points, center)


def histogram_statistic(block: ClientBlock, state: FedDPState) -> NDArray[np.int64]:
    """Rows per point of the state's assigner; one coordinate per server point, unused ones zero at the end."""
    assigner = state.assigner
    if assigner is None:
        raise ValueError("histogram_statistic must be given a state with an assigner; run the earlier rounds first.")
    if state.settings.by_client:
        found = client_statistics.histogram(
            block, state.frame, assigner, state.bounds.histogram, relative=state.settings.tuned
        )
    else:
        found = statistics.histogram(block.points, state.frame, assigner)
    return np.concatenate([found, np.zeros(len(state.server) - assigner.size, dtype=np.int64)])


def means_statistic(block: ClientBlock, state: FedDPState, *, absolute: bool) -> NDArray[np.int64]:
    """Sums per cluster, then counts; `absolute` says that the paper's client level sums rows, not means."""
    assigner = state.assigner
    if assigner is None:
        raise ValueError("means_statistic must be given a state with an assigner; run the earlier rounds first.")
    if not state.settings.by_client:
        found = statistics.sums_and_counts(block.points, state.frame, assigner)
        return _padded(found, assigner.size, state.settings.n_clusters)
    form: Callable[..., NDArray[np.int64]] = client_statistics.means_of_means
    if state.settings.tuned:
        form = client_statistics.mean_sums_and_counts
    elif absolute:
        form = client_statistics.clipped_sums_and_counts
    found = form(block, state.frame, assigner, state.bounds.sums, state.bounds.counts)
    return _padded(found, assigner.size, state.settings.n_clusters)


def _padded(found: NDArray[np.int64], n_found: int, n_clusters: int) -> NDArray[np.int64]:
    """Sums and counts of `n_found` clusters with zeros for those that were not chosen."""
    if n_found == n_clusters:
        return found
    n_sums = len(found) - n_found
    missing = n_clusters - n_found
    no_sums = np.zeros(missing * (n_sums // n_found), dtype=np.int64)
    return np.concatenate([found[:n_sums], no_sums, found[n_sums:], np.zeros(missing, dtype=np.int64)])
