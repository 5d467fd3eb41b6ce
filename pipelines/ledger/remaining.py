"""Remaining budget of a data set, before and after a run."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from dapple_dp.pipelines.ledger.spending import Remaining
from dapple_dp.pipelines.ledger.store import Ledger, charges_of, limits_of
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.schemas.privacy.charge import Charge, Limit
from dapple_dp.schemas.privacy.ledger_entry import LedgerEntry, check_open
from dapple_dp.transforms.privacy import ledger_filter

_LOGGER = logging.getLogger(__name__)


def remaining(ledger: str | None, dataset: str | None) -> Remaining | None:
    """Returns the budget left after all runs in the ledger, including this one; reads only the ledger.

    Args:
      ledger: path of the ledger; None without one.
      dataset: `data.name` of the job.

    Returns:
      None without a ledger, or if it can't be read: a run that has spent must not fail for a page.
    """
    if ledger is None:
        return None
    try:
        return balance(Ledger(ledger).entries(), str(dataset)).left
    except Exception as error:  # noqa: BLE001 - any failure; its message may hold a value
        _LOGGER.warning("the report does not say what is left of the budget: %s", describe_unexpected(error))
        return None


def around(ledger: str | None, dataset: str | None, run_id: str) -> dict[str, Any] | None:
    """Budget of a data set before and after a run was charged, for `run.json`.

    Args:
      ledger: path of the ledger; None without one.
      dataset: `data.name` of the job.
      run_id: id of the run.

    Returns:
      Both budgets, with the digest of the last entry, which the ledger must hold from now on; None as for `remaining`.
    """
    if ledger is None:
        return None
    try:
        entries, name = Ledger(ledger).entries(), str(dataset)
        others = [entry for entry in entries if entry.run != run_id]
        before, after = balance(others, name).left, balance(entries, name).left
    except Exception as error:  # noqa: BLE001 - any failure; its message may hold a value
        _LOGGER.warning("run.json does not say what is left of the budget: %s", describe_unexpected(error))
        return None
    return {"dataset": name, "before": before._asdict(), "after": after._asdict(), "head": entries[-1].digest}


class Balance(NamedTuple):
    """Limit, spending and remaining budget of a data set, as its runs compose.

    Attributes:
      limit: limit of all runs together.
      epsilon: epsilon spent, at `delta`.
      delta: delta at which `epsilon` is stated.
      left: remaining budget.
      charges: charges of the runs that count.
    """

    limit: Limit
    epsilon: float
    delta: float
    left: Remaining
    charges: Sequence[Charge]


def balance(entries: Sequence[LedgerEntry], dataset: str) -> Balance:
    """Composes the charges of a data set that has a limit."""
    limit, charges = limits_of(entries)[dataset], charges_of(entries, dataset)
    spent = ledger_filter.most_spent(limit, charges)
    epsilon, delta = ledger_filter.spent_epsilon(limit, spent)
    left = Remaining(max(limit.epsilon - epsilon, 0.0), max(limit.delta - spent.basic_delta, 0.0))
    return Balance(limit, epsilon, delta, left, charges)


class Budget(NamedTuple):
    """Budget of a data set before a run; None if the ledger has no limit for it.

    Attributes:
      dataset: name of the data set.
      limit: epsilon of all runs together.
      left: remaining epsilon.
      largest_epsilon: largest epsilon of a run of the same kind that fits, rounded down; 0 if none does.
      runs: number of such runs that fit one after another.
      refused: reason why the run would be refused; "" if it fits.
    """

    dataset: str
    limit: float | None
    left: float | None
    largest_epsilon: float | None
    runs: int | None
    refused: str

    @classmethod
    def of(cls, ledger: str, charge: Charge) -> "Budget":
        """Computes the budget that a charge meets; reads only the ledger."""
        try:
            book = Ledger(ledger)
            entries = book.entries()
            check_open(entries, book.path)
        except LedgerRefusedError as error:
            return cls(charge.dataset, None, None, None, None, str(error))
        limit = limits_of(entries).get(charge.dataset)
        if limit is None:
            said = f"{charge.dataset} has no limit; see `dapple ledger limit`."
            return cls(charge.dataset, None, None, None, None, said)
        held, refused = charges_of(entries, charge.dataset), ""
        try:
            ledger_filter.check(limit, held, charge)
        except LedgerRefusedError as error:
            refused = str(error)
        left = balance(entries, charge.dataset).left.epsilon
        largest = ledger_filter.largest_epsilon(limit, held, charge)
        runs = 0 if refused else ledger_filter.how_many(limit, held, charge)
        return cls(charge.dataset, limit.epsilon, left, largest, runs, refused)


def next_window(ledger: str, dataset: str, epoch: str) -> int:
    """Number of the window after the last charged one of an epoch; 0 without a ledger or windows."""
    try:
        charges = charges_of(Ledger(ledger).entries(), dataset)
    except LedgerRefusedError:
        return 0
    return max((each.epoch["index"] + 1 for each in charges if each.epoch and each.epoch["name"] == epoch), default=0)
