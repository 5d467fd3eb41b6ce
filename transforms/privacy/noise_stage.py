"""The noise stage: exact int64 sums in, tuples of `Release` out.

These are the only transforms through which private sums become public. Input element: int64 array of shape
(plan.size,), exactly one. Output element: tuple of `Release`, one per aggregate of the plan. Guarantee: each
release has the law the plan states, is the same when a bundle is retried, and shares its noise with no other sum.

Where senders split the noise, `AddNoiseShares` gives each statistic its share before masks. `JoinShares` lets the sum
pass if it has enough of them, and draws nothing. Neither makes anything public before the sum is unmasked.
"""

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from schemas.privacy.noise_shares import ShareLaw
from schemas.privacy.plan import RoundPlan
from schemas.privacy.release import MaskedReleases, MaskedSum, Release
from transforms.numerics.privacy import noise, noise_shares
from transforms.privacy.held_key import HeldKeyFn

_LOGGER = logging.getLogger(__name__)


class _DrawFn(HeldKeyFn):
    """Draws noise under the run key: by the plan of one round, or by those of several runs' rounds."""

    def __init__(self, plan: Any, key_uri: str):
        super().__init__(key_uri)
        self._plan = plan

    def _draw(self, plan: RoundPlan, exact_sum: np.ndarray) -> tuple[Release, ...]:
        """The releases of a round."""
        return noise.draw_release(self._held_key(), plan, exact_sum)


class _AddNoiseFn(_DrawFn):
    """Draws the noise of one round."""

    def process(self, exact_sum: np.ndarray) -> Iterator[tuple[Release, ...]]:
        """Adds the noise of this round."""
        yield self._draw(self._plan, exact_sum)
        _LOGGER.info("released %s", self._plan.path)


class _AddKeyedNoiseFn(_DrawFn):
    """Draws the noise of one round of each of several runs."""

    def process(self, keyed_sum: tuple) -> Iterator[tuple[int, tuple]]:
        number, exact_sum = keyed_sum
        yield number, self._draw(self._plan[number], exact_sum)


class _AddMaskedNoiseFn(_DrawFn):
    """Draws the noise of one round, bound to a masked sum."""

    def process(self, total: MaskedSum) -> Iterator[MaskedReleases]:
        """Adds the noise of this round in the ring; who was present goes along."""
        yield MaskedReleases(self._draw(self._plan, total.values), total.senders, total.tags)


class _AddFurtherNoiseFn(_DrawFn):
    """Draws a second noise of one round."""

    def process(self, releases: tuple) -> Iterator[tuple[Release, ...]]:
        """Adds noise of the planned law once more."""
        yield noise.add_further_noise(self._held_key(), self._plan, releases)


@dataclasses.dataclass(eq=False, kw_only=True)
class AddNoise(beam.PTransform):
    """Exact sum of a round → its releases.

    Attributes:
      plan: what is promised; sensitivities are those of the statistic that was summed, under the masks if any.
      key_uri: where workers find the key of the party that draws.

    Windowing: global. Cost: no shuffle, one element, or one per run.
    """

    plan: RoundPlan | dict[int, RoundPlan]
    key_uri: str
    _draws: ClassVar[type[_DrawFn]] = _AddNoiseFn

    def expand(self, exact: beam.PCollection) -> beam.PCollection:
        """Adds the noise in a stage of its own."""
        return exact | "Draw" >> beam.ParDo(self._draws(self.plan, self.key_uri))


class AddKeyedNoise(AddNoise):
    """Exact sums of one round of several runs, keyed by their number → their releases, under the same keys.

    `plan` holds the plan of each run's round by number; their paths differ, so that no two share noise.
    """

    _draws = _AddKeyedNoiseFn


class AddMaskedNoise(AddNoise):
    """`MaskedSum` of a round → `MaskedReleases`: the noise of `AddNoise`, bound to the masked sum."""

    _draws = _AddMaskedNoiseFn


class AddFurtherNoise(AddNoise):
    """Releases of a round → the same with full noise of the same law once more, under another key.

    Anyone who knows one of the two keys is still kept from the sum by the other noise; the releases state both.
    """

    _draws = _AddFurtherNoiseFn


class _AddSharesFn(HeldKeyFn):
    """Draws each sender's share of the noise of a round, under the key of its party."""

    def __init__(self, plan: RoundPlan, shares: ShareLaw, key_uri: str):
        super().__init__(key_uri)
        self._plan = plan
        self._shares = shares

    def process(self, named: tuple, n_listed: int | None = None) -> Iterator[tuple]:
        """(names of senders, statistics with their shares), of one length."""
        names, statistics = named
        noised, counted = statistics.copy(), self._shares.counted(n_listed)
        for name, row in zip(names, noised, strict=True):
            row += noise_shares.draw_share(self._held_key(), name, self._plan, row, counted)
        yield names, noised


@dataclasses.dataclass(eq=False, kw_only=True)
class AddNoiseShares(beam.PTransform):
    """(names, int64 statistics of shape (n_names, plan.size)) of senders → the same, each with its share of the noise.

    Attributes:
      plan: noise of the round, all shares together.
      shares: how it is split.
      key_uri: where workers find the key of the senders' party; no other party has it.
      n_listed: PCollection of one number, of those who were listed before; None where nobody is.

    Windowing: global. Privacy: what comes out is as private as what goes in; only a sum of enough shares is noised.
    Cost: one draw of the statistic's size per sender.
    """

    plan: RoundPlan
    shares: ShareLaw
    key_uri: str
    n_listed: beam.PCollection | None = None

    def expand(self, named: beam.PCollection) -> beam.PCollection:
        """Adds shares in a stage of its own."""
        known = () if self.n_listed is None else (AsSingleton(self.n_listed),)
        return named | "Draw" >> beam.ParDo(_AddSharesFn(self.plan, self.shares, self.key_uri), *known)


def _joined(total: MaskedSum, n_listed: int | None, plan: RoundPlan, shares: ShareLaw) -> MaskedReleases:
    """The sum as releases; raises ProtocolError if too few shares are in it."""
    shares.check_present(len(total.senders), n_listed)
    return MaskedReleases(noise.releases_of(plan, total.values), total.senders, total.tags)


@dataclasses.dataclass(eq=False, kw_only=True)
class JoinShares(beam.PTransform):
    """`MaskedSum` of statistics with shares → `MaskedReleases`, whose noise is the sum of the shares.

    Attributes:
      plan: what is promised.
      shares: how its noise is split.
      n_listed: PCollection of one number, of those who were listed before; None where nobody is.

    Windowing: global. Cost: no shuffle, one element.
    """

    plan: RoundPlan
    shares: ShareLaw
    n_listed: beam.PCollection | None = None

    def expand(self, total: beam.PCollection) -> beam.PCollection:
        """Counts the shares."""
        n_listed = None if self.n_listed is None else AsSingleton(self.n_listed)
        return total | "Join" >> beam.Map(_joined, n_listed, self.plan, self.shares)
