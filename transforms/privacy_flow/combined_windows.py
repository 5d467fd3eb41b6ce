"""Windows of an epoch under masks in a graph: which sums must be combined, by which weights, and who keeps which half.

A statistic of one window states the sensitivity of an epoch, since its sums are combined with those of the windows
before it. So its sum must be combined once, by the weights that it states, before it is noised. The masked sums and the
totals of masks are the two halves of the exact sums: no step may be handed both, and they lie in different places under
different keys.
"""

from collections.abc import Sequence
from typing import Any

from schemas.errors import PrivacyFlowError
from schemas.privacy.plan import RoundPlan
from schemas.privacy.window_halves import MaskedSums, MaskTotals, WindowHalf
from transforms.privacy_flow import audited_code
from transforms.privacy_flow.rules import Role
from transforms.privacy_flow.stated_sensitivity import UNCOMBINED, weights_of
from transforms.privacy_flow.step import Step, Trace


class CombinedWindows:
    """Remembers the statistics of windows step by step, and what combines their sums."""

    def __init__(self) -> None:
        self._weights: dict[str, tuple[int, ...]] = {}
        self._sums: list[MaskedSums] = []
        self._masks: list[MaskTotals] = []

    def measure(self, name: str | None, statistic: Any, plan: RoundPlan) -> None:
        """Remembers a statistic whose sums must be combined."""
        if name in UNCOMBINED:
            self._weights[plan.path] = weights_of(statistic)

    def look(self, step: Step) -> None:
        """Looks at the halves that a step is handed; raises PrivacyFlowError."""
        halves, role = _halves(step), step.rule.role
        sums = [each for each in halves if isinstance(each, MaskedSums)]
        masks = [each for each in halves if isinstance(each, MaskTotals)]
        if sums and (masks or role is not Role.COMBINE):
            raise step.refused(
                "be handed masked sums of windows only to combine them, and no masks, got others",
                "leave them with the aggregator",
            )
        if role is Role.COMBINE:
            self._combine(step, sums)
        elif role is Role.UNMASK and (masks or self._sums):
            self._unmask(step, masks)

    def check_noised(self, step: Step, given: Trace, plans: Sequence[RoundPlan]) -> None:
        """Stops at noise for a sum that is not combined as its statistic says."""
        if any((plan.path in self._weights) is not given.combined for plan in plans):
            raise step.refused(
                "be given sums of windows that were combined once, and no others that were, got something else",
                "combine them by the weights of their statistic",
            )

    def check_end(self) -> None:
        """Stops at sums that were combined and whose masks were not, or the other way round."""
        if len(self._sums) != len(self._masks):
            raise PrivacyFlowError(
                f"masked sums of windows must be unmasked once each, got {len(self._sums)} of the one and "
                f"{len(self._masks)} of the other; combine sums and masks alike."
            )

    def _combine(self, step: Step, sums: list[MaskedSums]) -> None:
        """The one sum of a window, not combined yet, by its own weights."""
        given = step.mains[0] if len(step.mains) == 1 else None
        if given is None or not isinstance(given.origin, tuple) or given.combined or not given.summed:
            raise step.refused("be given the sum of one window, got something else", "combine the sum itself")
        wanted = {self._weights.get(plan.path) for _, plan in given.origin}
        if len(sums) != 1 or wanted != {sums[0].weights} or given.copies != 1:
            raise step.refused("combine by the weights that the statistic states, got others", "give both one plan")
        self._sums += sums

    def _unmask(self, step: Step, masks: list[MaskTotals]) -> None:
        """Masks are combined as the sums are, in another place and under another key."""
        sums = self._sums[-1] if self._sums else None
        if sums is None or len(masks) != 1 or not _fit(sums, masks[0]):
            raise step.refused(
                "combine masks as the sums are combined, in another folder and under another key, got something else",
                "give both halves of one epoch",
            )
        self._masks += masks


def _fit(sums: MaskedSums, masks: MaskTotals) -> bool:
    """Whether two halves are of one window, and lie apart."""
    same = (sums.epoch, sums.index, sums.weights) == (masks.epoch, masks.index, masks.weights)
    return same and sums.folder != masks.folder and sums.key_uri != masks.key_uri


def _halves(step: Step) -> list[WindowHalf]:
    """The halves that a step is handed, by itself or with how it masks."""
    handed = list(audited_code.handed(step.transform))
    handed += [getattr(each, "masks", None) for each in handed]
    return [each for each in handed if isinstance(each, WindowHalf)]
