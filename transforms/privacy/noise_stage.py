"""The noise stage: exact int64 sums in, tuples of `Release` out.

This is the only transform through which private sums become public. Input element: int64 array of shape
(plan.size,), exactly one. Output element: tuple of `Release`, one per aggregate of the plan. Guarantee: each
release has the law the plan states, is the same when a bundle is retried, and shares its noise with no other sum.
"""

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np

from schemas.privacy.masked_sum import MaskedReleases, MaskedSum
from schemas.privacy.plan import RoundPlan
from schemas.privacy.release import Release
from transforms.numerics.privacy import noise
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
        """Adds the noise of this round of one run."""
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
      key_uri: where workers find the key of whoever draws.

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

    Whoever knows one of the two keys is still kept from the sum by the other noise; the releases state both.
    """

    _draws = _AddFurtherNoiseFn
