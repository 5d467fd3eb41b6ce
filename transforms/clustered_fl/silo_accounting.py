"""The privacy accountant for clients that run DP-SGD: the cost of their events, and the least noise within a budget.

It computes a `SiloPlan` from public settings and reads no data. The privacy unit is one row of one client,
`adjacency` defines neighbors, and the number of rows that a client declares is public.
"""

import functools
import math
from collections.abc import Callable, Sequence

import scipy.optimize
from dp_accounting import NeighboringRelation, PrivacyAccountant, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from dapple_dp.schemas.choices import Adjacency, SiloAccountant
from dapple_dp.schemas.clustered_fl.plan import SiloBudget, SiloEvent, SiloPlan
from dapple_dp.schemas.clustered_fl.records import ClusteringParams, TrainingParams
from dapple_dp.schemas.errors import ConfigError, UnsupportedEventError
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import LARGEST_MULTIPLIER, schedule_of

SELECTION_SHARE = 0.1
"""Share of the rounds in which they select clusters."""

_LOG_TOLERANCE = 5e-5
_LOG_STEP_UP = 0.7
_LOG_STEP_DOWN = 0.35
_SMALLEST_MULTIPLIER = 1e-2
_RELATIONS = {
    Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
}


def selection_rounds(rounds: int, share: float = SELECTION_SHARE) -> int:
    """Returns in how many rounds each client selects a cluster: a share in (0, 1] of `rounds`, rounded up."""
    return math.ceil(round(share * rounds, 9))


@functools.cache
def silo_plan(n_rows: int, training: TrainingParams, clustering: ClusteringParams, budget: SiloBudget) -> SiloPlan:
    """Returns the plan with the least noise that keeps all of a client's events together within its budget.

    Args:
      n_rows: the publicly declared number of rows.
      training: rounds, epochs and batches.
      clustering: number of selections and offers.
      budget: total of the run.

    Raises:
      ConfigError: if the budget is out of range, selections alone exceed it, or noise is too large to be drawn.
      UnsupportedEventError: if the accountant cannot compose the events for this adjacency.
    """
    _check(n_rows, budget)
    choice = _choice_multiplier(budget) if clustering.offer_rounds else 0.0

    def events_at(multiplier: float) -> tuple[SiloEvent, ...]:
        return silo_events(n_rows, training, clustering, budget, multiplier)

    multiplier, spent = _search(lambda z: silo_epsilon(events_at(z), budget), budget.epsilon)
    largest = multiplier * max(budget.first_round_noise_ratio, 1.0)
    if largest > LARGEST_MULTIPLIER:
        raise ConfigError(
            f"noise multipliers must be at most {LARGEST_MULTIPLIER:g}, got {largest:g} for a client; set a larger "
            "epsilon or a smaller first_round_noise_ratio."
        )
    return SiloPlan(
        n_rows=n_rows,
        noise_multiplier=multiplier,
        first_round_multiplier=multiplier * budget.first_round_noise_ratio,
        select_epsilon=budget.select_share * budget.epsilon,
        choice_multiplier=choice,
        epsilon=spent,
        delta=budget.delta,
        adjacency=budget.adjacency,
        accountant=budget.accountant,
        events=events_at(multiplier),
    )


def silo_events(
    n_rows: int, training: TrainingParams, clustering: ClusteringParams, budget: SiloBudget, multiplier: float
) -> tuple[SiloEvent, ...]:
    """Returns all events of a client, with as many selections as a run may need at most."""
    start = schedule_of(training, n_rows, first=True)
    later = schedule_of(training, n_rows, first=False)
    events: tuple[SiloEvent, ...] = (
        SiloEvent(
            name="first_round_steps",
            count=start.n_steps,
            noise_multiplier=multiplier * budget.first_round_noise_ratio,
            sampling_rate=start.rate,
        ),
        SiloEvent(
            name="steps",
            count=later.n_steps * (training.rounds - 1),
            noise_multiplier=multiplier,
            sampling_rate=later.rate,
        ),
        SiloEvent(
            name="selections",
            count=clustering.selection_rounds,
            select_epsilon=budget.select_share * budget.epsilon,
        ),
    )
    answered = sum(number < training.rounds for number in clustering.offer_rounds)
    if answered:
        choices = SiloEvent(name="choices", count=answered, noise_multiplier=_choice_multiplier(budget))
        events = (*events, choices)
    return tuple(event for event in events if event.count > 0)


@functools.cache
def _choice_multiplier(budget: SiloBudget) -> float:
    """Returns the noise multiplier of a choice, from its share and that of one release with the whole budget."""

    def spent_at(multiplier: float) -> float:
        return silo_epsilon((SiloEvent(name="choices", count=1, noise_multiplier=multiplier),), budget)

    return _search(spent_at, budget.epsilon)[0] / math.sqrt(budget.choice_share)


def silo_epsilon(events: Sequence[SiloEvent], budget: SiloBudget) -> float:
    """Returns the epsilon of all events at the budget's delta; uses only its delta, adjacency, accountant and scale.

    Raises:
      UnsupportedEventError: for sampled steps and adjacency replace_one, unless the accountant is pld.
    """
    if budget.accountant is SiloAccountant.PLD:
        return _pld_epsilon(events, budget)
    if budget.adjacency is not Adjacency.ADD_REMOVE:
        raise UnsupportedEventError(
            f"accountant must be {SiloAccountant.PLD} for adjacency {budget.adjacency}, got {budget.accountant}; the "
            "Renyi accountant only covers adding or removing rows in Poisson-sampled steps."
        )
    accountant = RdpAccountant(None, NeighboringRelation.ADD_OR_REMOVE_ONE)
    _compose(accountant, events, _zero_concentrated)
    return float(accountant.get_epsilon(budget.delta))


def _pld_epsilon(events: Sequence[SiloEvent], budget: SiloBudget) -> float:
    """Composes events by privacy loss distributions; an upper bound at their resolution."""
    interval = min(max(budget.epsilon / 1e4, 1e-5), 1e-3)
    accountant = PLDAccountant(_RELATIONS[budget.adjacency], interval)
    replace = budget.adjacency is Adjacency.REPLACE_ONE
    _compose(accountant, events, _replacing_response if replace else _monotone_response)
    return float(accountant.get_epsilon(budget.delta))


def _compose(
    accountant: PrivacyAccountant, events: Sequence[SiloEvent], selection: Callable[[float], dp_event.DpEvent]
) -> None:
    """Composes steps, and selections by the event that `selection` gives."""
    for event in events:
        if event.select_epsilon is not None:
            # One by one: the accountant of distributions ignores the count of randomized responses.
            for _ in range(event.count):
                accountant.compose(selection(event.select_epsilon))
        elif event.noise_multiplier is not None:
            gaussian = dp_event.GaussianDpEvent(event.noise_multiplier)
            sampled = event.sampling_rate < 1.0
            step = dp_event.PoissonSampledDpEvent(event.sampling_rate, gaussian) if sampled else gaussian
            accountant.compose(dp_event.SelfComposedDpEvent(step, event.count))


def _zero_concentrated(epsilon: float) -> dp_event.DpEvent:
    """Returns the event of a selection: its losses span a range of epsilon, so it is (epsilon^2 / 8)-zCDP."""
    return dp_event.ZCDpEvent(epsilon**2 / 8.0)


def _monotone_response(epsilon: float) -> dp_event.DpEvent:
    """Returns randomized response: an added row raises each count by 0 or 1, so a selection is (epsilon / 2)-DP."""
    return dp_event.DiscreteLaplaceDpEvent(epsilon / 2.0, 1)


def _replacing_response(epsilon: float) -> dp_event.DpEvent:
    """Returns randomized response: a replaced row moves counts both ways, so a selection is epsilon-DP."""
    return dp_event.RandomizedResponseDpEvent(2.0 / (1.0 + math.exp(epsilon)), 2)


def _search(spent_at: Callable[[float], float], epsilon: float) -> tuple[float, float]:
    """Returns the smallest tried noise multiplier that meets the budget, and the epsilon that it spends."""
    spent: dict[float, float] = {}

    def excess(log_multiplier: float) -> float:
        if log_multiplier not in spent:
            spent[log_multiplier] = spent_at(math.exp(log_multiplier))
        return math.log(min(max(spent[log_multiplier] / epsilon, 1e-6), 1e6))

    high = low = 0.0
    while excess(high) > 0.0:
        if math.exp(high) > LARGEST_MULTIPLIER:
            raise ConfigError(
                f"epsilon is {epsilon:g}, which is too little for training after the selections are paid for; lower "
                "select_share or the number of rounds."
            )
        low, high = high, high + _LOG_STEP_UP
    while excess(low) <= 0.0 and math.exp(low) > _SMALLEST_MULTIPLIER:
        low, high = low - _LOG_STEP_DOWN, low
    if excess(low) > 0.0:
        scipy.optimize.brentq(excess, low, high, xtol=_LOG_TOLERANCE)
    best = min(each for each, value in spent.items() if value <= epsilon)
    return math.exp(best), spent[best]


def _check(n_rows: int, budget: SiloBudget) -> None:
    if not 0.0 < budget.epsilon < math.inf:
        raise ConfigError(f"epsilon must be a finite number > 0, got {budget.epsilon}; set the total for one client.")
    if not 0.0 < budget.delta < 1.0 / n_rows:
        raise ConfigError(
            f"delta must be above 0 and below 1 / {n_rows}, where {n_rows} is the number of rows of the largest "
            f"client, got {budget.delta}; use about a tenth of that or less."
        )
    if not min(budget.first_round_noise_ratio, budget.select_share, budget.choice_share) > 0.0:
        raise ConfigError(
            "first_round_noise_ratio, select_share and choice_share must be > 0, got "
            f"{budget.first_round_noise_ratio}, {budget.select_share} and {budget.choice_share}; leave them out to "
            "use 1, 0.03 and 0.05."
        )
