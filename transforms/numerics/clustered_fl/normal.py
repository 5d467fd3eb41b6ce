"""Floating-point draws from keyed streams: normal, Gumbel, and positions of Poisson sampling.

For mechanisms whose noise is declared to be real numbers (DP-SGD, selections); releases on the lattice draw theirs
in `dapple_dp.transforms.core.noise`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.keystream import KeyStream

_SPARE_STDDEVS = 6.0


def uniforms(stream: KeyStream, n: int) -> NDArray[np.float64]:
    """Draws multiples of 2**-53 uniform on (0, 1], shape (n,)."""
    words = stream.uint64(n) >> np.uint64(11)
    return (words + np.uint64(1)).astype(np.float64) * 2.0**-53


def normals(stream: KeyStream, n: int) -> NDArray[np.float64]:
    """Draws independent standard normal numbers, shape (n,); none is beyond 8.6.

    Source: Box, Muller (1958).
    """
    half = -(-n // 2)
    radii = np.sqrt(-2.0 * np.log(uniforms(stream, half)))
    # Cosine and sine by the tangent of half the angle, for which NumPy has vector instructions.
    tangents = np.tan(math.pi * (uniforms(stream, half) - 0.5))
    squared = tangents * tangents
    radii /= 1.0 + squared
    return np.concatenate([radii * (1.0 - squared), radii * (2.0 * tangents)])[:n]


def gumbels(stream: KeyStream, n: int) -> NDArray[np.float64]:
    """Draws independent standard Gumbel numbers, shape (n,)."""
    with np.errstate(divide="ignore"):
        return -np.log(-np.log(uniforms(stream, n)))


def sampled_positions(stream: KeyStream, rate: float, n: int) -> NDArray[np.int64]:
    """Draws positions below `n`, each taken with probability `rate`, independently; ascending.

    Gaps between them are geometric, so that few draws serve many positions.

    Args:
      stream: read from its current position.
      rate: in (0, 1].
      n: >= 0.

    Source: Devroye (1986), "Non-Uniform Random Variate Generation", Section X.2.
    """
    if rate >= 1.0:
        return np.arange(n)
    found = [np.empty(0, dtype=np.int64)]
    reached = -1
    while reached < n:
        mean = rate * (n - reached)
        draws = math.ceil(mean + _SPARE_STDDEVS * math.sqrt(mean)) + 8
        gaps = np.log(uniforms(stream, draws)) / math.log1p(-rate)
        # A gap beyond n ends the positions; cutting it there keeps sums within int64.
        found.append(reached + np.cumsum(1 + np.minimum(gaps, float(n)).astype(np.int64)))
        reached = int(found[-1][-1])
    positions = np.concatenate(found)
    return positions[: np.searchsorted(positions, n)]
