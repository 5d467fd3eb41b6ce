"""Warnings that follow from the settings alone; logged before anything is read or spent, and shown on pages."""

from typing import Any

from dapple_dp.schemas.core.unit import UNITS, Rows
from dapple_dp.schemas.settings.tiers import deprecations

HIGH_EPSILON = 10.0
WHOLE_SHARES = (
    "with masked.threshold 1, a sum of m messages has m times the noise variance needed: set it near the number of "
    "messages you expect"
)
LARGE_DELTA = 1e-3
"""Limit if the number of units isn't public; people usually cluster more than a thousand."""


def forewarnings(settings: object) -> tuple[str, ...] | None:
    """Returns the warnings for a job; None for a job without a guarantee.

    Args:
      settings: settings of a job; `privacy` has epsilon and, unless it is 0, delta.
    """
    privacy = getattr(settings, "privacy", None)
    if privacy is None:
        return None
    delta = getattr(privacy, "delta", None) or 0.0
    of_privacy = (*of_epsilon(float(privacy.epsilon)), *of_delta(float(delta), settings), *of_shares(settings))
    return (*of_privacy, *deprecations(settings))


def sentence(text: str) -> str:
    """Formats a warning as a sentence for a page."""
    return f"{text[0].upper()}{text[1:]}."


def plural(number: int, noun: str) -> str:
    """Formats a count with its noun, such as `1 round` and `2 rounds`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def of_epsilon(epsilon: float) -> list[str]:
    """Warns if epsilon is too large to promise much."""
    if epsilon <= HIGH_EPSILON:
        return []
    return [f"epsilon {epsilon:.4g} is high: below 1 is strong, up to about {HIGH_EPSILON:g} is common in practice"]


def of_shares(settings: Any) -> list[str]:
    """Warns if senders split the noise, but each share is already all of it."""
    shares = getattr(getattr(settings, "masked", None), "shares", None)
    return [WHOLE_SHARES] if shares is not None and shares.is_whole else []


def of_delta(delta: float, settings: Any) -> list[str]:
    """Warns if delta is so large that a mechanism may meet it by publishing a unit now and then."""
    public = getattr(getattr(settings, "data", None), "public_rows", None)
    most = 1.0 / public if isinstance(public, int) else LARGE_DELTA
    if delta <= most:
        return []
    unit: Any = getattr(getattr(settings, "privacy", None), "unit", None)
    units = UNITS.get(unit, Rows).words
    known = f"1 / the public number of {units} ({public:,})" if isinstance(public, int) else f"{LARGE_DELTA:g}"
    return [f"delta {delta:.3g} is larger than {known}: choose one well below 1 / the number of rows or clients"]
