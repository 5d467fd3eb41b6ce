"""Reports of the paper: one level per client, one bit for its histogram and one for its sum of vectors.

The vector mechanism of Duchi, Jordan, Wainwright (2013) sends a direction that is uniform on the half sphere around
the vector with a known probability and on the other half otherwise. A uniform public direction and a private bit,
the half it is in, have the same law: so the direction is taken from the report's nonce and the bit is sent.

Source: Chang, Ghazi, Kumar, Manurangsi (2021), "Locally private k-means in one round", Algorithms 5 to 8, Appendix D.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics.lattice import SUM_UNITS
from dapple_dp.transforms.numerics.reports import codebook
from dapple_dp.transforms.numerics.reports.coins import Coins

HISTOGRAM_SHARE = 0.1
"""Share of epsilon for the histogram bit; the vector bit gets the rest."""
DIRECTION_UNITS = 1 << 16
_PURPOSE_SIGN = 3


def draw_cells(starts: NDArray[np.uint64], depth: int) -> NDArray[np.int64]:
    """Returns level and subset of each report, shape (n,): 2**level + subset, both uniform.

    The sign (-1)^|subset & code| is the public random variable Z of the node `code` at that level: any two nodes of
    a level have independent signs.
    """
    word = codebook.words(starts, np.zeros(1, dtype=np.uint64))
    levels = 1 + (((word >> np.uint64(32)) * np.uint64(depth)) >> np.uint64(32)).astype(np.int64)
    size = np.int64(1) << levels
    return size | (word & (size - 1).astype(np.uint64)).astype(np.int64)


def encode(
    lattice: NDArray[np.float64],
    codes: NDArray[np.int64],
    depth: int,
    starts: NDArray[np.uint64],
    lies: tuple[NDArray[np.int64], NDArray[np.int64]],
    coins: Coins,
) -> NDArray[np.uint16]:
    """Encodes two bits per report: histogram bit plus twice the vector bit; a bit of 1 stands for the sign -1.

    Args:
      lattice: points, shape (n, n_features), integers of norm at most 2**20.
      codes: leaf of the complete tree, shape (n,).
      depth: levels.
      starts: of the streams of the nonces.
      lies: per bit, 1 to flip it, shape (n,), drawn independently of the points.
      coins: private, for rounding a point to the sphere.
    """
    cells = draw_cells(starts, depth)
    odd = (np.bitwise_count(cells & codes & (_level_size(cells) - 1)) & 1).astype(np.int64)
    norms = np.sqrt(np.einsum("ij,ij->i", lattice, lattice))
    uniform = coins.words(_PURPOSE_SIGN, 1)[:, 0] * 2.0**-64
    opposite = uniform >= 0.5 + norms / (2.0 * SUM_UNITS)
    side = np.einsum("ij,ij->i", _raw_directions(starts, lattice.shape[1]), lattice) < 0.0
    truth = side ^ opposite ^ (odd == 1)
    return ((odd ^ lies[0]) + 2 * (truth ^ (lies[1] == 1))).astype(np.uint16)


def statistics(indices: NDArray[np.uint16], starts: NDArray[np.uint64], n_features: int) -> NDArray[np.float64]:
    """Returns each report's addition to its cell, shape (n, 1 + n_features): histogram sign, signed direction.

    Directions have 2**16 lattice units.
    """
    raw = _raw_directions(starts, n_features)
    norms = np.sqrt(np.einsum("ij,ij->i", raw, raw))
    directions = np.trunc(raw * (DIRECTION_UNITS / np.maximum(norms, 1.0))[:, None])
    signs = 1.0 - 2.0 * np.column_stack([indices & 1, (indices >> 1) & 1])
    return np.column_stack([signs[:, 0], directions * signs[:, 1:]])


def sphere_norm(epsilon: float, n_features: int) -> float:
    """Returns the norm of the unbiased estimate of a vector by its direction and bit.

    Source: Duchi, Jordan, Wainwright (2013); the constant makes the estimate unbiased: the mean of |u_1| on the sphere
    is Gamma(d / 2) / (sqrt(pi) Gamma((d + 1) / 2)).
    """
    ratio = math.lgamma((n_features + 1) / 2.0) - math.lgamma(n_features / 2.0)
    return math.sqrt(math.pi) * math.exp(ratio) / math.tanh(epsilon / 2.0)


def _raw_directions(starts: NDArray[np.uint64], n_features: int) -> NDArray[np.float64]:
    """Returns public directions of any length, shape (n, n_features), integers."""
    width = codebook.code_width(n_features)
    bits = codebook.codeword_bits(starts, np.zeros((len(starts), 1), dtype=np.int64), width)[:, 0]
    return codebook.rotated(bits, codebook.rotation_signs(starts, width), n_features)


def _level_size(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns 2**level of each cell."""
    return np.int64(1) << (np.frexp(cells.astype(np.float64))[1] - 1).astype(np.int64)
