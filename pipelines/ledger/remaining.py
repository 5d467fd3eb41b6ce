"""What a ledger leaves of a data set's budget, to a run that has not been charged and after one that has."""

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
    """The budget left once all runs are counted that the ledger holds, this one among them; reads the ledger alone.

    Args:
      ledger: its path; None without one.
      dataset: `data.name` of the job.

    Returns:
      None without a ledger, or where it cannot be read: a page must not cost a run what it has spent.
    """
    if ledger is None:
        return None
    try:
        return balance(Ledger(ledger).entries(), str(dataset)).left
    except Exception as error:  # noqa: BLE001 - any failure; its message may hold a value
        _LOGGER.warning("the report does not say what is left of the budget: %s", describe_unexpected(error))
        return None


def around(ledger: str | None, dataset: str | None, run_id: str) -> dict[str, Any] | None:
    """What a ledger left of a data set's budget before a run was charged, and leaves after it; for `run.json`.

    Args:
      ledger: its path; None without one.
      dataset: `data.name` of the job.
      run_id: of the run.

    Returns:
      With the digest of the last entry, which the ledger must hold from now on; None as `remaining`.
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
    """What a data set may spend, has spent and has left, as its runs compose.

    Attributes:
      limit: of all runs together.
      epsilon: spent, at `delta`.
      delta: at which `epsilon` is stated.
      left: what remains of the limit.
      charges: of the runs that count.
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
    """A data set's budget before a run; None where the ledger has no limit for it.

    Attributes:
      dataset: its name.
      limit: epsilon of all runs.
      left: epsilon of it.
      largest_epsilon: of one run of the same kind that fits, rounded down; 0 if none does.
      runs: how many such runs fit, one after another.
      refused: why the run would be refused; "" if it fits.
    """

    dataset: str
    limit: float | None
    left: float | None
    largest_epsilon: float | None
    runs: int | None
    refused: str

    @classmethod
    def of(cls, ledger: str, charge: Charge) -> "Budget":
        """The budget that a charge meets; reads the ledger alone."""
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
    """Number of the window after the last that a ledger has charged of an epoch; 0 without a ledger or windows."""
    try:
        charges = charges_of(Ledger(ledger).entries(), dataset)
    except LedgerRefusedError:
        return 0
    return max((each.epoch["index"] + 1 for each in charges if each.epoch and each.epoch["name"] == epoch), default=0)
