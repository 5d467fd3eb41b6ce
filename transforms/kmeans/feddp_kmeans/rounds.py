"""FedDP-KMeans as a list of rounds: FedDP-Init and FedDP-Lloyds.

Source: Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with server-side
data", Algorithms 1 and 2.
"""

import functools

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
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

NAME = "feddp_kmeans"
ROWS_SHARE = 0.01
"""Share of the tuned budget that buys a noisy number of rows (clients) when it is not public."""
_NORMS = histogram_of("lengths of rows, for the clipping norm", Role.NORMS)
_WEIGHTS = histogram_of("how much data each public point stands for", Role.POINT_WEIGHTS)


def round_specs(config: FitConfig, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Returns every release of a job, before calibration.

    Args:
      config: the job.
      n_features: d.
      n_bins: number of server points.
    """
    shares, extra = lloyd.shares_of(config), _extra_shares(config)
    projects = config.feddp_kmeans.space is not StartSpace.FULL
    scale = (1.0 - sum(extra.values())) / (sum(shares) if projects else sum(shares) - shares.outer_product)

    def histogram(name: str, share: float, meaning: Meaning, size: int = n_bins) -> RoundSpec:
        law = counting_mechanism(config)
        return _round(name, vector_spec("histogram", (size,), share, law, meaning=meaning))

    specs: list[RoundSpec] = []
    if "norms" in extra:
        specs.append(histogram("norms", extra["norms"], _NORMS, distances.NORM_BINS))
    if projects:
        specs.append(_round("outer_product", *outer_specs(config, n_features, shares.outer_product * scale)))
    specs.append(histogram("weights", shares.weights * scale, _WEIGHTS))
    specs.append(_round("centers", *lloyd.means_specs(config, n_features, scale)))
    return lloyd.finished(config, [*specs, *lloyd.lloyd_specs(config, n_features, extra.get("lloyd", 0.0))])


def outer_specs(config: FitConfig, n_features: int, share: float) -> tuple[ReleaseSpec, ...]:
    """Returns the outer product, and a noisy number of rows if the tuned allocation needs one."""
    geometry = Geometry.VECTOR if config.as_printed else Geometry.SYMMETRIC
    rows = config.privacy.unit is PrivacyUnit.RECORD
    outer = scatter_spec(n_features, share, geometry, meaning=LENGTHS if rows else SPREAD)
    return (outer, vector_spec("rows", (1,), ROWS_SHARE, meaning=N_UNITS)) if _counts_rows(config) else (outer,)


def _counts_rows(config: FitConfig) -> bool:
    """Returns whether a noisy number of rows (clients) is released."""
    return config.privacy.allocation is Allocation.TUNED and config.data.public_rows is None


def _round(name: str, *releases: ReleaseSpec) -> RoundSpec:
    """Creates a round of FedDP-Init."""
    return RoundSpec(path=f"{NAME}/{name}", releases=releases)


def _extra_shares(config: FitConfig) -> dict[str, float]:
    """Returns the shares of the whole budget for the optional parts."""
    extra = {}
    if config.clipping.norm is ClippingRule.PRIVATE:
        extra["norms"] = PRIVATE_NORM_SHARE
    if config.quality is not None:
        extra["quality"] = config.quality.share
    if config.lloyd.steps:
        extra["lloyd"] = config.lloyd.share
    return extra


def rounds(config: FitConfig, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of a job, in order; `plan` was made from `round_specs` of the same config."""
    return tuple(_bind(config, each) for each in plan.rounds)


def _bind(config: FitConfig, plan: RoundPlan) -> Round:
    """Joins a round's plan with its statistic and its server step."""
    name = plan.path.rpartition("/")[2]
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
        histogram = functools.partial(histogram_statistic, l1=lloyd.clips_l1(plan))
        return Round(plan, histogram, feddp_server.weights_step, lattice.SUM_BITS)
    return lloyd.bind_means(plan, absolute=False) if name == "centers" else lloyd.bind(config, plan)


def outer_statistic(block: ClientBlock, state: FedDPState, *, counted: bool) -> NDArray[np.int64]:
    """Computes the scatter (upper triangle), followed by the number of rows or clients if `counted`."""
    statistics = of_unit(state.privacy_unit)
    scatter = statistics.outer_product(block, state.frame, state.bounds.scatter, relative=False)
    return np.concatenate([scatter, statistics.count(block)]) if counted else scatter


def norm_statistic(block: ClientBlock, state: FedDPState) -> NDArray[np.int64]:
    """Counts rows (fractions of clients) per bin of the norm."""
    return of_unit(state.privacy_unit).norm_histogram(block, state.frame.lattice.center)


def histogram_statistic(block: ClientBlock, state: FedDPState, *, l1: bool) -> NDArray[np.int64]:
    """Counts rows by nearest server point; clients are clipped in L1 or, as fractions of their rows, in L2."""
    form = of_unit(state.privacy_unit).histogram
    return form(block, state.frame, state.known_assigner, state.bounds.histogram, relative=not l1)


PROTOCOL = RoundsProtocol(
    title="FedDP-KMeans",
    reads_server=True,
    sells_cost=True,
    initial_state=feddp_server.initial_state,
    round_specs=round_specs,
    allocation=allocation_as_asked,
    rounds=rounds,
)
