"""Favored codewords of a report, and their moments: constants of encoder and decoder."""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.parameters import SubsetChoice

MOST_EPSILON = 8.0
"""Largest epsilon of one report: beyond it, codewords would be more than a small device can rank."""
_BITS = ((2.0, 6), (4.0, 8), (MOST_EPSILON, 10))
_LEAST_EFFICIENCY = 0.95
_GRID = np.linspace(-9.0, 9.0, 1801)
_WIDEST_SCORE = 6.0


class CodewordMoments(NamedTuple):
    """Moments of a report's codeword, scaled to variance 1, for the encoded unit vector v.

    Attributes:
      mean: its expectation is `mean` * v.
      excess: its second moment is the identity plus `excess` * v v^T.
      favored: probability that it is a favored one.
      favored_mean: expectation along v of a favored one.
    """

    mean: float
    excess: float
    favored: float
    favored_mean: float


def codeword_choice(epsilon: float) -> SubsetChoice:
    """Returns the choice among 2**6, 2**8 or 2**10 codewords for a report with this privacy loss.

    The favored codewords are the fewest whose mean keeps 95% of the squared mean that is possible: a little
    variance buys a much larger excess, and with it a sharper view of the directions that matter.

    Args:
      epsilon: > 0, at most `MOST_EPSILON`.

    Raises:
      ConfigError: if epsilon is out of range.
    """
    if not 0.0 < epsilon <= MOST_EPSILON:
        raise ConfigError(
            f"epsilon of one report must be > 0 and at most {MOST_EPSILON:g}, got {epsilon:.6g}; lower privacy.epsilon."
        )
    size = 1 << next(bits for limit, bits in _BITS if epsilon <= limit)
    means, _ = _order_moments(size)
    near = np.arange(1, size)
    odds = math.exp(epsilon)
    strength = (odds - 1.0) * np.cumsum(means)[:-1] / (near * odds + size - near)
    enough = strength**2 >= _LEAST_EFFICIENCY * strength.max() ** 2
    return SubsetChoice.at_most(size, int(near[enough.argmax()]), epsilon)


def bit_choices(epsilon: float, histogram_share: float) -> tuple[tuple[SubsetChoice, float], ...]:
    """Returns randomized response for the two bits of the paper's variant, and the privacy loss of each.

    Args:
      epsilon: > 0, of both.
      histogram_share: in (0, 1), of epsilon, for the first bit.
    """
    first = epsilon * histogram_share
    second = epsilon - first
    while Fraction(first) + Fraction(second) > Fraction(epsilon):
        second = math.nextafter(second, 0.0)
    return tuple((SubsetChoice.at_most(2, 1, part), part) for part in (first, second))


@functools.cache
def codeword_moments(choice: SubsetChoice) -> CodewordMoments:
    """Returns moments for codewords of independent Gaussian products with v; random signs differ by about 1 / width.

    Example:
      >>> moments = codeword_moments(SubsetChoice.at_most(64, 22, 1.0))
      >>> round(moments.mean, 4), round(moments.excess, 3)
      (0.3923, 0.156)
    """
    means, squares = _order_moments(choice.size)
    near, rest = choice.near, choice.size - choice.near
    favored = choice.threshold / 2.0**64
    first, second = float(means[:near].sum()), float(squares[:near].sum())
    others = choice.size - second
    return CodewordMoments(
        mean=first * (favored / near - (1.0 - favored) / rest),
        excess=favored * second / near + (1.0 - favored) * others / rest - 1.0,
        favored=favored,
        favored_mean=first / near,
    )


@functools.cache
def log_score_ratios(choice: SubsetChoice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the log likelihood ratio of a codeword by its product with v, against one that is independent of v.

    Returns:
      Products, ascending, and the log ratio at each; it rises from that of the least to that of the most likely
      codewords. Across v a codeword carries no information.
    """
    densities = _order_densities(choice.size)
    favored = choice.threshold / 2.0**64
    shares = np.where(
        np.arange(choice.size) < choice.near, favored / choice.near, (1.0 - favored) / (choice.size - choice.near)
    )
    ratios = (shares @ densities) / densities.mean(axis=0)
    inside = np.abs(_GRID) <= _WIDEST_SCORE
    return _GRID[inside], np.log(ratios[inside])


def _order_moments(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns first two moments of the largest, second largest, ... of `size` standard normals, by quadrature."""
    masses = _order_densities(size) * (_GRID[1] - _GRID[0])
    return masses @ _GRID, masses @ _GRID**2


@functools.cache
def _order_densities(size: int) -> NDArray[np.float64]:
    """Returns densities of the largest, second largest, ... of `size` standard normals on the grid, shape (size, n)."""
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in _GRID])
    log_density = -0.5 * _GRID**2 - 0.5 * math.log(2.0 * math.pi)
    log_below, log_above = np.log(below), np.log(below[::-1])
    ranks = np.arange(1, size + 1)
    choose = np.array([math.lgamma(size + 1) - math.lgamma(rank) - math.lgamma(size - rank + 1) for rank in ranks])
    exponent = log_density + (ranks - 1)[:, None] * log_above + (size - ranks)[:, None] * log_below
    return np.exp(exponent + choose[:, None])
