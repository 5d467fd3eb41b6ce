"""What a ledger says of a run that has not been charged."""

from typing import NamedTuple

from pipelines.ledger.store import Ledger, charges_of, limits_of
from schemas.errors import LedgerRefusedError
from schemas.privacy.charge import Charge
from transforms.privacy import ledger_filter


class Budget(NamedTuple):
    """A data set's budget before a run; None where the ledger has no limit for it.

    Attributes:
      dataset: its name.
      limit: epsilon of all runs.
      left: epsilon of it.
      largest_epsilon: of one run of the same kind that fits, rounded down; 0 if none does.
      refused: why the run would be refused; "" if it fits.
    """

    dataset: str
    limit: float | None
    left: float | None
    largest_epsilon: float | None
    refused: str

    @classmethod
    def of(cls, ledger: str, charge: Charge) -> "Budget":
        """The budget that a charge meets; reads the ledger alone."""
        try:
            entries = Ledger(ledger).entries()
        except LedgerRefusedError as error:
            return cls(charge.dataset, None, None, None, str(error))
        limit = limits_of(entries).get(charge.dataset)
        if limit is None:
            return cls(charge.dataset, None, None, None, f"{charge.dataset} has no limit; see `dapple ledger limit`.")
        held = charges_of(entries, charge.dataset)
        spent, _ = ledger_filter.spent_epsilon(limit, ledger_filter.most_spent(limit, held))
        left, refused = max(limit.epsilon - spent, 0.0), ""
        try:
            ledger_filter.check(limit, held, charge)
        except LedgerRefusedError as error:
            refused = str(error)
        return cls(charge.dataset, limit.epsilon, left, ledger_filter.largest_epsilon(limit, held, charge), refused)
