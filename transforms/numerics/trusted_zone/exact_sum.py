"""Sums of float64 numbers without rounding: the same in any order, any bundle and any block."""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics.lattice import BLOCK_ROWS

LIMB_BITS = 24
"""Most bits of the integers into which a number is cut, so that 2**31 of them fit int64."""
_LOWEST_PLACE = -40
"""Parts of numbers below 2**(LIMB_BITS * _LOWEST_PLACE), about 1e-289, count as zero."""


class ExactSum(NamedTuple):
    """Sums of one shape; adding never rounds, reading rounds once.

    Attributes:
      limbs: by place; the sum is that of limbs[place] * 2**(LIMB_BITS * place). Every array is int64, of one shape.
      infinite: int64, same shape: number of terms that were infinite.
    """

    limbs: dict[int, NDArray[np.int64]]
    infinite: NDArray[np.int64]

    @classmethod
    def zeros(cls, shape: tuple[int, ...] = ()) -> Self:
        """Creates the neutral element."""
        return cls({}, np.zeros(shape, dtype=np.int64))

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self:
        """Adds up values over the first axis.

        Args:
          values: shape (n, ...), no NaN, n < 2**29.

        Example:
          >>> float(ExactSum.of(np.array([1e300, 1.0, -1e300])).value)
          1.0
        """
        finite = np.isfinite(values)
        limbs = {place: _int64(limb.sum(axis=0)) for place, limb in _limbs(np.where(finite, values, 0.0))}
        return cls(limbs, _int64((~finite).sum(axis=0)))

    @classmethod
    def grouped(cls, values: NDArray[np.float64], labels: NDArray[np.int64], n_groups: int) -> "ExactSum":
        """Adds up values per group.

        Args:
          values: shape (n, n_columns), no NaN, n < 2**29.
          labels: shape (n,), in [0, n_groups).
          n_groups: at least 1.

        Returns:
          Sums of shape (n_groups, n_columns).
        """
        total = ExactSum.zeros((n_groups, values.shape[1]))
        groups = np.arange(n_groups)[:, None]
        for start in range(0, len(values), BLOCK_ROWS):
            block = values[start : start + BLOCK_ROWS]
            members = (labels[start : start + BLOCK_ROWS] == groups).astype(np.float64)
            finite = np.isfinite(block)
            limbs = {place: _int64(members @ limb) for place, limb in _limbs(np.where(finite, block, 0.0))}
            total = total.merge(cls(limbs, _int64(members @ ~finite)))
        return total

    def merge(self, other: "ExactSum") -> "ExactSum":
        """Returns the sum of two, in new arrays."""
        limbs = dict(self.limbs)
        for place, limb in other.limbs.items():
            limbs[place] = np.asarray(limbs[place] + limb) if place in limbs else limb
        return ExactSum(limbs, np.asarray(self.infinite + other.infinite))

    def total(self) -> "ExactSum":
        """Returns the sum over the first axis."""
        return ExactSum(
            {place: _int64(limb.sum(axis=0)) for place, limb in self.limbs.items()}, self.infinite.sum(axis=0)
        )

    @property
    def integers(self) -> tuple[NDArray[np.object_], int]:
        """Python integers of the sum's shape, and the exponent of their unit; infinite terms left out."""
        lowest = min(self.limbs, default=0)
        total = np.zeros(self.infinite.shape, dtype=object)
        for place, limb in self.limbs.items():
            total = total + limb.astype(object) * (1 << LIMB_BITS * (place - lowest))
        return np.asarray(total, dtype=object), LIMB_BITS * lowest

    def over(self, counts: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Divides the sum by counts, rounded once; infinite if a term was or the quotient is too large.

        Args:
          counts: broadcast to the sum's shape; a count of 0 gives NaN.
        """
        integers, exponent = self.integers
        unit = Fraction(2) ** exponent
        pairs = zip(integers.ravel(), np.broadcast_to(counts, integers.shape).ravel(), strict=True)
        quotients = [_rounded(int(integer) * unit, int(count)) for integer, count in pairs]
        shaped = np.array(quotients, dtype=np.float64).reshape(integers.shape)
        return np.where(self.infinite > 0, np.inf, shaped)

    @property
    def value(self) -> NDArray[np.float64]:
        """The sum, rounded once."""
        return self.over(1)


def _limbs(values: NDArray[np.float64]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yields integers, in float64, that make up finite values, by place from the highest on; skips places of zeros."""
    rest = values
    while (place := _highest_place(rest)) >= _LOWEST_PLACE:
        limb = np.trunc(rest * 2.0 ** (-LIMB_BITS * place))
        yield place, limb
        rest = rest - limb * 2.0 ** (LIMB_BITS * place)


def _highest_place(values: NDArray[np.float64]) -> int:
    largest = float(np.abs(values).max(initial=0.0))
    return (int(np.frexp(largest)[1]) - 1) // LIMB_BITS if largest else _LOWEST_PLACE - 1


def _int64(sums: NDArray) -> NDArray[np.int64]:
    """Returns integers as an array, even if they are one number."""
    return np.asarray(sums).astype(np.int64)


def _rounded(total: Fraction, count: int) -> float:
    if count == 0:
        return float("nan")
    try:
        return float(total / count)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")
