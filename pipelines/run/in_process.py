"""The loop engine: the rounds of a plan on rows in memory or in local files, in this process and without Beam.

The order is that of a graph. The audit looks at all objects and compares what the rounds spend with the plan; rows
become blocks, which nobody else can count twice; the key is made; then the rounds run on one BLAS thread.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import GraphPrivacy, Promise, Zone
from dapple_dp.schemas.errors import PrivacyFlowError, RunnerError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.core.audit import Audit
from dapple_dp.transforms.core.loop import RunKey
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.numerics.kernel import row_pass
from dapple_dp.transforms.numerics.one_thread import one_thread
from dapple_dp.transforms.rounds.memory_rows import Columns, MemoryRows

if TYPE_CHECKING:
    from dapple_dp.transforms.rounds.local_rows import LocalRows
    from dapple_dp.transforms.tables.source import Source


class Rounds(Protocol):
    """Calibrated rounds, and how their rows are read."""

    @property
    def initial(self) -> Any:
        """State before the first round; public."""

    @property
    def rounds(self) -> tuple[Round, ...]:
        """In order."""

    @property
    def contract(self) -> TableContract:
        """By which rows are read."""

    @property
    def promise(self) -> Promise:
        """What the rounds spend."""


def run_in_process(
    planned: Rounds,
    rows: "Columns | LocalRows",
    start: Callable[[], RunKey],
    tell: Callable[[str], None] | None = None,
) -> tuple[tuple[Any, ...], GraphPrivacy]:
    """Runs all rounds.

    Args:
      planned: the rounds.
      rows: all rows.
      start: gives the key of the run; called once, when nothing but the rounds is left to do.
      tell: takes a line after each round, with the time that is left; None to say nothing.

    Returns:
      The states before the first round and after each, and what the rounds have spent.

    Raises:
      PrivacyFlowError: if the rounds are not those of the plan, or need another engine; no row has been looked at.
      InputError: if the rows break their contract.
      RunnerError: if there is too little memory.
    """
    initial, rounds, contract = planned.initial, planned.rounds, planned.contract
    source = None if isinstance(rows, Columns) else rows.source
    spent = check_rounds(initial, rounds, contract, planned.promise, source)
    row_pass.start()
    with one_thread():
        blocks = _Watched(_blocks(rows, contract), len(rounds), tell)
        states = loop.run(initial, rounds, blocks, start())
    blocks.tell()
    return states, spent


class _Watched:
    """The blocks of a run, and how far it is: `loop.run` iterates over them once a round.

    Args:
      blocks: all rows.
      n_rounds: of the run.
      say: takes a line; None to say nothing.
    """

    def __init__(self, blocks: Iterable[ClientBlock], n_rounds: int, say: Callable[[str], None] | None):
        self._blocks, self._n_rounds, self._say = blocks, n_rounds, say
        self._begun, self._start = 0, time.monotonic()

    def __iter__(self) -> Iterator[ClientBlock]:
        self.tell()
        self._begun += 1
        return iter(self._blocks)

    def tell(self) -> None:
        """Says that the round that began last is done, if one began."""
        done = self._begun
        if done and self._say:
            taken = time.monotonic() - self._start
            left = taken / done * (self._n_rounds - done)
            self._say(f"round {done} of {self._n_rounds}: {taken:.1f} s, about {left:.1f} s left")


def check_rounds(
    initial: Any,
    rounds: tuple[Round, ...],
    contract: TableContract,
    promise: Promise,
    source: "Source | None" = None,
) -> GraphPrivacy:
    """What rounds spend, which must be what is promised; they must be audited, and need no other engine.

    Args:
      initial: state before the first round.
      rounds: in order.
      contract: by which rows are read.
      promise: what the rounds spend.
      source: files of the rows; None if they are in memory.

    Raises:
      PrivacyFlowError: naming the round.
    """
    if contract.participation is not None or any(each.shares is not None for each in promise.plans):
        _refuse("windows of clients or shares of noise")
    if promise.zone is not Zone.PUBLIC or promise.chunk is not None or promise.stages is not None:
        _refuse("a part of a run")
    audit = Audit(promise)
    audit.check_promise()
    audit.start([initial], _refused("the first state"))
    audit.read([contract] if source is None else [contract, source], _refused("the rows"))
    for each in rounds:
        audit.measure(None, each, [contract], _refused(each.plan.path))
        audit.draw(each.plan, _refused(each.plan.path))
    return audit.finish()


def _blocks(rows: "Columns | LocalRows", contract: TableContract) -> Iterable[ClientBlock]:
    try:
        return MemoryRows(rows, contract) if isinstance(rows, Columns) else rows.blocks(contract)
    except MemoryError:
        # What it says itself has the number of rows.
        pass
    raise RunnerError(loop.NO_MEMORY)


def _refuse(what: str) -> NoReturn:
    raise PrivacyFlowError(f"rounds in memory must be a whole run of a trusted pipeline, got {what}; use Beam.")


def _refused(name: str) -> Callable[[str, str], PrivacyFlowError]:
    return lambda rule, remedy: PrivacyFlowError(f"{name} must {rule}; {remedy}.")
