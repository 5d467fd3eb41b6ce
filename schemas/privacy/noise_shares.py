"""How senders split the noise of a masked sum among them, so that nobody knows all of it.

A share can be a base and layers. The base is enough if nobody drops out; each layer makes up for some more who do. Once
it is final who is present, the layers that were not needed are taken away, the same of every sender.

Source: Jiang, Wang, Chen (2024), "Dordis: Efficient federated learning with dropout-resilient differential privacy",
arXiv 2209.12528, Section 3 (XNoise). There is a layer there for each sender who may drop out; here they are few.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any

from schemas.errors import ProtocolError

MOST_LAYERS = 6
"""Layers of a share beside its base, at most: 36 octets of a letter each, and noise in excess below 7% at defaults."""
MOST_CORRUPT = 0.5
"""The largest share of senders that may pool what they know: no promise here is for a majority of colluders."""
_MANY = 10_000
ZEROED_OUT = "zeroed_out"
"""The neighboring relation: one unit is left out of its sender's statistic, and its sender sends in both cases."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShareLaw:
    """Which part of the noise each sender adds: so much that those who are left have all of it.

    Attributes:
      threshold: the fewest senders that a sum may be of.
      corrupt: the largest share of those listed who may pool what they know with the server; 0 without a list.
      dropout: the largest share of those listed who may drop out; None where nobody is listed before noise is drawn.
        Then `threshold` alone says who is left.
      layers: the most layers of a share that can be removed, from 0 (all noise is kept) to `MOST_LAYERS`.
    """

    threshold: int
    corrupt: float = 0.0
    dropout: float | None = None
    layers: int = 0

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

    def counts(self, n_listed: int | None) -> tuple[int, ...]:
        """Shares that count, by the number of layers that are kept: falling, of all listed first, last `counted`.

        A share with its first j layers has the planned variance divided by entry j. Entries are whole parts of a
        geometric sequence.

        Raises:
          ProtocolError: if nobody would be left.
        """
        least = self.counted(n_listed)
        most = least if n_listed is None else n_listed - self._n_corrupt(n_listed)
        if self.layers == 0 or most <= least:
            return (least,)
        powers = (most ** (self.layers - step) * least**step for step in range(self.layers + 1))
        return tuple(sorted({_root(power, self.layers) for power in powers}, reverse=True))

    def n_kept(self, n_present: int, n_listed: int | None) -> int:
        """Layers of every share that are needed where this many are present; all others are in excess."""
        counts = self.counts(n_listed)
        enough = (step for step, count in enumerate(counts) if count <= n_present - self._n_corrupt(n_listed))
        return next(enough, len(counts) - 1)

    def counted_of(self, n_present: int, n_listed: int | None) -> int:
        """Shares, less the layers in excess, whose variances add up to that of the plan."""
        return self.counts(n_listed)[self.n_kept(n_present, n_listed)]

    @property
    def is_whole(self) -> bool:
        """Whether each share is all of the noise, however many senders there are."""
        return self.dropout is None and self.threshold == 1

    def factors(self) -> tuple[float, float, float] | None:
        """How many times the planned variance a sum of many senders has; None where nobody is listed.

        Returns:
          If nobody drops out, if as many drop out as may, and the most that it can be.
        """
        if self.dropout is None:
            return None
        law = dataclasses.replace(self, threshold=1)
        pooling, fewest = law._n_corrupt(_MANY), law.fewest(_MANY)
        tops = {_MANY, fewest, *(count - 1 + pooling for count in law.counts(_MANY)[:-1])}
        found = {present: present / law.counted_of(present, _MANY) for present in tops}
        return found[_MANY], found[fewest], max(found.values())

    def _n_corrupt(self, n_listed: int | None) -> int:
        """The most senders that may pool what they know."""
        return 0 if n_listed is None else n_corrupt(self.corrupt, n_listed)

    def quorum(self, n_parties: int) -> int:
        """Parties that must have signed one list of who is present: two lists cannot both have so many.

        Two quorums have more parties in common than may collude, and whoever follows the protocol signs one list.
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

    def to_json(self) -> dict[str, Any]:
        """Plain data; runs that keep all noise say what they said before there were layers."""
        found = dataclasses.asdict(self)
        return found if self.layers else {name: found[name] for name in found if name != "layers"}


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


def _root(power: int, degree: int) -> int:
    """The whole part of a root, exactly: all parties must come to the same one."""
    low, high = 0, 1 << (power.bit_length() // degree + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= power else (low, middle)
    return low
