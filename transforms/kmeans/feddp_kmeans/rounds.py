"""FedDP-KMeans as a list of rounds: FedDP-Init, its optional preparations, and FedDP-Lloyds.

Source: Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with server-side
data", Algorithms 1, 2, 4, 5 and Lemma 16.
"""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ClippingRule, StartSpace
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import (
    Allocation,
    Geometry,
    PrivacyPlan,
    PrivacyUnit,
    ReleaseSpec,
    RoundPlan,
    RoundSpec,
)
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.sections.clipping_config import PRIVATE_NORM_QUANTILE, PRIVATE_NORM_SHARE
from dapple_dp.schemas.privacy.meaning import Meaning, Role
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics import distances, lattice
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.kmeans.feddp_kmeans import server as feddp_server
from dapple_dp.transforms.kmeans.feddp_kmeans.state import FedDPState
from dapple_dp.transforms.kmeans.lloyd import rounds as lloyd
from dapple_dp.transforms.kmeans.lloyd.specs import (
    LENGTHS,
    N_UNITS,
    SPREAD,
    allocation_as_asked,
    counting_mechanism,
    histogram_of,
    scatter_spec,
    vector_spec,
)
from dapple_dp.transforms.numerics.kmeans import server_points
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

NAME = "feddp_kmeans"
ROWS_SHARE = 0.01
"""Share of the tuned budget that buys a noisy number of rows (clients) when it is not public."""
_NORMS = histogram_of("lengths of rows, for the clipping norm", Role.NORMS)
_GROUPS = histogram_of("which public points have rows near them", Role.GROUPS)
_THINNED = histogram_of("which public points may be dropped")
_WEIGHTS = histogram_of("how much data each public point stands for", Role.POINT_WEIGHTS)


def round_specs(config: FitConfig, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Every release of a job, before calibration.

    Args:
      config: the job.
      n_features: d.
      n_bins: number of server points.
    """
    shares, extra = lloyd.shares_of(config), _extra_shares(config)
    projects = config.feddp_kmeans.space is not StartSpace.FULL
    scale = (1.0 - sum(extra.values())) / (sum(shares) if projects else sum(shares) - shares.outer_product)
    thinning = _thinning_rounds(config, n_bins)

    def histogram(name: str, share: float, meaning: Meaning, size: int = n_bins) -> RoundSpec:
        law = counting_mechanism(config)
        return _round(name, vector_spec("histogram", (size,), share, law, meaning=meaning))

    specs: list[RoundSpec] = []
    if "norms" in extra:
        specs.append(histogram("norms", extra["norms"], _NORMS, distances.NORM_BINS))
    if "diameter" in extra:
        specs.append(histogram("diameter", extra["diameter"], _GROUPS))
    if projects:
        specs.append(_round("outer_product", *_outer_specs(config, n_features, shares.outer_product * scale)))
    specs += [histogram(f"simplify_{step:02d}", extra["simplify"] / thinning, _THINNED) for step in range(thinning)]
    specs.append(histogram("weights", shares.weights * scale, _WEIGHTS))
    specs.append(_round("centers", *lloyd.means_specs(config, n_features, scale)))
    return lloyd.finished(config, [*specs, *lloyd.lloyd_specs(config, n_features, extra.get("lloyd", 0.0))])


def _outer_specs(config: FitConfig, n_features: int, share: float) -> tuple[ReleaseSpec, ...]:
    """The outer product, and a noisy number of rows where the tuned allocation needs one."""
    geometry = Geometry.SYMMETRIC if config.feddp_kmeans.guards else Geometry.VECTOR
    rows = config.privacy.unit is PrivacyUnit.RECORD
    outer = scatter_spec(n_features, share, geometry, meaning=LENGTHS if rows else SPREAD)
    return (outer, vector_spec("rows", (1,), ROWS_SHARE, meaning=N_UNITS)) if _counts_rows(config) else (outer,)


def _counts_rows(config: FitConfig) -> bool:
    """Whether a noisy number of rows (clients) is released."""
    return config.privacy.allocation is Allocation.TUNED and config.data.public_rows is None


def _round(name: str, *releases: ReleaseSpec) -> RoundSpec:
    """A round of FedDP-Init."""
    return RoundSpec(path=f"{NAME}/{name}", releases=releases)


def _extra_shares(config: FitConfig) -> dict[str, float]:
    """Shares of the whole budget that go to the optional parts."""
    options = config.feddp_kmeans
    extra = {}
    if config.clipping.norm is ClippingRule.PRIVATE:
        extra["norms"] = PRIVATE_NORM_SHARE
    if config.quality is not None:
        extra["quality"] = config.quality.share
    if config.lloyd.steps:
        extra["lloyd"] = config.lloyd.share
    if options.simplify is not None:
        extra["simplify"] = options.simplify.share
    if options.reduce_diameter is not None:
        extra["diameter"] = options.reduce_diameter.share
    return extra


def _thinning_rounds(config: FitConfig, n_bins: int) -> int:
    """Number of histograms of Algorithm 4, if the job asks for it."""
    simplify = config.feddp_kmeans.simplify
    if simplify is None:
        return 0
    if simplify.rounds != "auto":
        return int(simplify.rounds)
    return server_points.thinning_rounds(n_bins, config.privacy.epsilon * simplify.share, simplify.w_min)


def rounds(config: FitConfig, plan: PrivacyPlan) -> tuple[Round, ...]:
    """The calibrated rounds of a job, in order; `plan` was made from `round_specs` of the same config."""
    thinning = [each for each in plan.rounds if "/simplify_" in each.path]
    return tuple(_bind(config, each, thinning) for each in plan.rounds)


def _bind(config: FitConfig, plan: RoundPlan, thinning: list[RoundPlan]) -> Round:
    """Joins a round's plan with its statistic and its server step."""
    name, options = plan.path.rpartition("/")[2], config.feddp_kmeans
    if name == "outer_product":
        counted = len(plan.releases) > 1
        return Round(
            plan,
            functools.partial(outer_statistic, counted=counted),
            feddp_server.outer_product_step,
            lattice.OUTER_BITS,
            lattice.SUM_BITS,
        )
    if name == "norms":
        quantile = PRIVATE_NORM_QUANTILE
        return Round(plan, norm_statistic, functools.partial(feddp_server.norm_step, quantile=quantile))
    if name == "weights":
        return Round(plan, _histogram(plan), feddp_server.weights_step, lattice.SUM_BITS)
    if name == "diameter" and options.reduce_diameter is not None:
        step = functools.partial(feddp_server.diameter_step, config=options.reduce_diameter)
        return Round(plan, _histogram(plan), step, lattice.SUM_BITS)
    if plan in thinning and options.simplify is not None:
        index = thinning.index(plan)
        last = index == len(thinning) - 1
        simplify = functools.partial(feddp_server.simplify_step, config=options.simplify, step=index, last=last)
        return Round(plan, _histogram(plan), simplify, lattice.SUM_BITS)
    return lloyd.bind_means(plan, absolute=False) if name == "centers" else lloyd.bind(config, plan)


def outer_statistic(block: ClientBlock, state: FedDPState, *, counted: bool) -> NDArray[np.int64]:
    """Scatter (upper triangle), followed by the number of rows or clients if `counted`."""
    statistics = of_unit(state.privacy_unit)
    scatter = statistics.outer_product(block, state.frame, state.bounds.scatter, relative=False)
    return np.concatenate([scatter, statistics.count(block)]) if counted else scatter


def norm_statistic(block: ClientBlock, state: FedDPState) -> NDArray[np.int64]:
    """Rows (fractions of clients) per bin of the norm."""
    return of_unit(state.privacy_unit).norm_histogram(block, state.frame.lattice.center)


def _histogram(plan: RoundPlan) -> Callable[[ClientBlock, FedDPState], NDArray[np.int64]]:
    """The statistic of a histogram, whose clients are clipped in the norm that the noise of its plan asks for."""
    return functools.partial(histogram_statistic, l1=lloyd.clips_l1(plan))


def histogram_statistic(block: ClientBlock, state: FedDPState, *, l1: bool) -> NDArray[np.int64]:
    """Rows per point of the state's assigner; one coordinate per server point, unused ones zero at the end.

    Clients are clipped in L1 or, as fractions of their rows, in L2.
    """
    assigner, bound = state.known_assigner, state.bounds.histogram
    found = of_unit(state.privacy_unit).histogram(block, state.frame, assigner, bound, relative=not l1)
    return np.concatenate([found, np.zeros(len(state.server) - assigner.size, dtype=np.int64)])


PROTOCOL = RoundsProtocol(
    title="FedDP-KMeans",
    reads_server=True,
    sells_cost=True,
    initial_state=feddp_server.initial_state,
    round_specs=round_specs,
    allocation=allocation_as_asked,
    rounds=rounds,
)
