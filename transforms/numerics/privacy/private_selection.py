"""The exponential mechanism on the number of rows that a model classifies correctly."""

import math

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.privacy.keystream import KeyStream
from transforms.numerics.privacy.normal import gumbels


def select(counts: NDArray[np.int64], epsilon: float, stream: KeyStream) -> int:
    """An index m, drawn with probability proportional to exp(epsilon * counts[m] / 2).

    One row more, less or replaced moves every count by at most 1, so the draw is epsilon-DP and
    (epsilon^2 / 8)-zCDP. Gumbel noise of scale 2 / epsilon and the largest sum draw the same law.

    Args:
      counts: shape (n_models,); n_models >= 1.
      epsilon: > 0; infinity selects the largest count, ties to the smallest index.
      stream: names this call and nothing else.

    Source: McSherry, Talwar (2007); Rogers, Steinke (2021), "A better privacy analysis of the exponential mechanism".
    """
    if math.isinf(epsilon):
        return int(np.argmax(counts))
    return int(np.argmax(counts + 2.0 / epsilon * gumbels(stream, len(counts))))
