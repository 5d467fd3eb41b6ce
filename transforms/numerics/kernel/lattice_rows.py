"""Functions of `lattice` by the compiled library, with the same integers, bit for bit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.kernel.library import library


def lattice_rows(
    points: NDArray[np.floating],
    center: NDArray[np.float64],
    scale: float,
    norm: float,
    box: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
    """Clips rows to a box, centers, scales, truncates, and shrinks those that are longer than a norm.

    Args:
      points: shape (n_rows, n_features), feature units, finite, n_features >= 1.
      center: shape (n_features,), feature units.
      scale: lattice units of a feature unit.
      norm: L2 norm of rows, at most 2**30 lattice units.
      box: least and largest coordinate, feature units.

    Returns:
      int32, shape (n_rows, n_features), and the indices of the rows in it that are zero, since they are so long that
      NumPy must shrink them. None if NumPy must do all the work.
    """
    found = library()
    if found is None or points.dtype not in (np.float32, np.float64) or points.ndim != 2 or not points.shape[1]:
        return None
    points, center = np.ascontiguousarray(points), np.ascontiguousarray(center, dtype=np.float64)
    if center.shape != points.shape[1:]:
        return None
    integers = np.empty(points.shape, dtype=np.int32)
    scratch, left = np.empty(points.shape[1]), np.empty(len(points), dtype=np.uint8)
    found.quantize(
        found.level,
        points.ctypes.data,
        int(points.dtype == np.float64),
        *points.shape,
        center.ctypes.data,
        scale,
        *box,
        norm,
        scratch.ctypes.data,
        integers.ctypes.data,
        left.ctypes.data,
    )
    return integers, np.flatnonzero(left)


def scaled(values: NDArray[Any], factors: NDArray[np.float64], divided: bool) -> NDArray[np.float64] | None:
    """`lattice.scaled`; None if NumPy must do the work."""
    found, whole = library(), values.dtype == np.int64
    fits = values.ndim == 2 and factors.shape == values.shape[:1] and factors.dtype == np.float64
    if found is None or not fits or not (whole or values.dtype == np.float64):
        return None
    values, factors, result = np.ascontiguousarray(values), np.ascontiguousarray(factors), np.empty(values.shape)
    shape, pointers = values.shape, (values.ctypes.data, factors.ctypes.data, result.ctypes.data)
    found.scale(found.level, pointers[0], int(whole), *shape, pointers[1], int(divided), pointers[2])
    return result
