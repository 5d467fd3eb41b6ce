"""Faults of earlier versions in the epsilon that they stated, and which charges of a ledger they touch."""

from collections.abc import Iterable
from typing import Any

from schemas.privacy.plan import Mechanism

KNOWN = 1
"""Corrections that this version knows. A charge holds how many its own version knew."""
_RELATIVE_UNITS = 1 << 26
"""Lattice units: the sensitivity of relative sums, by which they are told from other sums."""
_SAFE_FEATURES, _SAFE_FEATURES_OF_MEAN = 1024, 4096
"""So many features were safe with centers in the clipping ball."""


def correction(events: Iterable[dict[str, Any]], known: int) -> str | None:
    """What is wrong with the epsilon of a charge, in words; None if nothing is.

    Args:
      events: of the charge.
      known: corrections that its version knew.
    """
    relative = [] if known >= 1 else [each for each in events if _is_relative(each)]
    if any(each["shape"][-1] > _safe_features(each) for each in relative):
        return "its epsilon is too small: a row changed what thousands of others added (sharp edge edge-wide-rows)"
    if relative:
        return "its epsilon is too small if centers could lie far outside the clipping ball (sharp edge edge-wide-rows)"
    return None


def _is_relative(event: dict[str, Any]) -> bool:
    """Whether an event is the release of relative sums."""
    return (
        str(event.get("path")).endswith("sums")
        and event.get("mechanism") == str(Mechanism.DISCRETE_GAUSSIAN)
        and event.get("sensitivity_lattice", 0) >= _RELATIVE_UNITS
    )


def _safe_features(event: dict[str, Any]) -> int:
    """So many features were safe in the round of an event: the mean is measured from the middle of the ball."""
    return _SAFE_FEATURES_OF_MEAN if event["path"].endswith("/mean/sums") else _SAFE_FEATURES
