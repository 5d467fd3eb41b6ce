"""Charging of a job: reserves its cost before it reads data, and records how it ended."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dapple_dp.pipelines.run.versions import versions
from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.errors import InputError, LedgerRefusedError, ProtocolError
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.statement import PrivacyStatement
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.core.discretization import lattice_noise
from dapple_dp.transforms.privacy.key_files import key_digest

if TYPE_CHECKING:
    from dapple_dp.pipelines.ledger.store import Ledger
    from dapple_dp.schemas.privacy.ledger_entry import RunStatus

_LOGGER = logging.getLogger(__name__)


def charge_of(statement: PrivacyStatement, data: DataConfig, job: str, rounds: Sequence[RoundPlan] = ()) -> Charge:
    """Computes the charge of a run with this guarantee.

    Args:
      statement: guarantee of the run.
      data: data section of the settings.
      job: name of the job.
      rounds: rounds with Gaussian noise on the lattice, if any.
    """
    return Charge.of(
        statement,
        dataset=str(data.name),
        job=job,
        noise=lattice_noise(rounds),
        scope=data.disjoint_scope,
        reason=data.disjoint_partitions,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Request of a run to its ledger, made before rows are read.

    Attributes:
      ledger: path of the ledger.
      charge: privacy cost of the run.
      run: id of the run.
      again: whether a run whose id is taken is charged again under another name.
      same: returns a digest of everything that determines the noise of a run, including its key, for jobs with
        checkpoints: a reserved run with the same digest is resumed without a further charge.
      still: raises the refusal of a run whose work others have done before it was charged.
      begun: returns whether noise may have been drawn, so that the charge stays after any error.
      in_memory: whether rows and key are only in the memory of this process, so that the run can't be resumed.
    """

    ledger: str
    charge: Charge
    run: str
    again: bool = False
    same: Callable[[], str] | None = None
    still: Callable[[], None] = lambda: None
    begun: Callable[[], bool] = lambda: False
    in_memory: bool = False

    @property
    def about(self) -> dict[str, Any]:
        """Details that the ledger stores with the charge."""
        from dapple_dp.schemas.privacy.ledger_entry import IN_MEMORY

        about = {"versions": versions(), "same": None if self.same is None else self.same()}
        return about | ({IN_MEMORY: True} if self.in_memory else {})


Draw = Callable[[str], None]
"""Called with the place of a run's key; raises LedgerRefusedError if another run has drawn with this key."""


def _unrecorded(_: str) -> None:
    """Does nothing, since no ledger records the key of an uncharged run."""


@contextlib.contextmanager
def spending(reservation: Reservation | None) -> Iterator[Draw]:
    """Reserves a charge and commits it at the end; does nothing without a reservation.

    After an error the charge stays reserved and counts as spent, but it is voided if the input was invalid. So the
    caller must publish as its last step inside.

    Yields:
      A function to call with the run's key before noise is drawn with it.

    Raises:
      LedgerRefusedError: before anything is read, if the ledger refuses the charge.
    """
    if reservation is None:
        yield _unrecorded
        return
    from dapple_dp.pipelines.ledger.store import Ledger

    book = Ledger(reservation.ledger)
    name, resumed = _reserved(book, reservation)
    try:
        yield lambda place: book.start(name, {"key": {"key_uri": key_digest(place)}})
    except (InputError, ProtocolError) as error:
        if not resumed and not reservation.begun():
            book.void(name, type(error).__name__)
        raise
    except BaseException:
        _LOGGER.info("run %s stays reserved in the ledger, as if it had released everything", name)
        raise
    book.commit(name, {})


def _reserved(book: "Ledger", reservation: Reservation) -> tuple[str, bool]:
    """Reserves a charge; returns its name in the ledger, and whether it was reserved before."""
    reservation.still()
    about = reservation.about
    if reservation.same is not None and _is_open(book, reservation, about):
        book.take_up(reservation.run)
        return reservation.run, True
    return book.reserve(reservation.run, reservation.charge, about, again=reservation.again), False


def _is_open(book: "Ledger", reservation: Reservation, about: dict[str, Any]) -> bool:
    """Returns whether the run is reserved and the same; raises LedgerRefusedError if it differs."""
    status = book.status(reservation.run)
    if status is None or status.state != "reserved":
        return False
    if status.reserved["same"] != about["same"] or not reservation.charge.equals(status.reserved["charge"]):
        raise LedgerRefusedError(
            f"run_id {reservation.run} must be resumed with the same job, plan and key, got others; "
            f"{finish_words(status)}."
        )
    return True


def finish_words(status: "RunStatus") -> str:
    """Advice for a started run that no longer matches its reservation."""
    began = status.reserved["versions"]
    others = ", ".join(f"{name} {number}" for name, number in began.items() if versions().get(name) != number)
    first = f"finish it with {others}, with which it began, or " if others else ""
    return f"{first}choose another run_id, which is charged again"


class Remaining(NamedTuple):
    """Remaining budget of a data set after this run."""

    epsilon: float
    delta: float


def left_words(ledger: str | None, left: Remaining | None) -> str:
    """Text of a privacy label on the remaining budget."""
    if left is not None:
        return f"epsilon {left.epsilon:.4g}, delta {left.delta:.3g} after this run, as the ledger composes"
    return "no ledger" if ledger is None else "as the ledger says: dapple ledger show"
