"""The delta of a Gaussian mechanism at an epsilon, in closed form and as a logarithm, for deltas of any size.

Both terms of the formula have the normal density at one point as a factor: exp(epsilon) carries the density at
`slope + shift` to that at `slope - shift`. So the formula is this density times a difference of Mills ratios, which
neither overflows nor underflows. It needs no library, since runs whose epsilon is known load none of the accountant.

Source: Balle, Wang (2018), "Improving the Gaussian Mechanism for Differential Privacy", Theorem 8, for the formula.
"""

import math

_FRACTION_FROM = 3.0
"""Where the continued fraction takes over: below, the square of the argument costs few digits."""
_DEPTH = 80


def log_delta(noise_multiplier: float, epsilon: float) -> float:
    """Natural logarithm of the delta of a Gaussian mechanism at epsilon.

    Args:
      noise_multiplier: noise stddev / sensitivity, > 0.
      epsilon: >= 0.

    Returns:
      At most 0; -inf where delta is less than what float64 can distinguish from 0. Its error is some units in the last
      place, of itself or of 1 + noise_multiplier, whichever is more.

    Raises:
      ZeroDivisionError: if `noise_multiplier` is 0.

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
    """exp(value**2) * erfc(value) for values >= 0: twice a chance over a density, for normal numbers."""
    if value < _FRACTION_FROM:
        return math.exp(value * value) * math.erfc(value)
    below = value
    for term in range(_DEPTH, 0, -1):
        below = value + 0.5 * term / below
    return 1.0 / (math.sqrt(math.pi) * below)
