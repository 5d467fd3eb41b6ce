"""What a job that spends says to the ledger: what it will cost, before it reads data, and how it ended.

A job adopts the ledger in a few lines:

    charge = charge_of(statement, config.data, "fit", plan.rounds)
    with spending(config.ledger, charge, run_id):
        ...  # read, draw noise, publish
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipelines.ledger_store import Ledger
from pipelines.versions import code_digest
from schemas.data_config import DataConfig
from schemas.errors import InputError, LedgerRefusedError, ProtocolError
from schemas.ledger_charge import Charge
from schemas.plan import RoundPlan
from schemas.statement import PrivacyStatement
from transforms.discretization import lattice_noise

_LOGGER = logging.getLogger(__name__)


def charge_of(statement: PrivacyStatement, data: DataConfig, job: str, rounds: Sequence[RoundPlan] = ()) -> Charge:
    """What a run with this guarantee costs its data set.

    Args:
      statement: of the run.
      data: its section.
      job: its name.
      rounds: with Gaussian noise on the lattice, if any.
    """
    return Charge.of(
        statement,
        dataset=str(data.name),
        job=job,
        noise=lattice_noise(rounds),
        scope=data.disjoint_scope,
        reason=data.disjoint_partitions,
    )


@contextlib.contextmanager
def spending(
    ledger: str | None,
    charge: Charge | None,
    run: str,
    *,
    again: bool = False,
    same: str | None = None,
    begun: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Reserves a charge, and commits it when what follows is done; without a ledger, nothing.

    If it fails, the charge stays reserved, which counts as spent; if what it read could not be used, it is void, so
    what follows must publish as its last step.

    Args:
      ledger: path of the ledger; None without one.
      charge: of the run; None if it spends nothing.
      run: its id.
      again: whether a run whose id is taken is charged anew under a further name.
      same: digest of all that decides what a run draws, its key included, for jobs with checkpoints of their own: a
        reserved run with the same digest goes on without a further charge.
      begun: whether noise may have been drawn, so that the charge stays whatever stopped the run.

    Raises:
      LedgerRefusedError: before anything is read.
    """
    if ledger is None or charge is None:
        yield
        return
    book = Ledger(ledger)
    about: dict[str, Any] = {"code": code_digest(), "same": same}
    name, resumed = run, same is not None and _is_open(book, run, charge, about)
    if not resumed:
        name = book.reserve(run, charge, about, again=again)
    try:
        yield
    except (InputError, ProtocolError) as error:
        if not resumed and not begun():
            book.void(name, type(error).__name__)
        raise
    except BaseException:
        _LOGGER.info("run %s stays reserved in the ledger, as if it had released everything", name)
        raise
    book.commit(name, {})


def _is_open(book: Ledger, run: str, charge: Charge, about: dict[str, Any]) -> bool:
    """Whether a run is reserved and the same; raises LedgerRefusedError if it is another one."""
    status = book.status(run)
    if status is None or status.state != "reserved":
        return False
    if status.reserved != about | {"charge": charge.to_json()}:
        raise LedgerRefusedError(
            f"run_id {run} must be resumed with the same job, input, key and code, got others; choose another run_id, "
            "which is charged again."
        )
    return True
