"""The cost of drawing discrete instead of continuous Gaussian noise, and the delta of a Gaussian mechanism.

The accountant composes continuous Gaussian mechanisms; the noise stage draws discrete ones. `discretization_slack`
bounds the difference without data, for any number of coordinates and adaptively composed rounds.

Notation: one coordinate with noise stddev s; phi is the density of N(0, s^2); z runs over the integers; S is the
sum of phi(z), at least 1 and at most 1 + 3 exp(-2 pi^2 s^2) (Poisson summation). The discrete Gaussian is
p(z) = phi(z) / S, and a rounded continuous one is

    q(z) = phi(z) f(z),   f(z) = integral over |u| <= 1/2 of exp(-u^2 / (2 s^2)) cosh(z u / s^2) du.

1. cosh >= 1 and exp(-t) >= 1 - t give f >= 1 - 1 / (24 s^2), so p <= q exp(a) with a = -log(1 - 1 / (24 s^2)).
2. exp(-t) <= 1 and cosh(t) <= exp(t^2 / 2) give f(z) <= exp(z^2 / (8 s^4)). If z is y rounded, |z| <= 2 |y|, so
   q <= p exp(b) with b = log S + (y / s)^2 / (2 s^2), where y / s is standard normal.
3. Exact sums are integers, so the rounded mechanism only post-processes the continuous one. Over all coordinates
   and rounds the ratios multiply, however later queries depend on earlier releases, since the noise is independent.
   Let A be the sum of all a, B a bound that the sum of all b exceeds with probability at most exp(-x), P and P' the
   laws of all releases on two neighbors, Q and Q' the same for rounded noise. For every event E
       P(E) - e^eps P'(E) <= e^A Q(E) - e^(eps - B) (Q'(E) - e^-x) <= e^A delta_c(eps - A - B) + e^(eps - x),
   where delta_c belongs to the continuous mechanisms, discrete Laplace releases included: these are pure on the
   lattice already. B is the Laurent-Massart bound for weighted sums of squared normals.

So the discrete mechanisms are (eps, delta)-DP if the continuous ones are so at eps - A - B and
(delta - e^(eps - x)) e^-A. Both losses are tiny, and unlike a total-variation bound, which is multiplied by
1 + e^eps, they stay so at large epsilon.

4. A release that a unit does not move has the same law under both neighbors and needs no rounding. So of the windows
   of an epoch only those count that one unit moves.

Source: Canonne, Kamath, Steinke (2020), "The Discrete Gaussian for Differential Privacy", for p; Laurent, Massart
(2000), Lemma 1, for the tail.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dapple_dp.schemas.core.plan import Geometry, LatticeNoise, Mechanism, ReleasePlan, RoundPlan

_FRACTION_FROM = 3.0
"""Arguments from here on use the continued fraction; below, squaring the argument costs few digits."""
_DEPTH = 80


def log_delta(noise_multiplier: float, epsilon: float) -> float:
    """Returns the natural logarithm of the delta of a Gaussian mechanism at epsilon, for deltas of any size.

    Both terms of the formula have the normal density at one point as a factor: exp(epsilon) carries the density at
    `slope + shift` to that at `slope - shift`. So the formula is this density times a difference of Mills ratios,
    which neither overflows nor underflows.

    Args:
      noise_multiplier: noise stddev / sensitivity, > 0.
      epsilon: >= 0.

    Returns:
      At most 0; -inf if float64 can't distinguish delta from 0. The error is some units in the last place of the
      result or of 1 + noise_multiplier, whichever is larger.

    Source: Balle, Wang (2018), "Improving the Gaussian Mechanism for Differential Privacy", Theorem 8.

    Example:
      >>> round(math.exp(log_delta(1.0, 0.0)), 6)
      0.382925
      >>> round(log_delta(1.0, 100.0), 6)
      -4960.254554
    """
    shift, slope = 0.5 / noise_multiplier, epsilon * noise_multiplier
    near, far = (slope - shift) / math.sqrt(2.0), _scaled_tail((slope + shift) / math.sqrt(2.0))
    log_density = -near * near
    if near < 0.0:
        rest = math.erfc(near) - math.exp(log_density) * far
        return math.log(0.5 * rest) if rest > 0.0 else -math.inf
    rest = _scaled_tail(near) - far
    return log_density + math.log(0.5 * rest) if rest > 0.0 else -math.inf


def _scaled_tail(value: float) -> float:
    """Returns exp(value**2) * erfc(value) for values >= 0."""
    if value < _FRACTION_FROM:
        return math.exp(value * value) * math.erfc(value)
    below = value
    for term in range(_DEPTH, 0, -1):
        below = value + 0.5 * term / below
    return 1.0 / (math.sqrt(math.pi) * below)


_TAIL_PART = 5e-4
"""Part of delta spent on the tail event of step 3."""
_MIN_VARIANCE = 0.25
"""Smallest variance to which the bounds apply, lattice units squared."""


class DiscretizationSlack(NamedTuple):
    """The part of a budget that noise on the lattice costs.

    Attributes:
      epsilon: A + B.
      delta: the target minus what is left for the continuous mechanisms; at least 1/2000 of the target.
    """

    epsilon: float
    delta: float


def discretization_slack(rounds: Sequence[RoundPlan], epsilon: float, delta: float) -> DiscretizationSlack:
    """Returns what to subtract from (epsilon, delta) before continuous Gaussian mechanisms are composed.

    Args:
      rounds: calibrated rounds, adaptively composed.
      epsilon: > 0; an upper bound on the epsilon that will be claimed, the slack included.
      delta: in (0, 1); the delta that will be claimed, the slack included.

    Returns:
      Zero without Gaussian releases; (infinity, delta) if a noise stddev is below half a lattice unit.
    """
    noise = lattice_noise(rounds)
    if noise == LatticeNoise():
        return DiscretizationSlack(0.0, 0.0)
    tail = _TAIL_PART * delta
    upper = upper_ratio(noise, epsilon - math.log(tail))
    if math.isinf(noise.lower):
        return DiscretizationSlack(math.inf, delta)
    return DiscretizationSlack(noise.lower + upper, delta - (delta - tail) * math.exp(-noise.lower))


def lattice_noise(rounds: Sequence[RoundPlan]) -> LatticeNoise:
    """Returns the parameters of the bound: zeros without Gaussian releases, infinities below `_MIN_VARIANCE`."""
    groups = [group for plan in rounds for release in plan.releases for group in _noise_groups(release)]
    if not groups:
        return LatticeNoise()
    if min(variance for _, variance in groups) < _MIN_VARIANCE:
        return LatticeNoise(math.inf, math.inf, math.inf, math.inf)
    return LatticeNoise(
        lower=-math.fsum(size * math.log1p(-1.0 / (24.0 * variance)) for size, variance in groups),
        mean=math.fsum(
            size * (0.5 / variance + 3.0 * math.exp(-2.0 * math.pi**2 * variance)) for size, variance in groups
        ),
        square=math.fsum(size / variance**2 for size, variance in groups),
        largest=max(1.0 / variance for _, variance in groups),
    )


def upper_ratio(noise: LatticeNoise, exponent: float) -> float:
    """Returns the bound B of step 3, exceeded with probability at most exp(-exponent)."""
    return noise.mean + math.sqrt(exponent * noise.square) + exponent * noise.largest


def _noise_groups(release: ReleasePlan) -> Iterator[tuple[int, float]]:
    """Yields (coordinates that a unit may move, variance) for each Gaussian variance in a release."""
    size, variance, windows = release.spec.size, release.noise_scale**2, release.spec.windows
    if release.spec.mechanism is not Mechanism.DISCRETE_GAUSSIAN or size == 0:
        return
    diagonal = size
    if release.spec.geometry is Geometry.SYMMETRIC:
        diagonal = (math.isqrt(8 * size + 1) - 1) // 2
    yield windows * diagonal, variance
    if size > diagonal:
        yield windows * (size - diagonal), variance / 2.0
