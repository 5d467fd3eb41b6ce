"""What a ledger leaves of a data set's budget, for the report of a run."""

import logging
from typing import NamedTuple

from pipelines.ledger.store import Ledger, charges_of, limits_of
from pipelines.run.failures import describe_unexpected
from transforms.privacy import ledger_filter

_LOGGER = logging.getLogger(__name__)


class Remaining(NamedTuple):
    """What a ledger leaves of a data set's budget after this run."""

    epsilon: float
    delta: float


def remaining(ledger: str | None, dataset: str | None) -> Remaining | None:
    """What is left once all runs are counted that the ledger holds, this one among them; reads the ledger alone.

    Args:
      ledger: its path; None without one.
      dataset: `data.name` of the job.

    Returns:
      None without a ledger, or where it cannot be read: a page must not cost a run what it has spent.
    """
    if ledger is None:
        return None
    try:
        entries, name = Ledger(ledger).entries(), str(dataset)
        limit = limits_of(entries)[name]
        spent = ledger_filter.most_spent(limit, charges_of(entries, name))
        epsilon, _ = ledger_filter.spent_epsilon(limit, spent)
    except Exception as error:  # noqa: BLE001 - any failure; its message may hold a value
        _LOGGER.warning("the report does not say what is left of the budget: %s", describe_unexpected(error))
        return None
    return Remaining(max(limit.epsilon - epsilon, 0.0), max(limit.delta - spent.basic_delta, 0.0))


def left_words(ledger: str | None, left: Remaining | None) -> str:
    """What a privacy label says of the rest of the budget."""
    if left is not None:
        return f"epsilon {left.epsilon:.4g}, delta {left.delta:.3g} after this run, as the ledger composes"
    return "no ledger" if ledger is None else "as the ledger says: dapple ledger show"
