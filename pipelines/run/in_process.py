"""The loop engine: runs the rounds of a plan on rows in memory or local files, in this process and without Beam.

The order is that of a graph. First the audit inspects all objects and compares the spending of the rounds with the
plan. Then rows become blocks, which can't be counted twice, the key is made, and the rounds run on one BLAS thread.
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
    """Calibrated rounds, and the contract for reading their rows."""

    @property
    def initial(self) -> Any:
        """Public state before the first round."""

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Rounds in order."""

    @property
    def contract(self) -> TableContract:
        """Contract by which rows are read."""

    @property
    def promise(self) -> Promise:
        """Promise on the spending of the rounds."""


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
      start: returns the key of the run; called once, right before the rounds.
      tell: called with a line after each round, with the estimated remaining time; None for no messages.

    Returns:
      The states before the first round and after each one, and the privacy cost of the rounds.

    Raises:
      PrivacyFlowError: before any row is read, if the rounds differ from the plan or need another engine.
      InputError: if the rows break their contract.
      RunnerError: if the memory is too small.
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
    """Blocks of a run that report progress; `loop.run` iterates over them once per round.

    Args:
      blocks: all rows.
      n_rounds: number of rounds in the run.
      say: called with a line; None for no messages.
    """

    def __init__(self, blocks: Iterable[ClientBlock], n_rounds: int, say: Callable[[str], None] | None):
        self._blocks, self._n_rounds, self._say = blocks, n_rounds, say
        self._begun, self._start = 0, time.monotonic()

    def __iter__(self) -> Iterator[ClientBlock]:
        self.tell()
        self._begun += 1
        return iter(self._blocks)

    def tell(self) -> None:
        """Reports that the latest round is done, if one has begun."""
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
    """Audits rounds and returns their spending; refuses rounds that break the promise or need another engine.

    Args:
      initial: state before the first round.
      rounds: rounds in order.
      contract: contract by which rows are read.
      promise: promise on the spending of the rounds.
      source: files of the rows; None if they are in memory.

    Raises:
      PrivacyFlowError: with the name of the round.
    """
    if contract.participation is not None or any(plan.shares is not None for plan in promise.plans):
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
        # The original message contains the number of rows.
        pass
    raise RunnerError(loop.NO_MEMORY)


def _refuse(what: str) -> NoReturn:
    raise PrivacyFlowError(f"rounds in memory must be a whole run of a trusted pipeline, got {what}; use Beam.")


def _refused(name: str) -> Callable[[str, str], PrivacyFlowError]:
    return lambda rule, remedy: PrivacyFlowError(f"{name} must {rule}; {remedy}.")
