"""How senders split the noise of a masked sum among them, so that nobody knows all of it."""

import dataclasses
import math
from fractions import Fraction
from typing import Annotated

import pydantic
from pydantic import Field

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.settings.json_schema import FILE_CONTENT

MOST_CORRUPT = 0.5
"""The largest share of senders that may pool what they know: no promise here is for a majority of colluders."""
CorruptShare = Annotated[float, Field(ge=0.0, le=MOST_CORRUPT)]
DropoutShare = Annotated[float, Field(ge=0.0, lt=1.0)]
_MANY = 10_000
ZEROED_OUT = "zeroed_out"
"""The neighboring relation: one unit is left out of its sender's statistic, and its sender sends in both cases."""


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShareLaw:
    """Which part of the noise each sender adds: so much that those who are left have all of it.

    Attributes:
      threshold: the fewest senders that a sum may be of.
      corrupt: the largest share of those listed who may pool what they know with the server; 0 without a list.
      dropout: the largest share of those listed who may drop out; None where nobody is listed before noise is drawn.
        Then `threshold` alone says who is left.
    """

    threshold: Annotated[int, Field(ge=1, lt=1 << 62)]
    corrupt: CorruptShare = 0.0
    dropout: DropoutShare | None = None

    def fewest(self, n_listed: int | None) -> int:
        """The fewest senders that a sum may be of.

        Args:
          n_listed: of those who were listed before shares were drawn; None without a list.
        """
        if self.dropout is None or n_listed is None:
            return self.threshold
        return max(self.threshold, n_listed - n_gone(self.dropout, n_listed))

    def counted(self, n_listed: int | None) -> int:
        """Shares whose variances add up to that of the plan: of the fewest senders, those who pool nothing.

        All that collude may be among those that are present, so their number is taken off, not their share.

        Raises:
          ProtocolError: if nobody would be left.
        """
        counted = self.fewest(n_listed) - self._n_corrupt(n_listed)
        if counted < 1:
            raise ProtocolError(
                f"senders that neither drop out nor collude must be left of {n_listed} (masked.dropout, "
                "masked.corrupt), got none; wait for more of them."
            )
        return counted

    @property
    def is_whole(self) -> bool:
        """Whether each share is all of the noise, however many senders there are."""
        return self.dropout is None and self.threshold == 1

    def factors(self) -> tuple[float, float] | None:
        """How many times the planned variance a sum of many senders has; None where nobody is listed.

        Returns:
          If nobody drops out, which is the most that it can be, and if as many drop out as may.
        """
        if self.dropout is None:
            return None
        law = dataclasses.replace(self, threshold=1)
        counted = law.counted(_MANY)
        return _MANY / counted, law.fewest(_MANY) / counted

    def _n_corrupt(self, n_listed: int | None) -> int:
        """The most senders that may pool what they know."""
        return 0 if n_listed is None else n_corrupt(self.corrupt, n_listed)

    def quorum(self, n_parties: int) -> int:
        """Parties that must have signed one list of who is present: two lists cannot both have this many.

        Two quorums have more parties in common than may collude, and a party that follows the protocol signs one list.
        """
        return (n_parties + n_corrupt(self.corrupt, n_parties)) // 2 + 1

    def check_present(self, n_present: int, n_listed: int | None) -> None:
        """Stops at a sum whose shares have less noise than was planned.

        Raises:
          ProtocolError: if it is of too few senders; its masks stay.
        """
        fewest = self.fewest(n_listed)
        if n_present < fewest:
            raise ProtocolError(
                f"a sum must have noise shares of at least {fewest} senders (masked.threshold, masked.dropout), got "
                "fewer; its masks stay, open a new run."
            )


def n_corrupt(share: float, n: int) -> int:
    """The most of n senders or parties that may pool what they know: all that count them ask here.

    Args:
      share: the largest share of them, as it was written in decimal digits.
      n: how many there are.
    """
    return math.floor(_exact(share) * n)


def n_gone(share: float, n: int) -> int:
    """The most of n senders that may drop out, likewise."""
    return math.ceil(_exact(share) * n)


def _exact(rate: float) -> Fraction:
    """A rate as it was written, in decimal digits."""
    return Fraction(repr(float(rate)))
