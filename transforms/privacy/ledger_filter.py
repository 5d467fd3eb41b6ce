"""The privacy filter: decides whether one more run fits a data set's limit, however earlier releases led to it.

Recurring runs are composed *fully adaptively*: the next mechanism, and its noise, may depend on all
releases so far. Composing privacy loss distributions and stopping where the curve reaches its limit is not a valid
filter then, nor is taking the better of two bounds as the ledger grows. So a limit (E, D) is cut in advance into parts,
and each part has its own filter:

1. Runs of Gaussian releases alone, noise multipliers z: the sum of 1 / z^2 over all of them is compared with what one
   Gaussian mechanism may have. Under one law of the releases the privacy loss is a Brownian motion with drift, run for
   a time that the analyst controls and that the filter bounds; exp(-loss) is a martingale, so by convexity no strategy
   does better than to use up the time: composition is exact, as if everything had been fixed beforehand.
2. All other runs: the sums of their stated epsilons and deltas are compared with the part of the limit that was set
   aside for them. Their loss is bounded by the sum of epsilons for any strategy, except with a probability of at most
   the sum of deltas, so both parts add up.

If nothing is left for the first part, runs of Gaussian releases are charged to the second. The cost of discrete instead
of continuous noise (`transforms/core/discretization.py`, step 3) has small reserved parts of the first part:
`_TAIL_PART` of delta, in equal portions for up to `MOST_RUNS` runs, and `_RATIO_PART` of epsilon.

Source: Rogers, Roth, Ullman, Vadhan (2016), "Privacy odometers and filters: pay-as-you-go composition", Theorem 3.6 and
the section before it, for filters and basic composition; Smith, Thakurta (2022), "Fully adaptive composition for
Gaussian differential privacy", for the sum of squares; Whitehouse, Ramdas, Rogers, Wu (2023), "Fully-adaptive
composition in differential privacy", Theorem 1, for the martingale argument (there for zCDP).
"""

import collections
import dataclasses
import functools
import itertools
import math
import urllib.parse
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dapple_dp.schemas.core.plan import LatticeNoise, Mechanism
from dapple_dp.schemas.errors import BudgetExceededError, LedgerRefusedError
from dapple_dp.schemas.privacy.charge import Charge, Limit, canonical
from dapple_dp.schemas.settings.json_schema import parse_as
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.core.discretization import log_delta, upper_ratio

MOST_RUNS = 10_000
"""Most runs of Gaussian releases on one data set."""
_SCOPE = Refusal(
    kind=LedgerRefusedError,
    rule="the scope of a charge must list partitions by column",
    remedy="restore a copy that `dapple ledger verify` accepts",
)
_TAIL_PART = 4e-4
_SEARCH_STEPS = 30
_LEAST_EPSILON = 1e-6
_RATIO_PART = 2e-5


class Spent(NamedTuple):
    """Sum of charges.

    Attributes:
      precision: sum of 1 / z^2 over Gaussian releases.
      ratio: addition to epsilon for their lattice.
      n_gaussian: number of runs that share the tails.
      basic_epsilon: sum over the other runs.
      basic_delta: likewise.
    """

    precision: float = 0.0
    ratio: float = 0.0
    n_gaussian: int = 0
    basic_epsilon: float = 0.0
    basic_delta: float = 0.0


def total(limit: Limit, charges: Iterable[Charge]) -> Spent:
    """Adds up charges that compose, all of them on the same units."""
    held = _once_per_epoch(charges)
    # Of thousands of runs like one, each is the same charge.
    times = collections.Counter(map(id, held))
    distinct = [(each, times[key]) for key, each in {id(each): each for each in held}.items()]
    gaussian = [(each, n) for each, n in distinct if _has_gaussian_part(limit) and each.is_gaussian]
    basic = [(each, n) for each, n in distinct if not (_has_gaussian_part(limit) and each.is_gaussian)]
    return Spent(
        precision=_fsum((event["noise_multiplier"] ** -2, n) for each, n in gaussian for event in each.events),
        ratio=_fsum((_ratio(limit, each.noise), n) for each, n in gaussian),
        n_gaussian=sum(n for _, n in gaussian),
        basic_epsilon=_fsum((each.epsilon, n) for each, n in basic),
        basic_delta=_fsum((each.delta, n) for each, n in basic),
    )


def _fsum(terms: Iterable[tuple[float, int]]) -> float:
    """Adds up terms, each of them so many times, rounded once."""
    return math.fsum(itertools.chain.from_iterable(itertools.repeat(value, n) for value, n in terms))


def spent_epsilon(limit: Limit, spent: Spent) -> tuple[float, float]:
    """Returns the (epsilon, delta) of `spent`, at the delta of the limit; zeros if nothing was spent."""
    if spent.n_gaussian == 0:
        return spent.basic_epsilon, spent.basic_delta
    from dp_accounting import gaussian_mechanism

    with np.errstate(divide="ignore"):
        gaussian = float(gaussian_mechanism.get_epsilon_gaussian(spent.precision**-0.5, _continuous_delta(limit)))
    delta = limit.delta - limit.basic_delta
    return gaussian + spent.ratio + spent.basic_epsilon, delta + spent.basic_delta


def fits(limit: Limit, spent: Spent) -> bool:
    """Returns whether charges are within the limit."""
    basic = (spent.basic_epsilon, spent.basic_delta)
    parts = (limit.basic_epsilon, limit.basic_delta) if _has_gaussian_part(limit) else (limit.epsilon, limit.delta)
    if basic[0] > parts[0] or basic[1] > parts[1]:
        return False
    if spent.n_gaussian == 0:
        return True
    epsilon = limit.epsilon - limit.basic_epsilon
    lattice = spent.ratio <= _RATIO_PART * epsilon and spent.n_gaussian <= MOST_RUNS
    found = log_delta(spent.precision**-0.5, (1.0 - _RATIO_PART) * epsilon)
    return lattice and found <= math.log(_continuous_delta(limit))


def check(limit: Limit, held: Sequence[Charge], charge: Charge) -> None:
    """Refuses a charge that the data set has no budget for.

    Charges on declared disjoint partitions compose with those on the same partition and with all undeclared ones.

    Args:
      limit: of the data set.
      held: reserved and committed charges on it.
      charge: of one more run.

    Raises:
      LedgerRefusedError: if it is of another kind than earlier charges.
      BudgetExceededError: if the limit would be exceeded.
    """
    _check_kind(limit, held, charge)
    _check_epoch(held, charge)
    touched = _too_much(limit, held, charge)
    if touched is None:
        return
    before, largest = spent_epsilon(limit, total(limit, touched)), largest_epsilon(limit, held, charge)
    remedy = "raise the limit or lower privacy.epsilon"
    if largest > 0.0:
        remedy = f"a run like this fits up to epsilon {largest:g}, so lower privacy.epsilon or raise the limit"
    if not (_has_gaussian_part(limit) and charge.is_gaussian) and _has_gaussian_part(limit) and largest == 0.0:
        remedy = (
            f"runs of job {charge.job} like this one need a separate part of the budget, see --basic_epsilon and "
            "--basic_delta of `dapple ledger limit`"
        )
    raise BudgetExceededError(
        f"the budget of {charge.dataset} is too small for this run: {before[0]:.6g} of epsilon {limit.epsilon:g} at "
        f"delta {limit.delta:g} is spent, and the run needs {charge.epsilon:.6g} at delta {charge.delta:g}; {remedy}."
    )


def _too_much(limit: Limit, held: Sequence[Charge], charge: Charge, times: int = 1) -> list[Charge] | None:
    """Returns earlier charges in a partition whose limit `times` more would exceed; None without such a partition."""
    for scope in _scopes([*held, charge]):
        touched = [each for each in held if _touches(each, scope)]
        if _touches(charge, scope) and not fits(limit, total(limit, [*touched, *[charge] * times])):
            return touched
    return None


def largest_epsilon(limit: Limit, held: Sequence[Charge], charge: Charge, times: int = 1) -> float:
    """Returns the largest epsilon, at the delta of a charge, with which a run of its kind fits.

    Args:
      limit: of the data set.
      held: charges on it.
      charge: of the run; its epsilon is ignored.
      times: number of such runs that must fit together, >= 1.

    Returns:
      Rounded down to three digits; 0 if none fits.
    """
    low, high = 0.0, limit.epsilon
    charge = dataclasses.replace(charge, epoch=None)
    if _too_much(limit, held, with_epsilon(charge, high), times) is None:
        low = high
    for _ in range(_SEARCH_STEPS):
        middle = 0.5 * (low + high)
        passes = _too_much(limit, held, with_epsilon(charge, middle), times) is None
        low, high = (middle, high) if passes else (low, middle)
    if low < _LEAST_EPSILON:
        return 0.0
    digits = 2 - math.floor(math.log10(low))
    return math.floor(low * 10.0**digits) / 10.0**digits


def how_many(limit: Limit, held: Sequence[Charge], charge: Charge) -> int:
    """Returns how many runs like one fit, one after another, from 0 to `MOST_RUNS`.

    Args:
      limit: of the data set.
      held: charges on it.
      charge: of the run.
    """
    charge = dataclasses.replace(charge, epoch=None)
    fitting, over = 0, 1
    while over <= MOST_RUNS and _too_much(limit, held, charge, over) is None:
        fitting, over = over, 2 * over
    over = min(over, MOST_RUNS + 1)
    while over - fitting > 1:
        middle = (fitting + over) // 2
        passes = _too_much(limit, held, charge, middle) is None
        fitting, over = (middle, over) if passes else (fitting, middle)
    return fitting


def with_epsilon(charge: Charge, epsilon: float) -> Charge:
    """Returns the charge with another epsilon and the noise of one Gaussian release of that epsilon."""
    if not charge.is_gaussian:
        return dataclasses.replace(charge, epsilon=epsilon)
    from dp_accounting import gaussian_mechanism

    with np.errstate(divide="ignore"):
        multiplier = float(gaussian_mechanism.get_sigma_gaussian(epsilon, charge.delta))
    event = {"mechanism": str(Mechanism.DISCRETE_GAUSSIAN), "noise_multiplier": multiplier}
    return dataclasses.replace(charge, epsilon=epsilon, events=(event,))


def most_spent(limit: Limit, charges: Sequence[Charge]) -> Spent:
    """Returns the spending of the partition that was charged most."""
    sums = [total(limit, [charge for charge in charges if _touches(charge, scope)]) for scope in _scopes(charges)]
    return max(sums, key=lambda spent: spent_epsilon(limit, spent), default=Spent())


def _scopes(charges: Sequence[Charge]) -> list[str | None]:
    """Returns the partitions with charges; None stands for the whole if nothing was declared."""
    declared = {_values(charge.scope) for charge in charges if charge.scope is not None}
    return [*sorted(declared)] if declared else [None]


def _touches(charge: Charge, scope: str | None) -> bool:
    """Returns whether a charge counts for a partition; it does if either has no declared scope."""
    return None in (scope, charge.scope) or _values(str(charge.scope)) == scope


@functools.lru_cache(maxsize=MOST_RUNS)
def _values(scope: str) -> str:
    """Normalizes a scope by the values of its folders: `a b` and `a%20b` are two folders of one value."""
    folders = parse_as(scope, dict[str, str], _SCOPE)
    return canonical({column: urllib.parse.unquote(folder) for column, folder in folders.items()})


def _check_kind(limit: Limit, held: Sequence[Charge], charge: Charge) -> None:
    """Refuses a charge that can't be added to earlier ones."""
    units = [limit.unit] if limit.unit is not None else [each.unit for each in held[:1]]
    if units and charge.unit is not units[0]:
        raise LedgerRefusedError(
            f"privacy.unit must be {units[0]} for data set {charge.dataset}, got {charge.unit}; budgets of different "
            "units can't be added, so give this job another data.name with its own limit."
        )
    if held and charge.neighboring_relation != held[0].neighboring_relation:
        raise LedgerRefusedError(
            f"runs on {charge.dataset} must protect against {held[0].neighboring_relation}, got "
            f"{charge.neighboring_relation}; give these runs another data.name with its own limit."
        )
    columns = {_columns(each.scope) for each in [*held, charge] if each.scope is not None}
    if len(columns) > 1:
        raise LedgerRefusedError(
            f"all runs on {charge.dataset} that declare data.disjoint_partitions must name the same columns in "
            "data.partitions, got others; remove the declaration."
        )


def _once_per_epoch(charges: Iterable[Charge]) -> list[Charge]:
    """Keeps one charge of every epoch, with the least noise of any window: it bounds the cost of all of them."""
    found: dict[object, Charge] = {}
    for place, charge in enumerate(charges):
        name = place if charge.epoch is None else str(charge.epoch["name"])
        found[name] = _least_noise(found[name], charge) if name in found else charge
    return list(found.values())


def _least_noise(one: Charge, other: Charge) -> Charge:
    """Combines the charges of two windows: every release of both, each with the lesser of its noises.

    Its epsilon and delta are those of the window that has all of its noise or, if neither does, the sums of both.
    """
    events = {event["path"]: event for event in one.events}
    for event in other.events:
        known = events.get(event["path"], event)
        events[event["path"]] = min(known, event, key=lambda each: float(each["noise_multiplier"]))
    noise = LatticeNoise(*map(max, zip(one.noise, other.noise, strict=True)))
    least = tuple(events.values())
    alike = [each for each in (one, other) if each.events == least]
    count = max if alike else math.fsum
    epsilon = count([each.epsilon for each in alike or (one, other)])
    delta = count([each.delta for each in alike or (one, other)])
    return dataclasses.replace(one, events=least, noise=noise, epsilon=epsilon, delta=delta)


def _check_epoch(held: Sequence[Charge], charge: Charge) -> None:
    """Refuses a window that was charged before, or that differs from the other windows of its epoch."""
    own = charge.epoch or {}
    for each in [each.epoch for each in held if own and each.epoch and each.epoch["name"] == own["name"]]:
        if _of_all(each) != _of_all(own):
            raise LedgerRefusedError(
                f"all windows of epoch {own['name']} must have the same job, and the window of {each['window']} has "
                "another one; use its settings, or begin an epoch with another name."
            )
        if each["index"] == own["index"]:
            raise LedgerRefusedError(
                f"the window of {own['window']} of epoch {own['name']} was charged already, so a second charge is "
                "refused; resume a run that was interrupted by its --run_id."
            )


def _of_all(epoch: dict[str, Any]) -> dict[str, Any]:
    """Returns the part that all windows of an epoch share."""
    return {name: value for name, value in epoch.items() if name not in ("window", "index")}


def _columns(scope: str) -> str:
    return ",".join(sorted(parse_as(scope, dict[str, str], _SCOPE)))


def _has_gaussian_part(limit: Limit) -> bool:
    """Returns whether some of the limit is left for the filter of Gaussian releases."""
    return limit.basic_epsilon < limit.epsilon and limit.basic_delta < limit.delta


def _continuous_delta(limit: Limit) -> float:
    """Returns the delta that is left for continuous Gaussian noise."""
    epsilon, delta = limit.epsilon - limit.basic_epsilon, limit.delta - limit.basic_delta
    return (1.0 - _TAIL_PART) * delta * math.exp(-_RATIO_PART * epsilon)


def _ratio(limit: Limit, noise: LatticeNoise) -> float:
    """Returns A + B of one run, B with this run's portion of the tails."""
    portion = _TAIL_PART / MOST_RUNS * (limit.delta - limit.basic_delta)
    return noise.lower + upper_ratio(noise, limit.epsilon - math.log(portion))
