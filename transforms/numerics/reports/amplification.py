"""Privacy amplification by shuffling: epsilon of a batch from the epsilon of one report, and back."""

import enum
import functools
import math
from collections.abc import Callable

from dapple_dp.schemas.choices import ReportMode
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.parameters import ReportParameters, SubsetChoice
from dapple_dp.transforms.numerics.reports.blanket import blanket_keeps

_BISECTIONS = 80
_TOLERANCE = 1.0 / 256.0


class Amplification(enum.StrEnum):
    """Arguments by which a batch adds to the privacy of one report.

    NONE: nothing; the promise is that of one report.
    CLONES: the closed form of Feldman, McMillan, Talwar (2022).
    BLANKET: the certificate by the privacy blanket of Balle, Bell, Gascon, Nissim (2019).
    """

    NONE = "none"
    CLONES = "clones"
    BLANKET = "privacy_blanket"


def shuffled_epsilon(local_epsilon: float, n_reports: int, delta: float) -> float:
    """Returns epsilon, at `delta`, of n shuffled reports that are each `local_epsilon`-private, for replacing one.

    Args:
      local_epsilon: > 0.
      n_reports: >= 1.
      delta: in (0, 1).

    Returns:
      The closed form where it holds, and never more than `local_epsilon`.

    Source: Feldman, McMillan, Talwar (2022), "Hiding among the clones", Theorem III.1, which holds while
    local_epsilon <= log(n / (16 log(2 / delta))).
    """
    if local_epsilon > _largest_amplified(n_reports, delta):
        return local_epsilon
    odds = math.exp(local_epsilon)
    spread = 8.0 * math.sqrt(odds * math.log(4.0 / delta) / n_reports) + 8.0 * odds / n_reports
    return min(local_epsilon, math.log1p((odds - 1.0) / (odds + 1.0) * spread))


def check_guarantee(parameters: ReportParameters) -> None:
    """Refuses a guarantee that its reports do not give, so that nobody has to trust its author.

    Raises:
      ConfigError: if the epsilon is less than what a report, or a shuffled batch of the least size, spends.
    """
    guarantee = parameters.guarantee
    if amplification_of(parameters) is None:
        spent = guarantee.local_epsilon
        if guarantee.mode is ReportMode.SHUFFLE and 0.0 < guarantee.delta < 1.0:
            spent = shuffled_epsilon(spent, guarantee.min_batch, guarantee.delta)
        raise ConfigError(
            f"epsilon of report parameters must be at least {spent:.6g}, or one that the privacy blanket of their "
            f"shuffled reports meets, got {guarantee.epsilon:.6g}; use an unchanged parameters file."
        )


def amplification_of(parameters: ReportParameters) -> Amplification | None:
    """Returns the argument by which reports satisfy the guarantee of their parameters; None if they don't."""
    guarantee = parameters.guarantee
    if guarantee.local_epsilon <= guarantee.epsilon:
        return Amplification.NONE
    if guarantee.mode is not ReportMode.SHUFFLE or not 0.0 < guarantee.delta < 1.0:
        return None
    if shuffled_epsilon(guarantee.local_epsilon, guarantee.min_batch, guarantee.delta) <= guarantee.epsilon:
        return Amplification.CLONES
    if len(parameters.choices) != 1:
        return None
    certified = _is_certified(parameters.choices[0][0], guarantee.epsilon, guarantee.min_batch, guarantee.delta)
    return Amplification.BLANKET if certified else None


@functools.lru_cache(maxsize=256)
def _is_certified(choice: SubsetChoice, epsilon: float, n_reports: int, delta: float) -> bool:
    """Returns whether the blanket of n shuffled reports by this choice keeps (epsilon, delta); never wrongly true."""
    return blanket_keeps(choice, epsilon, n_reports, delta)


def local_epsilon_for(
    epsilon: float, delta: float, n_reports: int, most: float, choice_of: Callable[[float], SubsetChoice] | None = None
) -> float:
    """Returns the largest provable epsilon of one report for which a shuffled batch keeps (epsilon, delta).

    Args:
      epsilon: > 0, of the batch.
      delta: in (0, 1).
      n_reports: guaranteed to be in every batch.
      most: largest epsilon of one report.
      choice_of: the one choice of a report by its epsilon; None if reports make several.

    Raises:
      ConfigError: if shuffling so few reports lets none of them be less private than the batch.

    Example:
      >>> round(local_epsilon_for(1.0, 1e-6, 100_000, 8.0), 2)
      5.7
    """
    closed = min(_largest_amplified(n_reports, delta), most)
    result = _largest(lambda local: shuffled_epsilon(local, n_reports, delta) <= epsilon, epsilon, closed, 0.0)
    if choice_of is not None:
        keeps = functools.partial(_keeps, choice_of, epsilon, n_reports, delta)
        result = _largest(keeps, result, most, _TOLERANCE)
    if result <= epsilon:
        raise ConfigError(
            f"reports.min_batch must be large enough for shuffling to add privacy, got {n_reports}; raise it, or set "
            "reports.mode: local."
        )
    return result


def _keeps(
    choice_of: Callable[[float], SubsetChoice], epsilon: float, n_reports: int, delta: float, local: float
) -> bool:
    return _is_certified(choice_of(local), epsilon, n_reports, delta)


def _largest(keeps: Callable[[float], bool], lower: float, upper: float, tolerance: float) -> float:
    """Returns nearly the largest number in a range that keeps a promise, or `lower` if none was found."""
    if upper <= lower:
        return lower
    if keeps(upper):
        return upper
    for _ in range(_BISECTIONS):
        if upper - lower <= tolerance:
            break
        middle = 0.5 * (lower + upper)
        lower, upper = (middle, upper) if keeps(middle) else (lower, middle)
    return lower


def _largest_amplified(n_reports: int, delta: float) -> float:
    """Returns the local epsilon up to which the theorem holds; negative if it never does."""
    return math.log(n_reports / (16.0 * math.log(2.0 / delta)))
