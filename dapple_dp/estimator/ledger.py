"""Privacy ledger for Python: budgets of data sets, in the file or database of the `dapple ledger` command."""

import dataclasses
import html
import os
from typing import TYPE_CHECKING, Self

from dapple_dp.estimator.job_of_parameters import in_parameters
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, DappleError, LedgerRefusedError, one_line
from dapple_dp.schemas.privacy.ledger_place import ledger_place
from dapple_dp.schemas.settings.yaml_text import path_text

if TYPE_CHECKING:
    from dapple_dp.pipelines.ledger.remaining import Balance
    from dapple_dp.pipelines.ledger.spending import Remaining

_HEAD = ("data set", "epsilon left", "of", "at delta", "runs")


@dataclasses.dataclass(frozen=True, repr=False)
class Ledger:
    """Budget of the fits on a data set, shared with `dapple` jobs on the same ledger.

    Pass it to an estimator as `ledger`, with the name of the data set as `data_name`. A fit that exceeds the budget is
    refused before it reads a row. `print` lists the remaining budgets of all data sets, and a notebook shows a table.

    Args:
      path: a file on a local disk, or `postgresql://USER@HOST/DATABASE`. `limit` creates it if it doesn't exist.
    """

    path: str

    def __init__(self, path: str | os.PathLike[str]):
        object.__setattr__(self, "path", ledger_place(path_text(path, "path")))

    def limit(self, name: str, *, epsilon: float, delta: float, unit: str | None = None) -> Self:
        """Sets the budget of all fits and jobs on a data set, past ones included; replaces an earlier limit.

        Args:
          name: name of the data set: `data_name` of an estimator, `data.name` of a job.
          epsilon: total epsilon, > 0.
          delta: total delta, in (0, 1).
          unit: the protected unit, "record" or "client"; None lets the first run decide.

        Returns:
          This ledger.

        Raises:
          ConfigError: if a number breaks its rule, or the file can't be created.
          LedgerRefusedError: if the file isn't a ledger.
        """
        from dapple_dp.pipelines.ledger import store
        from dapple_dp.schemas.privacy.charge import Limit

        if not isinstance(name, str) or not name:
            raise ConfigError(f"name must be the name of a data set, got {name!r}; give the data_name of the fits.")
        if unit is not None and unit not in tuple(PrivacyUnit):
            raise ConfigError(f"unit must be 'record' or 'client', got {unit!r}; leave it out if you don't know yet.")
        for label, value in (("epsilon", epsilon), ("delta", delta)):
            if isinstance(value, bool | str) or not hasattr(value, "__float__"):
                raise ConfigError(f"{label} must be a number, got {value!r}; give the total of all runs.")
        total = Limit(epsilon=float(epsilon), delta=float(delta), unit=None if unit is None else PrivacyUnit(unit))
        store.check_total(total.epsilon, total.delta)
        store.Ledger(self.path).set_limit(name, total)
        return self

    def remaining(self, name: str) -> "Remaining":
        """Returns the epsilon and delta that a data set has left, as a named tuple; accounts for composition.

        Runs with Gaussian noise compose to less than their sum, so a run with a larger epsilon may still fit. All of
        them share the delta of the limit; only other runs reduce it. A refusal names an epsilon that fits.

        Args:
          name: name of the data set.

        Raises:
          LedgerRefusedError: if there is no ledger, or no limit for this data set.
        """
        balances = self._balances()
        if name not in balances:
            known = ", ".join(map(repr, balances)) or "none"
            raise LedgerRefusedError(
                f"{self.path} has no limit for {name!r}, only for: {known}; set one with limit(name, epsilon=, delta=)."
            )
        return balances[name].left

    def __fspath__(self) -> str:
        """Returns the path, so that jobs accept a ledger as a path."""
        return self.path

    def __repr__(self) -> str:
        return f"Ledger({self.path!r})"

    def __str__(self) -> str:
        lines = [
            f"{name}: epsilon {left} of {total} left, at delta {delta}; runs: {runs}"
            for name, left, total, delta, runs in self._rows()
        ]
        return "\n".join([repr(self), *lines])

    def _repr_html_(self) -> str:
        """Returns the table that a notebook displays."""
        from dapple_dp.estimator.notebook import table_html

        try:
            rows = [_HEAD, *self._rows()]
        except DappleError as error:
            return f"<pre>{html.escape(f'{self!r}: {error}')}</pre>"
        return table_html(repr(self), rows)

    def _rows(self) -> list[tuple[str, ...]]:
        """Returns a row for each data set: name, epsilon left, its limit, the delta of the limit, runs."""
        return [
            (one_line(name), f"{left.epsilon:.6g}", f"{limit.epsilon:g}", f"{limit.delta:g}", str(len(runs)))
            for name, (limit, _, _, left, runs) in self._balances().items()
        ]

    def _balances(self) -> "dict[str, Balance]":
        from dapple_dp.pipelines.ledger import remaining, store

        with in_parameters():
            entries = store.Ledger(self.path).entries()
        return {name: remaining.balance(entries, name) for name in store.limits_of(entries)}
