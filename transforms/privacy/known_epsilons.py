"""Epsilons that were composed before, each confirmed by an exact formula before it is used again.

To compose privacy loss distributions takes libraries whose import alone takes half a second. Gaussian releases are one
Gaussian mechanism together, whose delta at an epsilon has a closed form, so anyone who knows what the composition has
found can see in microseconds that it is an upper bound and no loose one. What is known is a hint, and never believed.
"""

import math
from collections.abc import Sequence

from schemas.privacy.plan import Mechanism, RoundPlan
from transforms.numerics.privacy.gaussian_mechanism import log_delta
from transforms.privacy.discretization import discretization_slack

_LARGEST_EPSILON = 100.0
_LEAST_MULTIPLIER = 1e-3
_ABSOLUTE_MARGIN, _RELATIVE_MARGIN = 1e-14, 1e-9
"""Taken off delta for the rounding of the formula, which is far less."""
_TIGHT = 0.998
_MOST = 256
_known: dict[tuple[object, ...], float] = {}


def merged_multiplier(rounds: Sequence[RoundPlan]) -> float:
    """Noise multiplier of all Gaussian releases together; infinity without any.

    Args:
      rounds: calibrated, adaptively composed.
    """
    releases = (release for each in rounds for release in each.releases)
    gaussian = (each for each in releases if each.spec.mechanism is not Mechanism.DISCRETE_LAPLACE)
    precision = math.fsum(each.noise_multiplier**-2 for each in gaussian)
    return 1.0 / math.sqrt(precision) if precision > 0.0 else math.inf


def is_tight(rounds: Sequence[RoundPlan], spent: float, target: float, delta: float) -> bool:
    """Whether `spent` is an upper bound on the epsilon of rounds, the slack for discrete noise included, and close.

    Args:
      rounds: calibrated, adaptively composed.
      spent: > 0; what is to be confirmed.
      target: > 0; the target of the run, from which the slack follows.
      delta: the target of the run.

    Returns:
      False also where the formula cannot tell, as of Laplace releases.
    """
    if any(release.spec.mechanism is not Mechanism.DISCRETE_GAUSSIAN for each in rounds for release in each.releases):
        return False
    multiplier, slack = merged_multiplier(rounds), discretization_slack(rounds, target, delta)
    continuous = spent - slack.epsilon
    if not (0.0 < continuous < _LARGEST_EPSILON and _LEAST_MULTIPLIER < multiplier < 1.0 / _LEAST_MULTIPLIER):
        return False
    allowed = delta - slack.delta
    found = math.exp(log_delta(multiplier, continuous))
    bounds = found * (1.0 + _RELATIVE_MARGIN) + _ABSOLUTE_MARGIN <= allowed
    return bounds and math.exp(log_delta(multiplier, continuous * _TIGHT)) > allowed


def propose(rounds: tuple[RoundPlan, ...], target: float, delta: float, spent: float) -> None:
    """Remembers what the composition of rounds was found to spend; wherever that comes from, `recall` checks it."""
    if len(_known) >= _MOST:
        _known.clear()
    _known[_key(rounds, target, delta)] = spent


def recall(rounds: tuple[RoundPlan, ...], target: float, delta: float) -> float | None:
    """What was proposed for rounds of any name, if it is tight; None otherwise."""
    spent = _known.get(_key(rounds, target, delta))
    return spent if spent is not None and is_tight(rounds, spent, target, delta) else None


def forget() -> None:
    """Empties the memory of this process, as tests need it."""
    _known.clear()


def _key(rounds: tuple[RoundPlan, ...], target: float, delta: float) -> tuple[object, ...]:
    """What rounds are known by: their releases, whatever the rounds are called."""
    return tuple(each.releases for each in rounds), target, delta
