"""Bounds the spending of a shuffled batch of identical choices by their privacy blanket, in integers rounded upwards.

Standard library only, so that a device can verify it. Every inequality is in docs/guarantee.md. The law of a choice
is a mixture: with probability gamma, the blanket, it is uniform for every point. So some of the other reports
hide the one that neighbors replace.
"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple, Self

from dapple_dp.schemas.reports.parameters import WORD, SubsetChoice, exp_below

_SCALE_BITS = 64
_GUARD_BITS = 64
_CUT_BITS = 26
"""Masses below delta / 2**26 are bounded by a geometric series and not summed."""
_MOST_HIDING = 8_000
"""Most other reports, on average, among the codewords that one of two points favors: more would take seconds to sum."""
_MOST_REPORTS = 10**8
_LEAST_EPSILON, _LEAST_DELTA = 1e-9, 1e-15
_LOSS_PER_BLOCK = 0.1
_LEAST_BLOCK = 0.5


def blanket_delta(choice: SubsetChoice, epsilon: float, n_reports: int, delta: float) -> Fraction:
    """Returns an upper bound on delta, at `epsilon`, of n shuffled reports by one choice each, for replacing a client.

    Args:
      choice: of all reports; the orders in which clients look up positions may be any.
      epsilon: > 0, at most `MOST_STATED_EPSILON`.
      n_reports: >= 1; the bound holds for more reports, too.
      delta: in (0, 1), near which the bound shall be sharp; the bound holds for any value.

    Returns:
      The bound; 1 if favored things aren't the likelier ones, epsilon is below 1e-9, or `delta` below 1e-15.

    Source: Balle, Bell, Gascon, Nissim (2019), "The privacy blanket of the shuffle model", lemma 5.3.

    Example:
      >>> choice = SubsetChoice.at_most(1024, 5, 6.0)
      >>> float(blanket_delta(choice, 1.0, 100_000, 1e-6)) < 1e-6
      True
    """
    return min(Fraction(1), sum(_terms(choice, epsilon, n_reports, delta), start=Fraction(0)))


def blanket_keeps(choice: SubsetChoice, epsilon: float, n_reports: int, delta: float) -> bool:
    """Returns whether `blanket_delta` is at most `delta`; stops as soon as it can't be."""
    total = Fraction(0)
    return all((total := total + term) <= delta for term in _terms(choice, epsilon, n_reports, delta))


class _Precision(NamedTuple):
    """Fixed point: `one` stands for 1; masses below `cut`, which is 2**-bits, are negligible."""

    one: int
    cut: int
    bits: int

    @classmethod
    def for_delta(cls, delta: float) -> Self:
        """Returns enough digits for a sum that is about `delta`."""
        cut_bits = _CUT_BITS - math.frexp(delta)[1]
        return cls(1 << (cut_bits + _GUARD_BITS), 1 << _GUARD_BITS, cut_bits)


class _Gains(NamedTuple):
    """Additions of one hiding or hidden report to the odds of one point less e^epsilon times those of the other.

    Attributes:
      first: of a codeword that only the first point favors, in units of `unit`; the largest.
      second: of one that only the second point favors; the least.
      other: of all others.
      unit: the value of 1.
      differing: probability that a uniform codeword is favored by one point only.
    """

    first: int
    second: int
    other: int
    unit: Fraction
    differing: Fraction

    @classmethod
    def of(cls, choice: SubsetChoice, epsilon: float) -> Self:
        """Returns the gains for two points whose favored sets overlap as little as possible, the worst case."""
        likely = choice.threshold * (choice.size - choice.near)
        unlikely = (WORD - choice.threshold) * choice.near
        one = 1 << _SCALE_BITS
        odds = int(exp_below(epsilon) * one)
        both_favored = 2 * choice.near > choice.size
        return cls(
            first=likely * one - odds * unlikely,
            second=unlikely * one - odds * likely,
            other=(likely if both_favored else unlikely) * (one - odds),
            unit=Fraction(choice.size, WORD * choice.near * (choice.size - choice.near) * one),
            differing=Fraction(2 * min(choice.near, choice.size - choice.near), choice.size),
        )


class _Masses(NamedTuple):
    """Upper bounds on the probabilities of first, first + 1, ...; `below` and `above` on those of all others."""

    first: int
    masses: list[int]
    below: int
    above: int


def _terms(choice: SubsetChoice, epsilon: float, n_reports: int, delta: float) -> Iterator[Fraction]:
    """Yields bounds on the parts of delta, by blocks of the number of hiding reports: more of them hide no worse."""
    if choice.ratio <= 1 or epsilon < _LEAST_EPSILON or delta < _LEAST_DELTA:
        yield Fraction(1)
        return
    precision = _Precision.for_delta(delta)
    gains = _Gains.of(choice, epsilon)
    blanket = Fraction(choice.size * (WORD - choice.threshold), WORD * (choice.size - choice.near))
    most = min(_MOST_REPORTS, int(_MOST_HIDING / (blanket * gains.differing)) + 1)
    others = _binomial(min(n_reports, most) - 1, blanket, precision)
    yield Fraction(others.below, precision.one)
    for least, mass in _blocks(others, precision):
        negligible = mass <= precision.cut
        yield Fraction(mass, precision.one) * (1 if negligible else _divergence(least + 1, gains, precision))


def _blocks(others: _Masses, precision: _Precision) -> list[tuple[int, int]]:
    """Returns least number and mass of blocks of numbers, largest numbers first; they cover all but `others.below`."""
    mean = others.first + max(range(len(others.masses)), key=others.masses.__getitem__)
    spread = math.sqrt(mean)
    width = max(1, int(max(_LEAST_BLOCK * spread, _LOSS_PER_BLOCK * mean / (precision.bits - _CUT_BITS + 1))))
    end = min(len(others.masses), max(1, mean - others.first + int(3.0 * spread) + 4))
    starts = [*range(0, end, width), len(others.masses)]
    blocks = [
        (others.first + start, sum(others.masses[start:following])) for start, following in itertools.pairwise(starts)
    ]
    last, mass = blocks[-1]
    return [(last, mass + others.above), *blocks[-2::-1]]


def _divergence(n_mixed: int, gains: _Gains, precision: _Precision) -> Fraction:
    """Returns E[max(0, sum of gains)] / n_mixed, the divergence of batches of a report and n_mixed - 1 uniform ones."""
    if gains.first <= 0:
        return Fraction(0)
    differing = _binomial(n_mixed, gains.differing, precision)
    total = (differing.below + differing.above) * n_mixed * gains.first * precision.one
    last = differing.first + len(differing.masses) - 1
    least = _least_winning(last, n_mixed, gains)
    if least > last:
        return _scaled(total, n_mixed, gains, precision)
    chance = (math.comb(last, least) * precision.one >> last) + 1
    for count in range(last, differing.first - 1, -1):
        total += differing.masses[count - differing.first] * _tail(
            count, least, chance, n_mixed, gains, (precision, differing.masses[count - differing.first])
        )
        if count == 0:
            break
        lower = _least_winning(count - 1, n_mixed, gains)
        if lower > count - 1:
            break
        chance = -(-chance * 2 * (count - least if lower == least else least) // count)
        chance, least = min(chance, _at_most(count - 1, lower, precision)), lower
    return _scaled(total, n_mixed, gains, precision)


def _scaled(total: int, n_mixed: int, gains: _Gains, precision: _Precision) -> Fraction:
    return min(Fraction(1), Fraction(total, precision.one**2 * n_mixed) * gains.unit)


def _least_winning(count: int, n_mixed: int, gains: _Gains) -> int:
    """Returns the least number of first ones among `count` differing reports for which the sum of gains is positive."""
    short = -(gains.second * count + gains.other * (n_mixed - count))
    return short // (gains.first - gains.second) + 1


def _at_most(count: int, heads: int, precision: _Precision) -> int:
    """Returns Hoeffding's bound on the probability of this many heads; keeps rounded tiny chances from growing."""
    # 0.7 is below 1 / (2 log 2).
    excess = max(0, 2 * heads - count)
    return (precision.one >> (7 * excess**2 // (10 * count) if count else 0)) + 1


def _tail(count: int, least: int, chance: int, n_mixed: int, gains: _Gains, weight: tuple[_Precision, int]) -> int:
    """Returns an upper bound on the sum over heads >= `least` of chance times sum of gains, for `count` fair coins.

    Args:
      count: coins.
      least: of `_least_winning`.
      chance: upper bound on the probability of `least` heads.
      n_mixed: all reports.
      gains: of one report.
      weight: the precision, and the probability of `count`, which decide what is negligible.
    """
    precision, mass = weight
    step = gains.first - gains.second
    value = gains.first * least + gains.second * (count - least) + gains.other * (n_mixed - count)
    negligible = precision.cut * precision.one
    masses = moments = 0
    heads = least
    while chance * mass >= negligible or 2 * heads < count:
        masses += chance
        moments += chance * (heads - least)
        if heads == count:
            return masses * value + moments * step
        chance = -(-chance * (count - heads) // (heads + 1))
        heads += 1
    # Ratios of further chances are at most (count - heads) / (heads + 1) = 1 - rest / (heads + 1).
    rest = 2 * heads + 1 - count
    masses += -(-chance * (heads + 1) // rest)
    moments += -(-chance * (heads + 1) * (heads - least) // rest)
    moments += -(-chance * (heads + 1) * (count - heads) // rest**2)
    return masses * value + moments * step


def _binomial(n_trials: int, chance: Fraction, precision: _Precision) -> _Masses:
    """Returns upper bounds on binomial probabilities, from the mode until they are negligible."""
    if chance == 1 or n_trials == 0:
        return _Masses(n_trials, [precision.one], 0, 0)
    mode = (n_trials + 1) * chance.numerator // chance.denominator
    mode = min(mode, n_trials)
    odds = (chance.numerator, chance.denominator - chance.numerator)
    up, above = _fall(n_trials - mode, mode, odds, precision)
    down, below = _fall(mode, n_trials - mode, odds[::-1], precision)
    # Weights fall from the mode on, so each step adds at most one to what rounding has added.
    lost = (len(up) * (len(up) + 1) + len(down) * (len(down) + 1)) // 2
    least = precision.one + sum(up) + sum(down) - lost
    weights = [*down[::-1], precision.one, *up]
    masses = [-(-weight * precision.one // least) for weight in weights]
    tails = [-(-weight * precision.one // least) for weight in (below, above)]
    return _Masses(mode - len(down), masses, *tails)


def _fall(room: int, taken: int, odds: tuple[int, int], precision: _Precision) -> tuple[list[int], int]:
    """Returns weights relative to the mode on one side of it, rounded upwards, and a bound on the sum of all others.

    Args:
      room: steps to the end of the range.
      taken: of the other kind, at the mode.
      odds: numerator and denominator by which a step multiplies, besides counts.
      precision: of all numbers.
    """
    weight = precision.one
    weights: list[int] = []
    for step in range(room):
        numerator, denominator = (room - step) * odds[0], (taken + step + 1) * odds[1]
        weight = -(-weight * numerator // denominator)
        if weight < precision.cut and numerator < denominator:
            return weights, -(-weight * denominator // (denominator - numerator))
        weights.append(weight)
    return weights, 0
