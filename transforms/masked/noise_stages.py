"""The noise stages of masked rounds: turn masked sums into `MaskedReleases`, and add senders' shares of the noise.

If senders split the noise, `AddNoiseShares` gives each statistic its share before masks. `JoinShares` passes the sum
on if it has enough of them, and draws nothing. Neither makes anything public before the sum is unmasked.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.masked.exchange import MaskedReleases, MaskedSum
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.transforms.core.keys import KeySource
from dapple_dp.transforms.core.loop import Draw
from dapple_dp.transforms.core.noise import releases_of
from dapple_dp.transforms.numerics.masked import noise_shares
from dapple_dp.transforms.on_beam.noise_stage import AddNoise, DrawFn
from dapple_dp.transforms.on_beam.workers import HeldKeyFn


class _AddMaskedNoiseFn(DrawFn):
    """Draws the noise of one round, bound to a masked sum."""

    def process(self, total: MaskedSum) -> Iterator[MaskedReleases]:
        """Adds the noise of this round in the ring, and passes on the senders."""
        yield MaskedReleases(self._draw(self._plan, total.values), total.senders, total.tags)


class _AddFurtherNoiseFn(DrawFn):
    """Draws a second noise of one round."""

    def process(self, releases: tuple) -> Iterator[tuple[Release, ...]]:
        """Adds noise of the planned law once more."""
        yield further_noised(self._draw, self._plan, releases)


def further_noised(draw: Draw, round_plan: RoundPlan, releases: Sequence[Release]) -> tuple[Release, ...]:
    """Adds full noise of the planned law to releases that another key has noised already.

    The second noise is bound to the noised values like the first one to the sum. The plans of the result state
    the stddev of both together: sqrt(2) times that of one.

    Args:
      draw: `draw_release` under a key that is not that of the first noise.
      round_plan: the plan of the round.
      releases: all of that round, in order.
    """
    noised = np.concatenate([release.values.ravel() for release in releases])
    further = draw(dataclasses.replace(round_plan, path=f"{round_plan.path}/further"), noised)
    joint = (
        dataclasses.replace(release.plan, noise_multiplier=release.plan.noise_multiplier * math.sqrt(2.0))
        for release in further
    )
    return tuple(
        dataclasses.replace(before, values=after.values, plan=plan)
        for before, after, plan in zip(releases, further, joint, strict=True)
    )


class AddMaskedNoise(AddNoise):
    """`MaskedSum` of a round → `MaskedReleases`: the noise of `AddNoise`, bound to the masked sum."""

    _draws = _AddMaskedNoiseFn


class AddFurtherNoise(AddNoise):
    """Releases of a round → the same with full noise of the same law once more, under another key.

    The other noise still protects the sum from anyone who knows one of the two keys; the releases state both.
    """

    _draws = _AddFurtherNoiseFn


class _AddSharesFn(HeldKeyFn):
    """Draws each sender's share of the noise of a round, under the key of its party."""

    def __init__(self, plan: RoundPlan, shares: ShareLaw, key_source: KeySource):
        super().__init__(key_source)
        self._plan = plan
        self._shares = shares

    def process(self, named: tuple, n_listed: int | None = None) -> Iterator[tuple]:
        """Yields (names of senders, statistics with their shares), of one length."""
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
      shares: law by which it is split.
      key_source: key of the senders' party, which no other party has.
      n_listed: PCollection of one number, of those who were listed before; None without a list.

    Windowing: global. Privacy: the output is as private as the input; only a sum of enough shares is noised.
    Cost: one draw of the statistic's size per sender.
    """

    plan: RoundPlan
    shares: ShareLaw
    key_source: KeySource
    n_listed: beam.PCollection | None = None

    def expand(self, named: beam.PCollection) -> beam.PCollection:
        """Adds shares in a separate stage."""
        known = () if self.n_listed is None else (AsSingleton(self.n_listed),)
        return named | "Draw" >> beam.ParDo(_AddSharesFn(self.plan, self.shares, self.key_source), *known)


def _joined(total: MaskedSum, n_listed: int | None, plan: RoundPlan, shares: ShareLaw) -> MaskedReleases:
    """Returns the sum as releases; raises ProtocolError if it holds too few shares."""
    shares.check_present(len(total.senders), n_listed)
    return MaskedReleases(releases_of(plan, total.values), total.senders, total.tags)


@dataclasses.dataclass(eq=False, kw_only=True)
class JoinShares(beam.PTransform):
    """`MaskedSum` of statistics with shares → `MaskedReleases`, whose noise is the sum of the shares.

    Attributes:
      plan: the promised releases.
      shares: law by which its noise is split.
      n_listed: PCollection of one number, of those who were listed before; None without a list.

    Windowing: global. Cost: no shuffle, one element.
    """

    plan: RoundPlan
    shares: ShareLaw
    n_listed: beam.PCollection | None = None

    def expand(self, total: beam.PCollection) -> beam.PCollection:
        """Counts the shares."""
        n_listed = None if self.n_listed is None else AsSingleton(self.n_listed)
        return total | "Join" >> beam.Map(_joined, n_listed, self.plan, self.shares)
