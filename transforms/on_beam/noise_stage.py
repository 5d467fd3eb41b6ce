"""The noise stage: the only transforms through which private sums become public.

`transforms/masked/noise_stages.py` has those of masked sums. Input: int64 array of shape (plan.size,), exactly one
element. Output: a tuple of `Release`, one per aggregate of the plan. Each release has the law in the plan, is the same
when a bundle is retried, and shares its noise with no other sum.
"""

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow

from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.transforms.core import keys, noise
from dapple_dp.transforms.core.keys import KeySource
from dapple_dp.transforms.on_beam.workers import HeldKeyFn

_LOGGER = logging.getLogger(__name__)


class DrawFn(HeldKeyFn):
    """Draws noise under the run key; `plan` is that of one round, or a dict of those of several runs' rounds."""

    def __init__(self, plan: Any, key_source: KeySource):
        super().__init__(key_source)
        self._plan = plan

    def _draw(self, plan: RoundPlan, exact_sum: np.ndarray, window: Any = None) -> tuple[Release, ...]:
        key = self._held_key()
        if window not in (None, GlobalWindow()):
            key = keys.window_key(key, window.start.micros, window.end.micros)
        return noise.draw_release(key, plan, exact_sum)


class _AddNoiseFn(DrawFn):
    """Draws the noise of one round, in each window under a key of its own."""

    def process(
        self, exact_sum: np.ndarray, window: Any = beam.DoFn.WindowParam, pane: Any = beam.DoFn.PaneInfoParam
    ) -> Iterator[tuple[Release, ...]]:
        """Yields the releases of a sum; refuses a further pane of its window, which would be released again."""
        if pane.index:
            raise PrivacyFlowError("a window must have one sum, got a second one; let its trigger fire once.")
        yield self._draw(self._plan, exact_sum, window)
        _LOGGER.info("released %s", self._plan.path)


class _AddKeyedNoiseFn(DrawFn):
    """Draws the noise of one round of each of several runs."""

    def process(self, keyed_sum: tuple[int, np.ndarray]) -> Iterator[tuple[int, tuple[Release, ...]]]:
        number, exact_sum = keyed_sum
        yield number, self._draw(self._plan[number], exact_sum)


@dataclasses.dataclass(eq=False, kw_only=True)
class AddNoise(beam.PTransform):
    """Adds noise to the exact sum of a round; the output is its releases.

    Attributes:
      plan: must have the sensitivities of the statistic that was summed, under the masks if any.
      key_source: finds the key of the party that draws.

    Windowing: any of one pane; keyed sums are in the global window. Cost: no shuffle, one element a window or run.
    """

    plan: RoundPlan | dict[int, RoundPlan]
    key_source: KeySource
    _draws: ClassVar[type[DrawFn]] = _AddNoiseFn

    def expand(self, exact: beam.PCollection) -> beam.PCollection:
        """Adds the step."""
        return exact | "Draw" >> beam.ParDo(self._draws(self.plan, self.key_source))


class AddKeyedNoise(AddNoise):
    """Adds noise to the exact sums of one round of several runs, keyed by their number.

    `plan` holds the plan of each run's round by number; their paths differ, so that no two share noise.
    """

    _draws = _AddKeyedNoiseFn
