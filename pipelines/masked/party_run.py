"""A party's part in a run of masked aggregation: takes its turns, and waits for others until the end.

Each turn runs one of the jobs `upload`, `aggregate` and `unmask`. They store the party's answers, so a killed party
resumes with the same command. The files in the exchange determine whose turn it is. A waiting party reads no row,
secret or message, and writes nothing but that it takes part.
"""

import collections
import contextlib
import dataclasses
import functools
import importlib
import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apache_beam.options.pipeline_options import StandardOptions

from dapple_dp.pipelines.jobs.job import Job, Run
from dapple_dp.pipelines.jobs.place import Summary
from dapple_dp.pipelines.jobs.run_job import carry_out, reporting
from dapple_dp.pipelines.run.folder import MANIFEST
from dapple_dp.pipelines.run.options import JobOptions, check_in_process, parse_job, read_text
from dapple_dp.pipelines.run.signals.log_lines import of_run
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.errors import AbsentError, ConfigError, JobDiffersError, NotYetError, ProtocolError
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR, OFFICES, RESULT
from dapple_dp.schemas.masked.pairwise_messages import Leg
from dapple_dp.schemas.settings.tiers import check_runner
from dapple_dp.transforms.files.stores import STORE, is_away, join
from dapple_dp.transforms.masked.exchange_files import COUNTERSIGNED, MESSAGES, marks
from dapple_dp.transforms.masked.pairwise_files import FEWEST_CLIENTS, PairwiseExchange
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.masked.sealing import SEALED
from dapple_dp.transforms.masked.signing import signing_parties

_LOGGER = logging.getLogger(__name__)
_OPEN = "open"
_AWAY = "an answer from the store"
_STORE = (-1, "store")
"""Step of a party that waits for a store."""
_FIRST_PAUSE = 0.25
"""Seconds before the second look for something; each further pause is twice as long, up to `Patience.poll`."""
PARTY = "party"
"""Name of the command."""


class Turn(NamedTuple):
    """A turn of a party, or something that it waits for.

    Attributes:
      step: round and action; a party does it once.
      waits: what the party waits for afterwards, and from whom.
      ready: whether it can be done now.
      seen: inputs of the action; it isn't tried again with the same ones.
    """

    step: tuple[int, str]
    waits: str
    ready: bool = False
    seen: Collection[Any] = ()


class Patience(NamedTuple):
    """Seconds to wait in total, at most between two looks, and for latecomers; and a function that pauses."""

    wait: float
    poll: float
    late: float
    pause: Callable[[float], Any] = time.sleep


@dataclasses.dataclass(eq=False)
class Seat:
    """A party's place in a run.

    Attributes:
      role: role of the party, as in the command.
      exchange: exchange of the run.
      patience: waiting times.
      released: folder of the releases so far; empty for the aggregator.
      client: name of a client that sends; empty for other parties.
      threshold: smallest number of messages in a sum, according to the party's own job.
      check: validates the job without sending anything; called before the run is open and once it is.
      refused: parties that take no part, and the settings in which their jobs differ.
    """

    role: str
    exchange: PairwiseExchange
    patience: Patience
    released: str
    client: str
    threshold: int = 1
    check: Callable[[], object] = lambda: None
    refused: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    _checked: set[bool] = dataclasses.field(default_factory=set)
    _since: dict[tuple[int, str], float] = dataclasses.field(default_factory=dict)

    def look(self) -> Turn | None:
        """Returns the next turn; None if the run is over for the party."""
        if (opened := self.exchange.is_open()) not in self._checked:
            self.check()
            if opened and self.client:
                self.exchange.take_part(self.client)
            self._checked.add(opened)
        try:
            index = self.exchange.last_round()
        except NotYetError:
            return Turn((0, _OPEN), f"the first round from {COLLECTOR}", self.role == "clients")
        leg = self.exchange.leg(index)
        if index == 0 and leg is not Leg.SHARES:
            self._look_who_refuses()
        return _ROLES[self.role][1](self, index, leg)

    def _look_who_refuses(self) -> None:
        """Logs which parties take no part; raises ProtocolError if the run can't go on without them."""
        own = _name(self.role, self.client)
        # A party whose own job still differs says so itself.
        refused = {party: keys for party, keys in self.exchange.refusals().items() if party != own}
        for party in sorted(refused.keys() - self.refused.keys()):
            _LOGGER.warning("warning: %s takes no part: %s", party, _differs(refused[party]))
        self.refused = refused
        signed = self.exchange.parties is not None
        needed = max(self.threshold, self.quorum, FEWEST_CLIENTS if self.exchange.plan().pairwise else 1)
        if signed and (refused.keys() & set(OFFICES) or (refused and len(self.clients - refused.keys()) < needed)):
            raise ProtocolError(
                f"The run can't go on without {', '.join(sorted(refused))}: "
                f"{'; '.join(sorted({_differs(keys) for keys in refused.values()}))}. Correct that job and start it "
                "again first, then the other parties; if the collector's job changes, open a new run."
            )

    @property
    def clients(self) -> set[str]:
        """Names of all clients; empty if no parties are listed."""
        return set(getattr(self.exchange.parties, "keys", ())) - set(OFFICES)

    @property
    def last(self) -> int:
        """Index of the last round."""
        return len(self.exchange.plan().rounds) - 1

    def has(self, *names: str) -> bool:
        """Returns whether a file is among the releases."""
        return STORE.exists(join(self.released, *names))

    def after(self, index: int) -> str:
        """Words for what follows a round, and from whom."""
        return f"{'the result' if index == self.last else f'round {index + 1}'} from {COLLECTOR}"

    @property
    def quorum(self) -> int:
        """Number of clients that must countersign a sum before anyone answers it; 0 if they don't split the noise."""
        shares = self.exchange.plan().shares
        return 0 if shares is None else shares.quorum(len(self.clients))

    def answer(self, index: int) -> Turn:
        """The turn that answers a sum; if clients split the noise, waits for enough countersignatures first."""
        there = self.exchange.arrived(index, COUNTERSIGNED)
        if (more := self.quorum - len(there)) > 0:
            return Turn((index, "quorum"), f"countersignatures of round {index} from {more} more clients")
        return Turn((index, Leg.SHARES), self.after(index), True, there.keys())

    def gather(self, index: int, leg: Leg, there: Mapping[str, Any], senders: set[str]) -> Turn:
        """The turn of a party that proceeds when all senders have sent, or when it is late and some have."""
        senders = senders - self.refused.keys()
        since, missing = self._since.setdefault((index, leg), time.monotonic()), sorted(senders - there.keys())
        late = time.monotonic() - since >= self.patience.late
        # A smaller sum would never be answered.
        ready = len(there) >= max(1, self.quorum) and (late or bool(senders and not missing))
        waits = f"{leg} of round {index} from {', '.join(missing) or 'clients'}"
        return Turn((index, leg), waits, ready, frozenset(there.items()))


def _of_client(seat: Seat, index: int, leg: Leg) -> Turn | None:
    """Next turn of a client, which sends in every leg and answers the sum."""
    exchange, after = seat.exchange, seat.after(index)
    if index and not seat.has(f"{index - 1:02d}.parquet"):
        return Turn((index, "releases"), f"the releases of round {index - 1} in --released from {COLLECTOR}")
    if leg is not Leg.SHARES:
        what = "the sum" if leg is Leg.MESSAGES else f"the list of {leg}"
        # Nobody can seal messages before the aggregator has published its key.
        return Turn((index, leg), f"{what} of round {index} from {AGGREGATOR}", exchange.has_key())
    if index == seat.last and seat.has(RESULT, MANIFEST):
        return None
    if seat.has(f"{index:02d}.parquet"):
        return Turn((index, "closed"), after)
    if exchange.plan().shares is not None and not exchange.has_countersigned(index, seat.client):
        return Turn((index, COUNTERSIGNED), after, True)
    return Turn((index, "closed"), after) if exchange.plan().pairwise is None else seat.answer(index)


def _of_aggregator(seat: Seat, index: int, leg: Leg) -> Turn | None:
    """Next turn of the aggregator, which publishes its key and closes every leg."""
    if leg is Leg.SHARES:
        return None if index == seat.last else Turn((index, "closed"), seat.after(index))
    if not seat.exchange.has_key():
        return Turn((index, "key"), "its own key", True)
    return seat.gather(index, leg, seat.exchange.arrived(index, leg), seat.clients)


def _of_collector(seat: Seat, index: int, leg: Leg) -> Turn | None:
    """Next turn of the unmasking party, which opens the run and its rounds, reads the sums, and writes the result."""
    exchange = seat.exchange
    if seat.has(f"{index:02d}.parquet"):
        return Turn((index, "next"), seat.after(index), True)
    if leg is not Leg.SHARES:
        return Turn((index, "closed"), f"the sum of round {index} from {AGGREGATOR}")
    turn = seat.answer(index)
    if exchange.plan().pairwise is None or not turn.ready:
        return turn
    folder = join(seat.released, f"{index:02d}_shares")
    handed = {path[len(folder) + 1 : -len(SEALED)]: mark for path, mark in marks(folder, SEALED).items()}
    return seat.gather(index, leg, handed, set(exchange.arrived(index, MESSAGES)))


_ROLES: Mapping[str, tuple[str, Callable[[Seat, int, Leg], Turn | None]]] = {
    "client": ("upload", _of_client),
    AGGREGATOR: ("aggregate", _of_aggregator),
    "clients": ("unmask", _of_collector),
}
"""Job and turns of each role. Only the party's own job is imported: the aggregator must not have code that masks."""


def take_part(role: str, argv: Sequence[str], patience: Patience) -> Summary:
    """Takes part in a run to its end, and returns the summary that is printed last.

    Args:
      role: client, aggregator, or clients for the unmasking party.
      argv: words after the name of the job.
      patience: waiting times.

    Raises:
      AbsentError: if another party doesn't answer in time.
      DappleError: if the run fails.
    """
    job: Job[Any, Any, Any] = importlib.import_module(f"dapple_dp.pipelines.masked.{_ROLES[role][0]}").JOB
    options = parse_job(job.name, argv, job.flags)
    settings = job.load(read_text(options.config))
    masked = settings if role == AGGREGATOR else settings.masked
    own = _name(role, options.client)
    exchange = PairwiseExchange(options.exchange, signing_parties(masked.parties, masked.identity_uri, own))
    threshold = settings.threshold if role == AGGREGATOR else masked.threshold
    run = Run(settings=settings, options=options, place=job.place(settings, options))
    check_stores(settings)
    check_runner(options.beam.view_as(StandardOptions).runner, getattr(settings, "experimental", False))
    check_in_process(PARTY, options.beam, False)
    side = importlib.import_module(
        f"dapple_dp.pipelines.masked.{'aggregate' if role == AGGREGATOR else 'clients_role'}"
    )
    side.check_start(run)
    check = functools.partial(side.check_plan, run) if role == "client" else lambda: None
    seat = Seat(role, exchange, patience, options.released, options.client, threshold, check)
    result = join(seat.released, RESULT) if seat.released else ""
    whole = dataclasses.replace(options, output=result)
    with of_run(PARTY, options.run_id), reporting(PARTY, whole, settings) as summary:
        summary |= _to_the_end(job, settings, options, seat, own)
        return summary


def _name(role: str, client: str) -> str:
    """Name under which a party is listed and signs."""
    return client or (AGGREGATOR if role == AGGREGATOR else COLLECTOR)


def _differs(keys: Sequence[str]) -> str:
    """Describes how a job differs from the run's."""
    return f"its job differs in {', '.join(keys)}" if keys else "its job differs"


def _to_the_end(job: Job[Any, Any, Any], settings: Any, options: JobOptions, seat: Seat, own: str) -> Summary:
    """Takes all turns; each call of the job is a separate run within that of the party."""
    exchange, calls = seat.exchange, itertools.count(1)
    left_out: dict[int, set[str]] = collections.defaultdict(set)

    def play(turn: Turn) -> Summary:
        call = dataclasses.replace(options, run_id=f"{options.run_id}-{next(calls)}")
        run = Run(settings=settings, options=options, place=job.place(settings, options))
        with reporting(job.name, call, settings) as summary, carry_out(job, run) as (planned, result):
            summary |= job.write(run, planned, result).summary
        exchange.take_part(own)
        left_out[turn.step[0]].update(each.rpartition("/")[2].partition(".")[0] for each in summary.get("left_out", ()))
        return summary

    def end() -> Summary:
        summary: Summary = {"run_id": exchange.plan().run, "rounds": seat.last + 1}
        if seat.role == AGGREGATOR:
            there = [exchange.arrived(index, MESSAGES).keys() for index in range(seat.last + 1)]
            absent = {index: sorted(seat.clients - each | left_out[index]) for index, each in enumerate(there)}
            return summary | {"left_out": {index: names for index, names in absent.items() if names}}
        if seat.role == "client":
            # The run is over, so no answer is sent again.
            kept = PartyState.of(str(settings.masked.state_uri), str(settings.masked.secret_uri), own)
            kept.of_run(exchange.plan().nonce).end()
        return summary | {"client": own, "output": join(seat.released, RESULT)}

    summary = _take_turns(seat, own, play, end)
    return {"run_id": exchange.plan().run, "rounds": seat.last + 1} | summary


def _take_turns(seat: Seat, own: str, play: Callable[[Turn], Summary], end: Callable[[], Summary]) -> Summary:
    """Takes a party's turns by `play`; returns the summary that ended the run, or `end()` if another party ended it.

    Only here do parties wait for a store that doesn't answer, in any operation. The party does each step once, waits
    before it repeats an attempt, and limits its total wait. So it ends whatever others do.
    """
    waited, pause, done, (wait, poll, *_) = 0.0, 0.0, set[Any](), seat.patience
    said: Any = None
    tried: Any = None
    while True:
        began, turn = time.monotonic(), None
        try:
            with _told_to_others(seat, own):
                turn = seat.look()
                if turn is None:
                    return end()
                if turn.ready and turn.step not in done and (turn.step, turn.seen) != tried:
                    tried = (turn.step, turn.seen)
                    _check_same_run(seat.exchange, turn)
                    summary = play(turn)
                    done.add(turn.step)
                    if "output" in summary:
                        return summary
                    continue
        except NotYetError as error:
            if turn is None:
                raise
            _LOGGER.info("not yet: %s", error)
        except PermissionError as error:
            raise _not_shared(seat, error) from error
        except Exception as error:
            if not is_away(error):
                raise
            # Repeat the turn: an interrupted job resumes.
            turn, tried = Turn(_STORE, _AWAY), None
            waited += time.monotonic() - began
        if said != turn.step:
            if _STORE not in (said, turn.step):  # A store may come and go with each look.
                pause = 0.0
            said = turn.step
            _LOGGER.info("%s waits for %s", own, turn.waits)
        if not waited < wait:
            raise AbsentError(
                f"{turn.waits} didn't arrive within --wait_minutes {wait / 60.0:g}; ask for it, and repeat the "
                "command, which resumes here."
            )
        seat.patience.pause(pause := min(poll, max(_FIRST_PAUSE, 2.0 * pause)))
        waited += pause


def _not_shared(seat: Seat, error: PermissionError) -> Exception:
    """Returns the error for a file in a shared folder that this party can't read or write; else the error itself."""
    place, shared = str(error.filename), [folder for folder in (seat.exchange.folder, seat.released) if folder]
    if not place.startswith(tuple(shared)):
        return error
    return ConfigError(
        f"this party has no access to {place}, and {' and '.join(shared)} must be open to all parties; create both "
        "folders before the run, with a group of these parties and mode 2770, and start with umask 007."
    )


@contextlib.contextmanager
def _told_to_others(seat: Seat, own: str) -> Iterator[None]:
    """Notifies the other parties if this one can't take part."""
    try:
        yield
    except JobDiffersError as error:
        seat.exchange.refuse(own, error.keys)
        raise


def _check_same_run(exchange: PairwiseExchange, turn: Turn) -> None:
    """Refuses to continue if the run was replaced: under another nonce, all would be answered and spent again."""
    if turn.step[1] != _OPEN and PairwiseExchange(exchange.folder, exchange.parties).plan() != exchange.plan():
        raise ProtocolError(
            "plan.json was replaced while the run went on; find out who has opened a second run, and give each run "
            "its own --exchange."
        )
