"""Public rules of DP-Lloyd: box, radius, split of the budget between sums and counts, number of rounds.

Notation: the domain is [-1, 1]^d (lengths in half sides), n rows (clients), k clusters, z the noise multiplier that
the whole budget of the rounds would buy one Gaussian release.
Source: Su, Cao, Li, Bertino, Jin (2016), "Differentially private k-means clustering", Section 3, for `su`; Diaa,
Humphries, Kerschbaum (2025), "FastLloyd", Section 5.5 for `fast` and Appendix B.1 for `g`.
"""

import math
from typing import NamedTuple

from dapple_dp.schemas.choices import LloydVariant
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydConfig
from dapple_dp.transforms.core.statistics.frame import Box

RHO = 0.225
"""Mean distance of a center's coordinate from the middle of the domain, in sides."""
MEAN_SQUARED_ERROR = 0.004
"""Expected squared error of a center that one round may have, in squared half sides."""
FEWEST_ROUNDS = 2
MOST_ROUNDS = 7


class Problem(NamedTuple):
    """Inputs of the rules: n_rows (None if it is not public), n_clusters, n_features, and the budget of the rounds.

    Attributes:
      noise_multiplier: z, > 0.
      epsilon: of the rounds, > 0; read by variant `su` only.
    """

    n_rows: int | None
    n_clusters: int
    n_features: int
    noise_multiplier: float
    epsilon: float


def box_of(options: DPLloydConfig) -> Box:
    """Returns the box in which rows are clustered: the domain, or the range of mapped columns; made only here."""
    return Box(*options.interval)


def radius(n_clusters: int, n_features: int, factor: float) -> float:
    """Returns `factor` times half the diagonal of a cube with 1/k of the domain's volume, half sides.

    Source: Diaa et al. (2025), Equation 25.
    """
    return factor * math.sqrt(n_features) / n_clusters ** (1.0 / n_features)


def sums_weight(variant: LloydVariant, n_features: int) -> float:
    """Returns the share of the sums if that of the counts is 1.

    Shares are 1 / noise multiplier^2 for Gaussian noise (Diaa et al., Equations 19 and 31), epsilons for Laplace
    noise (Su et al.: that of the counts is (4 d rho^2)^(1/3) times that of one coordinate).
    """
    if variant is LloydVariant.FAST:
        return math.sqrt(4.0 * n_features)
    if variant is LloydVariant.G:
        return math.sqrt(n_features) / (2.0 * RHO)
    return float(n_features / (4.0 * n_features * RHO**2) ** (1.0 / 3.0))


def n_rounds(variant: LloydVariant, problem: Problem, scaled_radius: float, fewest: int) -> int:
    """Returns the number of rounds whose error stays below `MEAN_SQUARED_ERROR` each, from `fewest` to `MOST_ROUNDS`.

    Args:
      variant: `fast`, `g` or `su`.
      problem: sizes and noise.
      scaled_radius: radius in half sides.
      fewest: used unchanged if n is not public: the number of rounds is visible, so it can't follow a private count.

    Source: Diaa et al. (2025), Equations 21 and 33; Su et al. (2016), Section 3.
    """
    if problem.n_rows is None:
        return fewest
    dims, squared = problem.n_features, problem.n_rows**2 * MEAN_SQUARED_ERROR / problem.n_clusters**3
    if variant is LloydVariant.FAST:
        spread = scaled_radius * problem.noise_multiplier * (1.0 + math.sqrt(4.0 * dims))
        most = 4.0 * squared / spread**2
    elif variant is LloydVariant.G:
        most = squared / (dims * (problem.noise_multiplier * (2.0 * RHO + math.sqrt(dims))) ** 2)
    else:
        least = math.sqrt(2.0 / squared * (dims + (4.0 * dims * RHO**2) ** (1.0 / 3.0)) ** 3)
        most = problem.epsilon / least
    return int(min(max(most, fewest), MOST_ROUNDS))
