"""What travels in masked aggregation: messages to the aggregator, their sum, and the noised sum back."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.release import Release


class MaskedMessages(NamedTuple):
    """Messages of one round as the aggregator sees them.

    Attributes:
      senders: pseudonyms in this round, one per message.
      tags: in the same order; they name the masks for those who can make them.
      values: int64, shape (n_messages, size), masked.
    """

    senders: tuple[bytes, ...]
    tags: tuple[bytes, ...]
    values: NDArray[np.int64]


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
