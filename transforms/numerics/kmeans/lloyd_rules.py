"""Public rules of DP-Lloyd: box, radius, split of the budget between sums and counts, number of rounds.

Notation: the domain is [-1, 1]^d (lengths in half sides), n rows (clients), k clusters, z the noise multiplier that
the whole budget of the rounds would buy one Gaussian release.
Source: Diaa, Humphries, Kerschbaum (2025), "FastLloyd", Section 5.5.
"""

import math
from typing import NamedTuple

from dapple_dp.schemas.kmeans.lloyd_config import DPLloydConfig
from dapple_dp.transforms.core.statistics.frame import Box

MEAN_SQUARED_ERROR = 0.004
"""Expected squared error of a center that one round may have, in squared half sides."""
FEWEST_ROUNDS = 2
MOST_ROUNDS = 7


class Problem(NamedTuple):
    """Inputs of the rules: n_rows (None if it is not public), n_clusters, n_features, and z > 0."""

    n_rows: int | None
    n_clusters: int
    n_features: int
    noise_multiplier: float


def box_of(options: DPLloydConfig) -> Box:
    """Returns the box in which rows are clustered: the domain, or the range of mapped columns; made only here."""
    return Box(*options.interval)


def radius(n_clusters: int, n_features: int, factor: float) -> float:
    """Returns `factor` times half the diagonal of a cube with 1/k of the domain's volume, half sides.

    Source: Diaa et al. (2025), Equation 25.
    """
    return factor * math.sqrt(n_features) / n_clusters ** (1.0 / n_features)


def sums_weight(n_features: int) -> float:
    """Returns the share of the sums, 1 / noise multiplier^2, if that of the counts is 1 (Diaa et al., Equation 19)."""
    return math.sqrt(4.0 * n_features)


def n_rounds(problem: Problem, scaled_radius: float, fewest: int) -> int:
    """Returns the number of rounds whose error stays below `MEAN_SQUARED_ERROR` each, from `fewest` to `MOST_ROUNDS`.

    Args:
      problem: sizes and noise.
      scaled_radius: radius in half sides.
      fewest: used unchanged if n is not public: the number of rounds is visible, so it can't follow a private count.

    Source: Diaa et al. (2025), Equation 21.
    """
    if problem.n_rows is None:
        return fewest
    dims, squared = problem.n_features, problem.n_rows**2 * MEAN_SQUARED_ERROR / problem.n_clusters**3
    spread = scaled_radius * problem.noise_multiplier * (1.0 + math.sqrt(4.0 * dims))
    return int(min(max(4.0 * squared / spread**2, fewest), MOST_ROUNDS))
