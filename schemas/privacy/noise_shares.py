"""Shares of the noise of a masked sum, split among the senders so that none of them knows all of it."""

import dataclasses
import math
from fractions import Fraction
from typing import Annotated

import pydantic
from pydantic import Field

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.settings.json_schema import FILE_CONTENT

MOST_CORRUPT = 0.5
"""Largest supported share of colluding senders; no guarantee here survives a colluding majority."""
CorruptShare = Annotated[float, Field(ge=0.0, le=MOST_CORRUPT)]
DropoutShare = Annotated[float, Field(ge=0.0, lt=1.0)]
_MANY = 10_000
ZEROED_OUT = "zeroed_out"
"""Neighboring relation: one unit is left out of its sender's statistic; the sender sends in both cases."""


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShareLaw:
    """Size of each sender's noise share, such that the remaining senders still add all of the noise.

    Attributes:
      threshold: the fewest senders that a sum may include.
      corrupt: largest share of the listed senders who may collude with the server; 0 without a list.
      dropout: largest share of the listed senders who may drop out; None if no list exists before noise is drawn.
        Then `threshold` alone is the number that remains.
    """

    threshold: Annotated[int, Field(ge=1, lt=1 << 62)]
    corrupt: CorruptShare = 0.0
    dropout: DropoutShare | None = None

    def fewest(self, n_listed: int | None) -> int:
        """Returns the fewest senders that a sum may include.

        Args:
          n_listed: number of senders listed before shares were drawn; None without a list.
        """
        if self.dropout is None or n_listed is None:
            return self.threshold
        return max(self.threshold, n_listed - n_gone(self.dropout, n_listed))

    def counted(self, n_listed: int | None) -> int:
        """Returns the number of shares that together have the planned variance: the fewest honest senders of a sum.

        All colluders may be present, so their full number is subtracted, not their share.

        Raises:
          ProtocolError: if no sender would remain.
        """
        counted = self.fewest(n_listed) - self._n_corrupt(n_listed)
        if counted < 1:
            raise ProtocolError(
                f"none of {n_listed} senders is left if masked.dropout and masked.corrupt are subtracted; wait for "
                "more senders."
            )
        return counted

    @property
    def is_whole(self) -> bool:
        """True if each share is all of the noise, for any number of senders."""
        return self.dropout is None and self.threshold == 1

    def factors(self) -> tuple[float, float] | None:
        """Ratios of the variance of a sum of many senders to the planned one; None without a list.

        Returns:
          The largest ratio, if nobody drops out, and the ratio if as many drop out as may.
        """
        if self.dropout is None:
            return None
        law = dataclasses.replace(self, threshold=1)
        counted = law.counted(_MANY)
        return _MANY / counted, law.fewest(_MANY) / counted

    def _n_corrupt(self, n_listed: int | None) -> int:
        """Returns the largest number of senders that may collude."""
        return 0 if n_listed is None else n_corrupt(self.corrupt, n_listed)

    def quorum(self, n_parties: int) -> int:
        """Returns how many parties must sign one list of present senders, so that no two lists can have enough.

        Two quorums share more parties than may collude, and an honest party signs only one list.
        """
        return (n_parties + n_corrupt(self.corrupt, n_parties)) // 2 + 1

    def check_present(self, n_present: int, n_listed: int | None) -> None:
        """Refuses a sum whose shares add less noise than planned.

        Raises:
          ProtocolError: if there are too few senders; their masks stay in the sum.
        """
        fewest = self.fewest(n_listed)
        if n_present < fewest:
            raise ProtocolError(
                f"a sum must have noise shares of at least {fewest} senders (masked.threshold, masked.dropout), got "
                "fewer; it stays masked, so open a new run."
            )


def n_corrupt(share: float, n: int) -> int:
    """Returns the largest number of n senders or parties that may collude; all code gets that number here.

    Args:
      share: the largest share of colluders, a decimal number.
      n: number of senders or parties.
    """
    return math.floor(_exact(share) * n)


def n_gone(share: float, n: int) -> int:
    """Returns the largest number of n senders that may drop out, given the largest share."""
    return math.ceil(_exact(share) * n)


def _exact(rate: float) -> Fraction:
    """Returns the exact value of the shortest decimal number that reads back as `rate`."""
    return Fraction(repr(float(rate)))
