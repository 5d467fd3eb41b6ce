"""What clients send in masked aggregation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ProtocolError


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

    @classmethod
    def joined(cls, batches: Sequence["MaskedMessages"]) -> "MaskedMessages":
        """All messages of some batches, at least one, in the order of their senders.

        Raises:
          ProtocolError: if a sender has two.
        """
        senders = [sender for batch in batches for sender in batch.senders]
        tags = [tag for batch in batches for tag in batch.tags]
        order = sorted(range(len(senders)), key=senders.__getitem__)
        if len(set(senders)) < len(senders):
            raise ProtocolError(
                "a sender must send one message in a round, got two of the same; with privacy unit client group the "
                "rows by client first (dapple prepare)."
            )
        values = np.concatenate([batch.values for batch in batches])[order]
        return cls(tuple(senders[each] for each in order), tuple(tags[each] for each in order), values)
