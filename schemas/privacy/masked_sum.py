"""A sum whose summands are masked, before and after the noise stage."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.privacy.release import Release


class MaskedSum(NamedTuple):
    """The sum of masked messages; uniform on Z_2^64 to whoever lacks the masks.

    Attributes:
      values: int64, shape (size,), wrapping.
      senders: pseudonyms of those who were present.
      tags: of their messages, in the same order.
    """

    values: NDArray[np.int64]
    senders: tuple[bytes, ...]
    tags: tuple[bytes, ...]


class MaskedReleases(NamedTuple):
    """The noised masked sum: nothing to read before the masks of those present are subtracted.

    Attributes:
      releases: of one round; `values` are masked.
      senders: pseudonyms of those who were present, the final set of the round.
      tags: of their messages, in the same order.
    """

    releases: tuple[Release, ...]
    senders: tuple[bytes, ...]
    tags: tuple[bytes, ...]
