"""What a job that spends says to the ledger: what it will cost, before it reads data, and how it ended."""

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a run asks of a ledger before it reads rows.

    Attributes:
      ledger: path.
      charge: what the run spends.
      run: its id.
      again: whether a run whose id is taken is charged again under a further name.
      same: gives a digest of all that decides what a run draws, its key included, for jobs with checkpoints of their
        own: a reserved run with the same digest goes on without a further charge.
      still: raises what refuses the run, if others have done its work before it was charged.
      begun: whether noise may have been drawn, so that the charge stays whatever stopped the run.
      in_memory: whether rows and key are in the memory of this process alone, so that nothing can resume the run.
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
        """What the ledger keeps beside the charge."""
        from dapple_dp.schemas.privacy.ledger_entry import IN_MEMORY

        about = {"versions": versions(), "same": None if self.same is None else self.same()}
        return about | ({IN_MEMORY: True} if self.in_memory else {})


Draw = Callable[[str], None]
"""Takes the place of the key that draws in a run; raises LedgerRefusedError if another run has drawn with it."""


def _unrecorded(_: str) -> None:
    """Of a run that is not charged, no ledger knows the key."""


@contextlib.contextmanager
def spending(reservation: Reservation | None) -> Iterator[Draw]:
    """Reserves a charge, and commits it when what follows is done; without a reservation, nothing.

    If it fails, the charge stays reserved, which counts as spent; if what it read could not be used, it is void, so
    what follows must publish as its last step.

    Yields:
      Where the run's key is announced before noise is drawn with it.

    Raises:
      LedgerRefusedError: before anything is read.
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
    """The name under which a run is charged, and whether it had been charged before."""
    reservation.still()
    about = reservation.about
    if reservation.same is not None and _is_open(book, reservation, about):
        book.take_up(reservation.run)
        return reservation.run, True
    return book.reserve(reservation.run, reservation.charge, about, again=reservation.again), False


def _is_open(book: "Ledger", reservation: Reservation, about: dict[str, Any]) -> bool:
    """Whether a run is reserved and the same; raises LedgerRefusedError if it is another one."""
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
    """What can be done if a run that has begun is another one now."""
    began = status.reserved["versions"]
    others = ", ".join(f"{name} {number}" for name, number in began.items() if versions().get(name) != number)
    first = f"finish it with {others}, with which it began, or " if others else ""
    return f"{first}choose another run_id, which is charged again"


class Remaining(NamedTuple):
    """What a ledger leaves of a data set's budget after this run."""

    epsilon: float
    delta: float


def left_words(ledger: str | None, left: Remaining | None) -> str:
    """What a privacy label says of the rest of the budget."""
    if left is not None:
        return f"epsilon {left.epsilon:.4g}, delta {left.delta:.3g} after this run, as the ledger composes"
    return "no ledger" if ledger is None else "as the ledger says: dapple ledger show"
