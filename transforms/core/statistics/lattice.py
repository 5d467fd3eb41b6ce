"""Exact lattice arithmetic: rows become integers of bounded norm, held in float64 so that BLAS adds them exactly.

A row is centered, scaled so that the clipping norm is `2**bits` units, and truncated toward zero, which never makes it
longer. A row outside the clipping ball is shrunk into it, and the bound is checked on the integers. Every step is
elementwise or an exact sum of integers, so the result depends on the row alone: not on memory layout, on the rows
beside it, or on the CPU.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics.row_pass import kernel

SUM_BITS = 20
"""The clipping norm (or one row, for counts) is 2**SUM_BITS units in sums, counts and assignments."""
OUTER_BITS = 16
"""The clipping norm is 2**OUTER_BITS units in outer products."""
SUM_UNITS = 1 << SUM_BITS
OUTER_UNITS = 1 << OUTER_BITS
EXACT_LIMIT = float(1 << 53)
"""Integers of absolute value up to here are exact in float64."""
MAX_ROWS = (1 << 31) - 1
"""Rows of one data set: 2**31 rows of 2**32 units would reach 2**63, the end of int64."""
BLOCK_ROWS = 1024
"""Rows worked on at a time; such a block stays in the cache."""


class Lattice(NamedTuple):
    """The public frame of the integers.

    Attributes:
      center: shape (n_features,), feature units.
      clipping_norm: > 0, feature units.
    """

    center: NDArray[np.float64]
    clipping_norm: float

    def unit(self, bits: int) -> float:
        """Feature units of one lattice step when the clipping norm is `2**bits` steps."""
        return float(self.clipping_norm * 2.0**-bits)


def check_features(n_features: int, bits: int) -> None:
    """Raises LatticeOverflowError if a squared row norm could leave float64's exact range."""
    limit = int(EXACT_LIMIT) >> (2 * bits)
    if n_features > limit:
        raise LatticeOverflowError(
            f"n_features must be at most {limit} (2**53 / 4**{bits}), got {n_features}; project the features first."
        )


def check_rows(n_rows: int) -> None:
    """Raises LatticeOverflowError, without the number, for more rows than an int64 sum can hold."""
    if n_rows > MAX_ROWS:
        raise LatticeOverflowError(
            f"there are more than {MAX_ROWS} (2**31 - 1) rows, so a sum could reach 2**63; split the data set into "
            "several runs."
        )


def check_product(left_norm: float, right_norm: float) -> None:
    """Raises LatticeOverflowError if dot products of vectors of these L2 norms, in lattice units, could reach 2**53.

    By Cauchy-Schwarz the product of the norms bounds every partial sum, in any order.
    """
    bound = left_norm * right_norm
    if not bound < EXACT_LIMIT:
        raise LatticeOverflowError(
            f"a product of lattice vectors must stay below 2**53, got a bound of {bound:.3g}; use fewer bits."
        )


def row_blocks(points: NDArray[np.floating], size: int = BLOCK_ROWS) -> Iterator[NDArray[np.floating]]:
    """Yields views of `points` in order, at most `size` rows each."""
    for start in range(0, len(points), size):
        yield points[start : start + size]


def quantize(points: NDArray[np.floating], lattice: Lattice, bits: int) -> NDArray[np.float64]:
    """Centers, clips, scales and truncates rows to lattice integers.

    Args:
      points: shape (n_rows, n_features), feature units, finite; any magnitude.
      lattice: public frame.
      bits: the clipping norm is 2**bits units.

    Returns:
      New float64 array of integers, same shape; the L2 norm of every row is at most 2**bits, exactly.

    Raises:
      LatticeOverflowError: if there are too many features for exact squared norms.

    Source: Casacuberta, Shoham, Wagh, Smith (2022) for why the bound must hold on what is summed.

    Example:
      >>> import numpy as np
      >>> quantize(np.array([[3.0, 4.0], [0.3, -0.4]]), Lattice(np.zeros(2), 1.0), 4)
      array([[ 9., 12.],
             [ 4., -6.]])
    """
    check_features(points.shape[1], bits)
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.subtract(points, lattice.center, dtype=np.float64)
        rows *= 2.0**bits / lattice.clipping_norm
        np.trunc(rows, out=rows)
        squared = np.vecdot(rows, rows)
        outside = ~(squared <= 4.0**bits)
    if outside.any():
        _clip_outside(rows, squared, np.flatnonzero(outside), points, lattice, bits)
    return rows


def _clip_outside(
    rows: NDArray[np.float64],
    squared: NDArray[np.float64],
    outside: NDArray[np.int64],
    points: NDArray[np.floating],
    lattice: Lattice,
    bits: int,
) -> None:
    """Shrinks the rows at `outside` into the clipping ball, in place.

    Rows whose squared norm is not exact in float64 are first scaled by a power of two, so that any magnitude fits.
    """
    far = outside[~(squared[outside] <= EXACT_LIMIT / 2.0)]
    if far.size:
        rows[far] = _scaled_to_one(points[far], lattice.center, bits)[0]
        squared[far] = squared_norms(rows[far])
    factors = 2.0**bits / np.sqrt(squared[outside])
    rows[outside] = scale_until(rows[outside], factors, lambda some: squared_norms(some) <= 4.0**bits)


def _scaled_to_one(
    points: NDArray[np.floating], center: NDArray[np.float64], bits: int
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Centered rows truncated to integers of `bits` bits, and the exponents, shape (n, 1), of their units."""
    quarter = np.multiply(points, 0.25, dtype=np.float64) - 0.25 * center
    exponent = np.frexp(np.abs(quarter).max(axis=1, keepdims=True))[1]
    return np.trunc(np.ldexp(quarter, bits - exponent)), exponent - bits + 2


def row_norms(points: NDArray[np.floating], center: NDArray[np.float64]) -> NDArray[np.float64]:
    """Computes L2 norms of centered rows to about six digits, truncated; each depends on its row alone.

    Args:
      points: shape (n_rows, n_features), feature units, finite, n_features >= 1.
      center: shape (n_features,), feature units.

    Returns:
      shape (n_rows,), feature units; infinite past float64's range.
    """
    check_features(points.shape[1], SUM_BITS)
    rows, exponent = _scaled_to_one(points, center, SUM_BITS)
    with np.errstate(over="ignore"):
        return np.ldexp(np.sqrt(squared_norms(rows)), exponent[:, 0])


def squared_norms(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared L2 norms of integer vectors, shape (n,); exact below 2**53."""
    return np.vecdot(vectors, vectors)


def upper_triangle(matrix: NDArray[Any], first: int = 0) -> NDArray[Any]:
    """Upper triangle of a square matrix, row by row, from diagonal `first` on; without twice its memory for indices."""
    return np.concatenate([row[start + first :] for start, row in enumerate(matrix)])


def add_by_group(sums: NDArray[Any], rows: NDArray[Any], groups: NDArray[np.int64]) -> None:
    """Adds each row of integers, shape (n_rows, size), to the sum of its group, exactly and in place.

    Args:
      sums: shape (n_groups, size), integers of any dtype.
      rows: at most BLOCK_ROWS or so, whose sums stay below 2**53.
      groups: shape (n_rows,), in [0, n_groups).
    """
    order = np.argsort(groups, kind="stable")
    present, first = np.unique(groups[order], return_index=True)
    if len(present):
        sums[present] += np.add.reduceat(rows[order], first, axis=0).astype(sums.dtype)


def scaled(values: NDArray[Any], factors: NDArray[np.float64], *, divided: bool = False) -> NDArray[np.float64]:
    """Truncated values * factors, or values / factors, shape (n, size); there is a factor for each row, shape (n,)."""
    found = kernel().scaled(values, factors, divided)
    return found if found is not None else np.trunc(values / factors[:, None] if divided else values * factors[:, None])


def clip_l2(
    vectors: NDArray[np.float64], limit: float, *, rescale: float | NDArray[np.float64] = 1.0
) -> NDArray[np.float64]:
    """Scales integer vectors by `rescale`, or less if needed, so that the truncated L2 norm is at most `limit`.

    Args:
      vectors: shape (n, size), integers; every squared norm below 2**53.
      limit: > 0, an integer of at most 2**26 units.
      rescale: >= 0, scalar or shape (n,): the largest factor to use; infinity stretches onto the limit.

    Returns:
      New array of integers; `squared_norms` of it is at most limit**2, checked.
    """
    norms = np.sqrt(squared_norms(vectors))
    factors = np.minimum(rescale, limit / np.maximum(norms, 1.0))
    return scale_until(vectors, factors, lambda clipped: squared_norms(clipped) <= limit * limit)


def clip_l1(vectors: NDArray[Any], limit: float, *, rescale: float | NDArray[np.float64] = 1.0) -> NDArray[np.float64]:
    """`clip_l2` for the L1 norm; every L1 norm of `vectors` must be below 2**53."""
    norms = np.abs(vectors).sum(axis=1)
    factors = np.minimum(rescale, limit / np.maximum(norms, 1.0))
    return scale_until(vectors, factors, lambda clipped: np.abs(clipped).sum(axis=1) <= limit)


def scale_until(
    vectors: NDArray[np.float64],
    factors: NDArray[np.float64],
    holds: Callable[[NDArray[np.float64]], NDArray[np.bool_]],
) -> NDArray[np.float64]:
    """Truncates vectors[i] * factors[i], with ever smaller factors until `holds` is true of the result.

    Args:
      vectors: shape (n, size), integers.
      factors: shape (n,), >= 0.
      holds: takes scaled vectors (a subset, in order), returns shape (m,) bool; must accept zero vectors.

    Raises:
      LatticeOverflowError: if it doesn't hold for a factor of zero either, for example if a bound is not a number.
    """
    found = scaled(vectors, factors)
    pending = np.flatnonzero(~holds(found))
    shrink = 1.0 - 2.0**-SUM_BITS
    while pending.size:
        factors = factors.copy()
        factors[pending] *= shrink
        found[pending] = scaled(vectors[pending], factors[pending])
        pending = pending[~holds(found[pending])]
        check_shrinking(shrink, pending.size > 0)
        shrink *= shrink
    return found


def check_shrinking(shrink: float, pending: bool) -> None:
    """Raises LatticeOverflowError if a factor was zero and still not small enough."""
    if pending and shrink == 0.0:
        raise LatticeOverflowError(
            "clipping bounds must be finite numbers above 0, got ones that no vector meets; set public bounds."
        )


def check_bounds(*bounds: float) -> None:
    """Raises LatticeOverflowError for clipping bounds that bound nothing."""
    if not all(0.0 < bound < np.inf for bound in bounds):
        raise LatticeOverflowError(
            f"clipping bounds must be finite numbers above 0, got {bounds}; run the rounds that release them first."
        )


def check_whole(*pairs: tuple[float, float]) -> None:
    """Raises LatticeOverflowError unless each bound is the one that every row keeps; rows are clipped to no other.

    Args:
      pairs: each a bound and the one that every row keeps.
    """
    if any(bound != kept for bound, kept in pairs):
        raise LatticeOverflowError(
            f"bounds of single rows must be {tuple(kept for _, kept in pairs)}, which every row keeps, got "
            f"{tuple(bound for bound, _ in pairs)}; make the state from the config of the plan."
        )
