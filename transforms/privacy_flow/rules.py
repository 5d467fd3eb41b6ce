"""How private a collection is, and what audited code may be given and gives back.

One rule stands for each class or function of `transforms.privacy_flow.allow_list`.
"""

import dataclasses
import enum


class Level(enum.IntEnum):
    """How private the elements of a collection are; of several inputs the highest counts.

    PUBLIC: public data, releases, and what follows from them.
    MASKED_RELEASE: a masked sum with its noise: unmasked, it is a release.
    MASKED: masked and not noised: uniform to anyone without the masks, exact to anyone who holds them.
    PRIVATE: anything else that was computed from private input.
    """

    PUBLIC = 0
    MASKED_RELEASE = 1
    MASKED = 2
    PRIVATE = 3

    @property
    def words(self) -> str:
        """What messages call it."""
        return _WORDS[self]


_WORDS = {
    Level.PUBLIC: "public data and releases",
    Level.MASKED_RELEASE: "masked sums with noise",
    Level.MASKED: "masked messages",
    Level.PRIVATE: "exact private data",
}


class Role(enum.StrEnum):
    """What the checker does besides following the level.

    STEP: nothing.
    CARRY: also remembers which statistic the elements are, or are sums of.
    SUM: adds up statistics, one sum per plan.
    COPY: also remembers that elements may come several times, so that no sum of them has the stated sensitivity.
    STATISTIC: compares the plan of its round with the sensitivity of its statistic.
    MESSAGES: elements are statistics of others, who vouch for their sensitivity.
    SHARE: compares its plan with that of the statistic of one sender, to which it adds a share of the noise.
    MASK: also stops at a statistic without the share that was promised.
    NOISE: compares its plan with that of the statistic, and counts it as spent.
    JOIN: is given the sum of statistics that all have their shares, and counts it as spent.
    DECLARED: a mechanism of its own, a `DeclaredMechanism`.
    TRUSTED: part of jobs of the trusted zone only.
    """

    STEP = "step"
    CARRY = "carry"
    SUM = "sum"
    COPY = "copy"
    STATISTIC = "statistic"
    MESSAGES = "messages"
    SHARE = "share"
    MASK = "mask"
    NOISE = "noise"
    JOIN = "join"
    DECLARED = "declared"
    TRUSTED = "trusted"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What audited code may be given, and how private what it gives is.

    Attributes:
      takes: highest level of a main input.
      sides: highest level of a side input. In jobs of the trusted zone whatever takes private data may be given any,
        unless it is part of a round.
      gives: level of the main output (of all outputs unless `role` is NOISE); None for the highest of the inputs.
      role: see `Role`.
    """

    takes: Level
    sides: Level = Level.PUBLIC
    gives: Level | None = None
    role: Role = Role.STEP
