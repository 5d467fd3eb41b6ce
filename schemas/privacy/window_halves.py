"""Where the two halves of the exact sums of windows lie: what each role keeps of an epoch under masks.

The aggregator keeps the masked sum of each window, the clients' role the total of its masks. One less the other is the
exact sum of the window, so no step may be handed both. The privacy-flow checker knows the two types apart.
"""

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WindowHalf:
    """One role's halves of the last windows of an epoch.

    Attributes:
      folder: private, of the run: halves of earlier windows lie there, and that of this window goes there.
      key_uri: where workers of the role find the kept key that seals and opens; it draws nothing.
      epoch: what tells the epoch from others, canonical JSON.
      index: number of the window of the run.
      weights: of the ages, by which sums of windows are combined; at least one.
    """

    NAME: ClassVar[str] = ""
    folder: str
    key_uri: str
    epoch: str
    index: int
    weights: tuple[int, ...]

    @property
    def earlier(self) -> tuple[int, ...]:
        """Numbers of the windows before it that its release adds up, the youngest first."""
        return tuple(self.index - age for age in range(1, min(len(self.weights), self.index + 1)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSums(WindowHalf):
    """The aggregator's: sums of masked messages, uniform to whoever lacks the masks."""

    NAME: ClassVar[str] = "sums"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MaskTotals(WindowHalf):
    """The clients' role's: totals of the masks in these sums, which say nothing to whoever lacks the secret."""

    NAME: ClassVar[str] = "masks"
