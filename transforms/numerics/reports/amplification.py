"""What shuffling adds to the privacy of reports: epsilon of a batch from the epsilon of one report, and back."""

import math

from schemas.choices import ReportMode
from schemas.errors import ConfigError
from schemas.reports.parameters import ReportGuarantee

_BISECTIONS = 80


def shuffled_epsilon(local_epsilon: float, n_reports: int, delta: float) -> float:
    """Epsilon, at `delta`, of n shuffled reports that are each `local_epsilon`-private, for replacing one of them.

    Args:
      local_epsilon: > 0.
      n_reports: >= 1.
      delta: in (0, 1).

    Returns:
      The closed form where it holds, and nowhere more than `local_epsilon`.

    Source: Feldman, McMillan, Talwar (2022), "Hiding among the clones", Theorem III.1, which holds while
    local_epsilon <= log(n / (16 log(2 / delta))).
    """
    if local_epsilon > _largest_amplified(n_reports, delta):
        return local_epsilon
    odds = math.exp(local_epsilon)
    spread = 8.0 * math.sqrt(odds * math.log(4.0 / delta) / n_reports) + 8.0 * odds / n_reports
    return min(local_epsilon, math.log1p((odds - 1.0) / (odds + 1.0) * spread))


def check_guarantee(guarantee: ReportGuarantee) -> None:
    """Refuses a guarantee that its reports do not give, so that nobody need trust who wrote it down.

    Raises:
      ConfigError: if the epsilon is less than what a report, or a shuffled batch of the least size, spends.
    """
    spent = guarantee.local_epsilon
    if guarantee.mode is ReportMode.SHUFFLE and 0.0 < guarantee.delta < 1.0:
        spent = shuffled_epsilon(guarantee.local_epsilon, max(guarantee.min_batch, 1), guarantee.delta)
    if not spent <= guarantee.epsilon:
        raise ConfigError(
            f"epsilon of report parameters must be at least {spent:.6g}, which their reports spend, got "
            f"{guarantee.epsilon:.6g}; use an unchanged parameters file."
        )


def local_epsilon_for(epsilon: float, delta: float, n_reports: int, most: float) -> float:
    """The largest epsilon of one report for which a shuffled batch keeps (epsilon, delta).

    Args:
      epsilon: > 0, of the batch.
      delta: in (0, 1).
      n_reports: guaranteed to be in every batch.
      most: of one report, at most.

    Raises:
      ConfigError: if shuffling so few reports lets none of them be less private than the batch.

    Example:
      >>> round(local_epsilon_for(1.0, 1e-6, 100_000, 8.0), 2)
      5.7
    """
    upper = min(_largest_amplified(n_reports, delta), most)
    if upper <= epsilon:
        raise ConfigError(
            f"reports.min_batch must be large enough for shuffling to add privacy, got {n_reports}; "
            "guarantee more reports, or use reports.mode local."
        )
    lower = epsilon
    if shuffled_epsilon(upper, n_reports, delta) <= epsilon:
        return upper
    for _ in range(_BISECTIONS):
        middle = 0.5 * (lower + upper)
        if shuffled_epsilon(middle, n_reports, delta) <= epsilon:
            lower = middle
        else:
            upper = middle
    return lower


def _largest_amplified(n_reports: int, delta: float) -> float:
    """Local epsilon up to which the theorem holds; negative if for none."""
    return math.log(n_reports / (16.0 * math.log(2.0 / delta)))
