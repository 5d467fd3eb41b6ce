"""Rounds on rows in memory, without Beam: `measure`, exact sum, noise and server step, one round after the other.

`run` draws under a `RunKey` and runs only what `pipelines/run/in_process.py` has audited. `simulate` draws under a
public key, as much noise as it is asked for, and its result is of another type.
"""

import contextlib
import dataclasses
import hmac
import math
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.errors import PrivacyFlowError, RunnerError
from dapple_dp.transforms.core import noise
from dapple_dp.transforms.core.round import Releases, Round, measure

NO_MEMORY = "The rows of the run don't fit into memory; run it again on a machine with more memory."
Draw = Callable[[RoundPlan, NDArray[np.int64]], Releases]
"""(plan of a round, exact sum) -> its releases."""


class RunKey:
    """The key that draws in one run, and in no second one; only `pipelines/run/run_keys.py` makes one.

    Args:
      raw: 32 secret bytes of this run. They are dropped when the run is over, and never shown or pickled.
    """

    __slots__ = ("_raw", "_unused")

    def __init__(self, raw: bytes):
        self._raw: bytes | None = raw
        self._unused = threading.Lock()

    def mac(self, parts: Iterable[Any]) -> str:
        """Returns the HMAC-SHA256 of concatenated buffers, 64 hex digits; PrivacyFlowError if the run is over."""
        found = hmac.new(self._left(), digestmod="sha256")
        for part in parts:
            found.update(part)
        return found.hexdigest()

    @contextlib.contextmanager
    def once(self) -> Iterator[Draw]:
        """Draws real noise until the end of the context; raises PrivacyFlowError the second time."""
        if not self._unused.acquire(blocking=False):
            raise PrivacyFlowError("this run key has already drawn noise; create a new key for each run.")
        try:
            yield lambda plan, exact_sum: noise.draw_release(self._left(), plan, exact_sum)
        finally:
            self._raw = None

    def _left(self) -> bytes:
        if self._raw is None:
            raise PrivacyFlowError("this run key belongs to a run that is over; create a new one.")
        return self._raw


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Result of a simulation. It is not private, since anybody can subtract its noise, and can't be pickled.

    Attributes:
      states: before the first round, and after each.
    """

    states: tuple[Any, ...]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a simulation must stay in its process, because its noise is public.")

    def model(self) -> Any:
        """Returns the model after the last round."""
        return self.states[-1].model()


def run(initial: Any, rounds: Sequence[Round], blocks: Iterable[ClientBlock], key: RunKey) -> tuple[Any, ...]:
    """Runs calibrated rounds on private rows.

    A failure leaves no exact sum and no noise in the locals of its traceback.

    Args:
      initial: state before the first round; public.
      rounds: in order.
      blocks: all rows, once in each round.
      key: of this run.

    Returns:
      The states before the first round, and after each. They contain nothing private but the releases of the rounds'
      plans.

    Raises:
      PrivacyFlowError: if the key has drawn before, a statistic is not as in its plan, or a round reads the files of
        each window in another way.
      RunnerError: if there is too little memory.
    """
    placed = [each.plan.path for each in rounds if each.at is not None]
    if placed:
        raise PrivacyFlowError(f"rounds in memory must all read the same rows, got {placed[0]}; run the job with Beam.")
    with key.once() as draw:
        return tuple(_states(initial, rounds, lambda round_, state: _released(round_, blocks, state, draw)))


def simulate(
    initial: Any,
    rounds: Sequence[Round],
    blocks: Sequence[ClientBlock],
    key: bytes,
    *,
    factor: float = 1.0,
    variance: float = 1.0,
) -> Simulated:
    """Runs rounds under a public key.

    Args:
      initial: state before the first round.
      rounds: in order.
      blocks: all rows.
      key: 32 bytes, public; labels no draw of a real run.
      factor: multiplies the exact sums, > 0: the number of units for which one unit of the rows stands.
      variance: of the drawn noise, as a multiple of the planned one, > 0.
    """

    def draw(plan: RoundPlan, exact_sum: NDArray[np.int64]) -> Releases:
        if factor != 1.0:
            exact_sum = np.rint(exact_sum * factor).astype(np.int64)
        return noise.draw_release(key, plan if variance == 1.0 else _noisier(plan, variance), exact_sum)

    states = _states(initial, rounds, lambda round_, state: _released(round_, blocks, state, draw))
    return Simulated(tuple(states))


def _states(initial: Any, rounds: Sequence[Round], released: Callable[[Round, Any], Releases]) -> Iterator[Any]:
    """Yields the state before the first round, and after each."""
    state = initial
    yield state
    for round_ in rounds:
        state = round_.step(state, released(round_, state))
        yield state


def _released(round_: Round, blocks: Iterable[ClientBlock], state: Any, draw: Draw) -> Releases:
    """Returns the releases of a round. The exact sum is no local of this frame; a failure clears the frames below."""
    try:
        return draw(round_.plan, _exact_sum(round_, blocks, state.broadcast()))
    except MemoryError as error:
        # Its message has the number of rows, and would stay as a context if the other error were raised here.
        _clear(error)
    except BaseException as error:
        _clear(error)
        raise
    raise RunnerError(NO_MEMORY)


def _exact_sum(round_: Round, blocks: Iterable[ClientBlock], state: Any) -> NDArray[np.int64]:
    total = np.zeros(round_.plan.size, dtype=np.int64)
    for block in blocks:
        total += measure(round_, block, state)
    return total


def _clear(error: BaseException) -> None:
    """Clears the frames of an error and of those that led to it."""
    traceback.clear_frames(error.__traceback__)
    for before in {error.__cause__, error.__context__}:
        if before is not None:
            _clear(before)


def _noisier(plan: RoundPlan, variance: float) -> RoundPlan:
    more = math.sqrt(variance)
    noisier = (dataclasses.replace(part, noise_multiplier=more * part.noise_multiplier) for part in plan.releases)
    return dataclasses.replace(plan, releases=tuple(noisier))
