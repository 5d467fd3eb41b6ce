"""The exponential mechanism on scores of models by a client's rows: how many each classifies correctly, or more."""

import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.normal import gumbels


def select(counts: NDArray[np.int64], epsilon: float, stream: KeyStream, most: int = 1) -> int:
    """Draws an index m with probability proportional to exp(epsilon * counts[m] / (2 most)).

    One row more, less or replaced moves every count by at most `most`, so the draw is epsilon-DP and
    (epsilon^2 / 8)-zCDP. Gumbel noise of scale 2 most / epsilon and the largest sum draw the same law.

    Args:
      counts: shape (n_models,); n_models >= 1.
      epsilon: > 0; infinity selects the largest count, ties to the smallest index.
      stream: unique to this call.
      most: >= 1; a row adds from 0 to this to every count.

    Source: McSherry, Talwar (2007); Rogers, Steinke (2021), "A better privacy analysis of the exponential mechanism".
    """
    if math.isinf(epsilon):
        return int(np.argmax(counts))
    return int(np.argmax(counts + 2.0 * most / epsilon * gumbels(stream, len(counts))))
