"""Conversion of pipeline elements to blocks of rows, which statistics read."""

import collections
import contextlib
import dataclasses
import numbers
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow, GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from dapple_dp.beam.windows import PublicWindows
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import InputError, PrivacyFlowError, RunnerError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core.round import Round, measure
from dapple_dp.transforms.numerics.kernel import row_pass
from dapple_dp.transforms.numerics.one_thread import one_thread
from dapple_dp.transforms.on_beam.workers import LeanFn
from dapple_dp.transforms.rounds.memory_rows import GROUP_ROWS

Matrix = NDArray[np.floating]
_NO_MEMORY = "a worker ran out of memory, which must hold a block of rows and all rows of a client; give workers more."
_BRANCHES = 32
_ELEMENT = {
    False: "each element must be a pyarrow.RecordBatch, got {got}; convert your elements with beam.Map.",
    True: "each element must be a pair of a client id and a pyarrow.RecordBatch, got {got}; make pairs with beam.Map.",
}


_WINDOW = (
    "all elements must be in windows of one function, got one in another, which would be released separately; "
    "apply beam.WindowInto after beam.Flatten."
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Rows of one or more elements, or all rows of one or more clients.

    Attributes:
      block: the rows; None for no rows, as in the public element that every window has.
    """

    block: ClientBlock | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows; private."""
        return 0 if self.block is None else len(self.block.points)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """`RowReader` of blocks, which contain their rows.

    Attributes:
      contract: contract by which the rows were read.
    """

    contract: TableContract
    cores = 0

    @property
    def by_client(self) -> bool:
        """True if the contract is by client."""
        return self.contract.by_client

    @property
    def client_id(self) -> str | None:
        """Column of clients in the contract."""
        return self.contract.client_id

    @property
    def participation(self) -> Any:
        """Participation rules in the contract."""
        return self.contract.participation

    def start(self) -> None:
        """Loads the compiled kernel for statistics."""
        row_pass.start()

    def sums(self, shards: Sequence[RowBlock], round_: Round, state: Any) -> NDArray[np.int64]:
        """Returns the sum of a statistic over some blocks."""
        if round_.at is not None:
            raise PrivacyFlowError(
                f"rounds of a transform must read all rows alike, got {round_.plan.path}; run a job."
            )
        total = np.zeros(round_.plan.size, dtype=np.int64)
        with one_thread(), _memory():
            for shard in shards:
                if shard.block is not None:
                    total += measure(round_, shard.block, state)
        return total


@contextlib.contextmanager
def _memory() -> Iterator[None]:
    """Reports a lack of memory without NumPy's message, which would contain the number of rows."""
    try:
        yield
    except MemoryError:
        raise RunnerError(_NO_MEMORY) from None


class ReadFn(LeanFn):
    """Validates elements and converts their rows to matrices, keyed by client if the contract is by client.

    Args:
      contract: contract of the rows.
      windows: elements of other windows are left out, and rows are keyed by a branch; None for the global window.
    """

    def __init__(self, contract: TableContract, windows: PublicWindows | None = None):
        self._contract, self._windows = contract, windows

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        """Yields the rows of an element, if there are any; raises InputError without a value of the rows."""
        if not (window == GlobalWindow() if self._windows is None else self._windows.are_of_size(window)):
            raise InputError(_WINDOW)
        if self._windows is not None and window not in self._windows:
            return
        by_client = self._contract.by_client
        key, batch = (None, element) if not by_client else _pair(element)
        if not isinstance(batch, pa.RecordBatch):
            raise InputError(_ELEMENT[by_client].format(got=f"a {type(batch).__name__}"))
        points = self._contract.to_points(pa.Table.from_batches([batch]), "a batch")
        if len(points):
            branch = key if self._windows is None else zlib.crc32(points.tobytes()) % _BRANCHES
            yield points if branch is None else (branch, points)


def _pair(element: Any) -> tuple[Any, Any]:
    """Returns a client and its batch; ids get one type, since runners compare them by their bytes."""
    if not isinstance(element, tuple) or len(element) != 2:
        raise InputError(_ELEMENT[True].format(got=f"a {type(element).__name__}"))
    client, batch = element
    if isinstance(client, numbers.Integral) and not isinstance(client, bool):
        return int(client), batch
    kind = next((kind for kind in (str, bytes) if isinstance(client, kind)), None)
    if kind is None:
        raise InputError(f"client ids must be integers, strings or bytes, got {type(client).__name__}; convert them.")
    return kind(client), batch


class BlocksFn(LeanFn):
    """Joins rows of several elements, or of several whole clients, of one window to one block."""

    def __init__(self, contract: TableContract, windows: PublicWindows | None = None):
        self._by_client, self._in_branches = contract.by_client, windows is not None

    def start_bundle(self) -> None:
        """Clears the buffer."""
        self._waiting: dict[BoundedWindow, list[Matrix]] = collections.defaultdict(list)
        self._n_rows: dict[BoundedWindow, int] = collections.Counter()

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[RowBlock]:
        """Yields a block once it has enough rows."""
        whole = [_joined(element[1])] if self._by_client else [element]
        for points in element[1] if self._in_branches else whole:
            if points is None:
                yield RowBlock()
                continue
            self._waiting[window].append(points)
            self._n_rows[window] += len(points)
            if self._n_rows[window] >= GROUP_ROWS:
                yield self._block(window)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the remaining rows of each window."""
        for window in list(self._waiting):
            yield WindowedValue(self._block(window), window.max_timestamp(), (window,))

    def _block(self, window: BoundedWindow) -> RowBlock:
        parts = self._waiting.pop(window)
        del self._n_rows[window]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64) if self._by_client else None
        return RowBlock(ClientBlock(_joined(parts), offsets))


def _joined(parts: Iterable[Matrix]) -> Matrix:
    with _memory():
        matrices = list(parts)
        return matrices[0] if len(matrices) == 1 else np.concatenate(matrices)
