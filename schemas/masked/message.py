"""What clients send in masked aggregation."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


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
