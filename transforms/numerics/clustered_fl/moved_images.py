"""Copies of images, each moved by at most a pixel, for the first round to train on besides the images themselves.

Source: Hoffer et al. (2019), "Augment your batch: better training with larger batches". Appendix H of R-DPCFL, which
hints at augmentation in the first round, is not at hand.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError

MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
"""Moves of the copies: pixels down and to the right."""


def check_images(n_features: int) -> None:
    """Raises ConfigError unless rows can be square images."""
    if math.isqrt(n_features) ** 2 != n_features:
        raise ConfigError(
            f"the number of features must be a square for training.first_copies, got {n_features}; leave it out."
        )


def moved_images(features: NDArray[Any], copy: int) -> NDArray[Any]:
    """Returns copy number `copy` of square images; zeros move in. No row gets longer, and integers stay integers.

    Args:
      features: shape (n_rows, side * side); images row by row.
      copy: from 0, which moves nothing, to 8.
    """
    if copy == 0:
        return features
    side = math.isqrt(features.shape[1])
    images, found = features.reshape(-1, side, side), np.zeros((len(features), side, side), dtype=features.dtype)
    (down, right) = MOVES[copy]
    found[:, _to(down, side), _to(right, side)] = images[:, _to(-down, side), _to(-right, side)]
    return found.reshape(features.shape)


def _to(pixels: int, side: int) -> slice:
    """Returns the target of pixels that move this far; for the opposite move, their origin."""
    return slice(max(pixels, 0), side + min(pixels, 0))
