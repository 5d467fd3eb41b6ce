"""Lloyd's rounds on absolute sums: SuLloyd, GLloyd, and without noise. FastLloyd's paper compares them with its own.

Rounds start from a packing of spheres. `su` adds Laplace noise, whose epsilons are split between sums and counts, `g`
Gaussian noise, and `lloyd` none.

Source: Su, Cao, Li, Bertino, Jin (2016), "Differentially private k-means clustering", Section 3, for `su`; Diaa,
Humphries, Kerschbaum (2025), Appendix B.1, for `g`, and Section 6 for `lloyd`.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Allocation, Mechanism, PrivacyPlan, PrivacyUnit, RoundSpec
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.statistics import lattice, rows
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings, lattice_centers
from dapple_dp.transforms.kmeans.lloyd.specs import COUNTS, SUMS, vector_spec
from dapple_dp.transforms.numerics.kmeans import folding, lloyd_rules

RHO = 0.225
"""Mean distance of a center's coordinate from the middle of the domain, in sides."""


def sums_weight(variant: str, n_features: int) -> float:
    """Share of the sums if that of the counts is 1: of 1 / multiplier^2 for `g`, of the epsilon for `su`."""
    if variant == "g":
        return math.sqrt(n_features) / (2.0 * RHO)
    return float(n_features / (4.0 * n_features * RHO**2) ** (1.0 / 3.0))


def n_rounds(variant: str, settings: LloydSettings, epsilon: float, n_features: int) -> int:
    """Rounds whose error stays small: Diaa et al., Equation 33, for `g`; Su et al., Section 3, for `su`."""
    assert settings.public_rows is not None
    squared = settings.public_rows**2 * lloyd_rules.MEAN_SQUARED_ERROR / settings.n_clusters**3
    if variant == "g":
        most = squared / (n_features * (settings.noise_multiplier * (2.0 * RHO + math.sqrt(n_features))) ** 2)
    else:
        most = epsilon / math.sqrt(2.0 / squared * (n_features + (4.0 * n_features * RHO**2) ** (1.0 / 3.0)) ** 3)
    return int(min(max(most, lloyd_rules.FEWEST_ROUNDS), lloyd_rules.MOST_ROUNDS))


def planned(variant: str, config: DPLloydFit, n_features: int) -> PrivacyPlan:
    """Calibrated rounds of `su` or `g`, for privacy unit record."""
    settings, privacy, weight = LloydSettings.from_config(config), config.privacy, sums_weight(variant, n_features)
    steps, laplace = n_rounds(variant, settings, privacy.epsilon, n_features), variant == "su"
    share = 1.0 / steps / (weight + 1.0)
    mechanism = Mechanism.DISCRETE_LAPLACE if laplace else Mechanism.DISCRETE_GAUSSIAN
    shape = (settings.n_clusters, n_features)
    sums = vector_spec("sums", shape, share * weight, mechanism, meaning=SUMS)
    if laplace:
        # The L1 norm of a row is at most sqrt(d) times its L2 norm.
        sums = dataclasses.replace(sums, sensitivity=math.isqrt(n_features * rows.SUM_SENSITIVITY**2))
    releases = (sums, vector_spec("counts", shape[:1], share, mechanism, meaning=COUNTS))
    specs = [RoundSpec(path=f"dp_lloyd/lloyd_{step:02d}", releases=releases) for step in range(steps)]
    allocation = Allocation.PAPER if laplace else Allocation.TUNED
    return accounting.calibrate(PrivacyUnit.RECORD, specs, privacy.epsilon, privacy.delta, allocation)


def statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Sums per cluster, measured from the middle of the domain, then counts."""
    norm = state.frame.lattice.clipping_norm
    return rows.sums_and_counts(block, state.frame, Assigner(state.known_centers), norm, 1.0)


def without_noise(state: LloydState, block: ClientBlock) -> Any:
    """Centers after seven rounds without noise, shape (k, d); one without rows stays. They are not private."""
    n_clusters, n_features = state.known_centers.shape
    for _ in range(lloyd_rules.MOST_ROUNDS):
        exact = statistic(block, state)
        sums = exact[: n_clusters * n_features].reshape(n_clusters, n_features) * state.unit
        counts = exact[n_clusters * n_features :, None] / lattice.SUM_UNITS
        means = np.where(counts > 0.0, sums / np.where(counts > 0.0, counts, 1.0), state.known_centers * state.unit)
        inside = folding.fold(means, state.settings.box.half_side)
        state = dataclasses.replace(state, centers=lattice_centers(state.frame, inside))
    return state.positions
