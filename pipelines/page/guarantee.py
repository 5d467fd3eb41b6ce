"""Epsilon and delta in plain words, for the privacy label of a page."""

import math

from schemas.privacy.plan import PrivacyUnit
from schemas.privacy.unit import UNITS


def odds(epsilon: float) -> float:
    """How sure somebody who gave even odds may become that a unit is in the data: e^epsilon / (1 + e^epsilon)."""
    return 1.0 / (1.0 + math.exp(-epsilon))


def meaning(epsilon: float, delta: float, unit: PrivacyUnit, *, senders_public: bool = False) -> str:
    """What it means that one unit is added or removed; where who sends is public, left out of what its sender sends."""
    given, took = UNITS[unit].whole, f"the {UNITS[unit].word}"
    factor = f"{math.exp(epsilon):,.3g}" if epsilon < 12 else f"e^{epsilon:.3g}"
    sure = odds(epsilon)
    after = f"is at most {sure:.0%} sure" if sure < 0.995 else "may be all but certain"
    moved = "Leaving out" if senders_public else "Adding or removing"
    return (
        f"{moved} {given} changes the probability of any result by at most a factor of {factor}, up to "
        f"{delta:.3g}. Somebody who gives even odds that {took} took part, and knows everything else, {after} "
        "after seeing this."
    )
