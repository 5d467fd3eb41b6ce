"""The noise stage: exact int64 sums in, tuples of `Release` out.

This is the only transform through which private sums become public. Input element: int64 array of shape
(plan.size,), exactly one. Output element: tuple of `Release`, one per aggregate of the plan. Guarantee: each
release has the law the plan states, is the same when a bundle is retried, and shares its noise with no other sum.
"""

import dataclasses
import logging
from collections.abc import Iterator

import apache_beam as beam
import numpy as np

from schemas.masked_message import MaskedReleases, MaskedSum
from schemas.plan import RoundPlan
from schemas.release import Release
from transforms.held_key import HeldKeyFn
from transforms.numerics import noise

_LOGGER = logging.getLogger(__name__)


class _NoiseFn(HeldKeyFn):
    """Draws noise under the run key."""

    def _draw(self, plan: RoundPlan, exact_sum: np.ndarray) -> tuple[Release, ...]:
        """The releases of a round."""
        return noise.draw_release(self._held_key(), plan, exact_sum)


class _RoundNoiseFn(_NoiseFn):
    """Draws by the plan of one round."""

    def __init__(self, plan: RoundPlan, key_uri: str):
        super().__init__(key_uri)
        self._plan = plan


class _AddNoiseFn(_RoundNoiseFn):
    """Draws the noise of one round."""

    def process(self, exact_sum: np.ndarray) -> Iterator[tuple[Release, ...]]:
        """Adds the noise of this round."""
        yield self._draw(self._plan, exact_sum)
        _LOGGER.info("released %s", self._plan.path)


class _AddKeyedNoiseFn(_NoiseFn):
    """Draws the noise of one round of each of several runs."""

    def __init__(self, plans: dict[int, RoundPlan], key_uri: str):
        super().__init__(key_uri)
        self._plans = plans

    def process(self, keyed_sum: tuple) -> Iterator[tuple[int, tuple]]:
        """Adds the noise of this round of one run."""
        number, exact_sum = keyed_sum
        yield number, self._draw(self._plans[number], exact_sum)


class _AddMaskedNoiseFn(_RoundNoiseFn):
    """Draws the noise of one round, bound to a masked sum."""

    def process(self, total: MaskedSum) -> Iterator[MaskedReleases]:
        """Adds the noise of this round in the ring; who was present goes along."""
        yield MaskedReleases(self._draw(self._plan, total.values), total.senders, total.tags)


class _AddFurtherNoiseFn(_RoundNoiseFn):
    """Draws a second noise of one round."""

    def process(self, releases: tuple) -> Iterator[tuple[Release, ...]]:
        """Adds noise of the planned law once more."""
        yield noise.add_further_noise(self._held_key(), self._plan, releases)


@dataclasses.dataclass(eq=False, kw_only=True)
class AddMaskedNoise(beam.PTransform):
    """`MaskedSum` of a round → `MaskedReleases`: the noise of `AddNoise`, bound to the masked sum.

    Attributes:
      plan: what is promised; sensitivities are those of the statistic under the masks.
      key_uri: where workers find the key of whoever adds up.

    Windowing: global. Cost: no shuffle, one element.
    """

    plan: RoundPlan
    key_uri: str

    def expand(self, total: beam.PCollection) -> beam.PCollection:
        """Adds the noise in a stage of its own."""
        return total | "Draw" >> beam.ParDo(_AddMaskedNoiseFn(self.plan, self.key_uri))


@dataclasses.dataclass(eq=False, kw_only=True)
class AddFurtherNoise(beam.PTransform):
    """Releases of a round → the same with full noise of the same law once more, under another key.

    Whoever knows one of the two keys is still kept from the sum by the other noise.

    Attributes:
      plan: the law; the releases that come out state the noise of both.
      key_uri: where workers find the second key.

    Windowing: global. Cost: no shuffle, one element.
    """

    plan: RoundPlan
    key_uri: str

    def expand(self, releases: beam.PCollection) -> beam.PCollection:
        """Adds the noise in a stage of its own."""
        return releases | "Draw" >> beam.ParDo(_AddFurtherNoiseFn(self.plan, self.key_uri))


@dataclasses.dataclass(eq=False, kw_only=True)
class AddNoise(beam.PTransform):
    """Exact sum of a round → its releases.

    Attributes:
      plan: what is promised; sensitivities are those of the statistic that was summed.
      key_uri: where workers find the run key.

    Windowing: global. Cost: no shuffle, one element.
    """

    plan: RoundPlan
    key_uri: str

    def expand(self, exact_sum: beam.PCollection) -> beam.PCollection:
        """Adds the noise in a stage of its own."""
        return exact_sum | "Draw" >> beam.ParDo(_AddNoiseFn(self.plan, self.key_uri))


@dataclasses.dataclass(eq=False, kw_only=True)
class AddKeyedNoise(beam.PTransform):
    """Exact sums of one round of several runs, keyed by their number → their releases, under the same keys.

    Attributes:
      plans: plan of each run's round by number; their paths differ, so that no two share noise.
      key_uri: where workers find the run key.

    Windowing: global. Cost: no shuffle, one element per run.
    """

    plans: dict[int, RoundPlan]
    key_uri: str

    def expand(self, keyed_sums: beam.PCollection) -> beam.PCollection:
        """Adds the noise in a stage of its own."""
        return keyed_sums | "Draw" >> beam.ParDo(_AddKeyedNoiseFn(self.plans, self.key_uri))
