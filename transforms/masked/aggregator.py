"""The aggregator's role: adds up masked messages and noise. No mask secret and no unmasked value reaches it.

Input element: `MaskedMessages`. Output element: `MaskedReleases`, exactly one. Guarantee: the output and all
intermediate data are uniform to anyone without the masks; unmasked, the releases have the law that the plan states.
Neither this module nor its imports may import code that creates or removes masks; a test checks it.
"""

import dataclasses
from collections.abc import Iterable

import apache_beam as beam
import numpy as np

from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.errors import NotYetError, ProtocolError
from dapple_dp.schemas.masked.exchange import MaskedMessages, MaskedSum
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.transforms.masked.noise_stages import AddMaskedNoise, JoinShares
from dapple_dp.transforms.on_beam.exact_sums import GatherFn, TotalFn
from dapple_dp.transforms.privacy.key_files import KeyFile


class _Accumulator:
    """A sum that its owner adds to in place, and the messages in it."""

    __slots__ = ("senders", "tags", "values")

    def __init__(self, size: int):
        self.values = np.zeros(size, dtype=np.int64)
        self.senders: list[bytes] = []
        self.tags: list[bytes] = []

    def add(self, values: np.ndarray, senders: Iterable[bytes], tags: Iterable[bytes]) -> None:
        self.values += values
        self.senders += senders
        self.tags += tags


class SumMessagesFn(beam.CombineFn):
    """Adds masked messages in the ring Z_2^64 and lists their senders."""

    def __init__(self, size: int):
        self._size = size

    def create_accumulator(self) -> _Accumulator:
        """Creates an empty sum."""
        return _Accumulator(self._size)

    def add_input(self, accumulator: _Accumulator, element: MaskedMessages) -> _Accumulator:
        """Adds a batch of messages."""
        accumulator.add(element.values.sum(axis=0), element.senders, element.tags)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Accumulator]) -> _Accumulator:
        """Adds up into a new accumulator."""
        total = self.create_accumulator()
        for accumulator in accumulators:
            total.add(accumulator.values, accumulator.senders, accumulator.tags)
        return total

    def extract_output(self, accumulator: _Accumulator) -> MaskedSum:
        """Returns the masked sum, ordered by sender."""
        order = sorted(range(len(accumulator.senders)), key=accumulator.senders.__getitem__)
        senders = tuple(accumulator.senders[index] for index in order)
        return MaskedSum(accumulator.values, senders, tuple(accumulator.tags[index] for index in order))


def _checked(total: MaskedSum, threshold: int) -> MaskedSum:
    """Refuses two messages of one sender, or too few messages."""
    if any(left == right for left, right in zip(total.senders[:-1], total.senders[1:], strict=True)):
        raise ProtocolError("two messages of one sender have arrived in this round; remove one of them.")
    if len(total.senders) < threshold:
        raise NotYetError(
            f"fewer than {threshold} messages (threshold) have arrived in this round; wait for more clients."
        )
    return total


@dataclasses.dataclass(eq=False, kw_only=True)
class AggregateMasked(beam.PTransform):
    """`MaskedMessages` → `MaskedReleases`, one element. The input is never empty, though a batch may be.

    Attributes:
      plan: of the round; public.
      key_uri: place of the aggregator's key, for the noise stage.
      threshold: fewest messages that may be added up.
      shares: law by which senders split the noise; None if it is drawn here.
      n_listed: PCollection of one number, of the senders who were listed before; None without a list.

    Windowing: global. Cost: one shuffle of one vector and a list of tags per bundle.
    """

    plan: RoundPlan
    key_uri: str
    threshold: int = 1
    shares: ShareLaw | None = None
    n_listed: beam.PCollection | None = None

    def expand(self, messages: beam.PCollection) -> beam.PCollection:
        """Adds up in the ring, then adds the noise or counts the shares of it."""
        total = (
            messages
            | "Gather" >> beam.ParDo(GatherFn())
            | "Sum" >> beam.CombinePerKey(SumMessagesFn(self.plan.size))
            | "Total" >> beam.ParDo(TotalFn())
            | "Check" >> beam.Map(_checked, self.threshold)
        )
        if self.shares is not None:
            return total | "Shares" >> JoinShares(plan=self.plan, shares=self.shares, n_listed=self.n_listed)
        return total | "Noise" >> AddMaskedNoise(plan=self.plan, key_source=KeyFile(self.key_uri))
