"""The encoder of private reports: runs on a device, and in the `encode` job.

Needs NumPy and the standard library. A report is a nonce, which is public and reveals nothing, and an index, which is
chosen by `SubsetChoice`: a data-dependent order of all indices and a data-independent position in it. So the
probability of an index is one of two known rationals, for every point, and the privacy loss is at most epsilon
exactly, for every input, including NaN, infinity and any tie.
"""

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.parameters import ReportParameters, ReportVariant
from dapple_dp.transforms.core.statistics.lattice import SUM_BITS, SUM_UNITS, Lattice, quantize
from dapple_dp.transforms.numerics.reports import codebook, published_protocol
from dapple_dp.transforms.numerics.reports.amplification import check_guarantee
from dapple_dp.transforms.numerics.reports.coins import Coins, SystemCoins, positions

COUNT_UNITS = SUM_UNITS // 3
"""Lattice units of the coordinate that every lifted point has: about a third of the norm of a point."""
_BLOCK_BITS = 1 << 18
_BLOCK_REPORTS = 4096
_PURPOSE_CODEWORDS = 2
_LARGEST = np.finfo(np.float64).max / 4.0


class Reports(NamedTuple):
    """Rows of reports.

    Attributes:
      nonces: uint64, shape (n,).
      indices: uint16, shape (n,): the codeword, or for the paper's variant two bits; zero for privunit.
      codewords: uint8, shape (n, width / 8): the codeword itself, for privunit; width 0 otherwise.
    """

    nonces: NDArray[np.uint64]
    indices: NDArray[np.uint16]
    codewords: NDArray[np.uint8]

    def take(self, rows: NDArray[np.int64] | slice) -> "Reports":
        """Returns some of the reports."""
        return Reports(self.nonces[rows], self.indices[rows], self.codewords[rows])

    def blocks(self) -> Iterator["Reports"]:
        """Yields all reports in order, some thousands at a time."""
        for start in range(0, len(self.nonces), _BLOCK_REPORTS):
            yield self.take(slice(start, start + _BLOCK_REPORTS))


def encode_point(point: Sequence[float] | NDArray[np.float64], parameters: ReportParameters) -> Reports:
    """Encodes the one report of a device; private coins and nonce come from the operating system."""
    nonce = np.array([secrets.randbits(64)], dtype=np.uint64)
    return encode(np.asarray(point, dtype=np.float64)[None], parameters, nonce, SystemCoins(1))


def encode(
    points: NDArray[np.floating], parameters: ReportParameters, nonces: NDArray[np.uint64], coins: Coins
) -> Reports:
    """Encodes reports of many clients, one point each.

    Args:
      points: shape (n, n_features), feature units, any values: they are clipped to the radius, NaN counts as 0.
      parameters: public.
      nonces: shape (n,), public, drawn independently of the points.
      coins: private; used for these points only.

    Returns:
      One report per point, in order. Guarantee: the law of each satisfies local_epsilon for any two points.

    Raises:
      ConfigError: if the points have another width than the parameters, or these guarantee too much.
    """
    if points.ndim != 2 or points.shape[1] != parameters.n_features:
        raise ConfigError(
            f"points must have {parameters.n_features} features as in the report parameters, got shape "
            f"{points.shape[1:]}; use parameters made for these features."
        )
    check_guarantee(parameters)
    ranks = positions(parameters.choices[-1][0], coins, purpose=1)
    starts = codebook.roots(parameters.key, nonces)
    lattice = lattice_points(points, parameters.radius)
    if parameters.variant is ReportVariant.PAPER:
        lies = positions(parameters.choices[0][0], coins, purpose=0), ranks
        codes = tree_codes(lattice, parameters)
        indices = published_protocol.encode(lattice, codes, parameters.depth, starts, lies, coins)
        return Reports(nonces, indices, np.zeros((len(points), 0), dtype=np.uint8))
    vectors = _signed_vectors(lattice, parameters, starts)
    if parameters.variant is ReportVariant.PRIVUNIT:
        return _private_codewords(vectors, parameters, nonces, starts, ranks, coins)
    indices = _nearest_codewords(vectors, parameters, starts, ranks)
    return Reports(nonces, indices, np.zeros((len(points), 0), dtype=np.uint8))


def lattice_points(points: NDArray[np.floating], radius: float, bits: int = SUM_BITS) -> NDArray[np.float64]:
    """Returns points as integers of norm at most 2**bits, which stands for the radius; any input gives such a point."""
    finite = np.nan_to_num(points.astype(np.float64), nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)
    return quantize(finite, Lattice(np.zeros(points.shape[1]), radius), bits)


def lift(lattice: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adds two coordinates to points: one that makes all norms equal, and one that counts; shape (n, d + 2)."""
    squared = np.einsum("ij,ij->i", lattice, lattice)
    rest = np.floor(np.sqrt(np.maximum(float(SUM_UNITS) ** 2 - squared, 0.0)))
    return np.column_stack([lattice, rest, np.full(len(lattice), float(COUNT_UNITS))])


def tree_codes(lattice: NDArray[np.float64], parameters: ReportParameters) -> NDArray[np.int64]:
    """Returns the leaf of the complete tree for each point, shape (n,): bit i is the side of hyperplane i."""
    return codebook.sides(lattice, codebook.planes(parameters.key, parameters.depth, parameters.n_features))


def _signed_vectors(
    lattice: NDArray[np.float64], parameters: ReportParameters, starts: NDArray[np.uint64]
) -> NDArray[np.float64]:
    """Returns lifted points times the sign of their subset of levels, shape (n, d + 2)."""
    subsets = codebook.draw_subsets(starts, parameters.depth, parameters.even_subsets)
    shared = np.bitwise_count(subsets & tree_codes(lattice, parameters))
    return lift(lattice) * (1.0 - 2.0 * (shared & 1))[:, None]


def _nearest_codewords(
    vectors: NDArray[np.float64], parameters: ReportParameters, starts: NDArray[np.uint64], ranks: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """Returns the index of the public codeword at each rank of nearness."""
    size = parameters.choices[-1][0].size
    nearest = np.empty(len(vectors), dtype=np.uint16)
    for rows, rotated in _rotated_blocks(vectors, starts, size):
        bits = codebook.codeword_bits(starts[rows], np.arange(size)[None], rotated.shape[1])
        nearest[rows] = _at_rank(rotated, bits, ranks[rows])
    return nearest


def _rotated_blocks(
    vectors: NDArray[np.float64], starts: NDArray[np.uint64], size: int
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yields vectors in the frame of their `size` codewords, so few at a time that the codewords stay in the cache."""
    width = codebook.code_width(vectors.shape[1])
    step = max(1, _BLOCK_BITS // (size * width))
    for start in range(0, len(vectors), step):
        rows = slice(start, start + step)
        yield rows, codebook.rotate(vectors[rows], codebook.rotation_signs(starts[rows], width))


def _at_rank(rotated: NDArray[np.float64], bits: NDArray[np.uint8], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the index of the codeword with the given rank by dot product, largest first, ties to the lowest index.

    Args:
      rotated: shape (n, width), integers.
      bits: shape (n, size, width), of the codewords.
      ranks: shape (n,), in [0, size).
    """
    size = bits.shape[1]
    # A codeword's product is the sum of all coordinates less twice those whose bit is set.
    doubled = np.matmul(bits.astype(np.float64), rotated[:, :, None])[:, :, 0]
    keys = doubled.astype(np.int64) * size + np.arange(size)
    keys.sort(axis=1)
    return keys[np.arange(len(keys)), ranks] % size


def _private_codewords(
    vectors: NDArray[np.float64],
    parameters: ReportParameters,
    nonces: NDArray[np.uint64],
    starts: NDArray[np.uint64],
    ranks: NDArray[np.int64],
    coins: Coins,
) -> Reports:
    """Chooses as `_nearest_codewords` among codewords of the client's own coins, and sends the chosen one."""
    size, width = parameters.choices[-1][0].size, codebook.code_width(vectors.shape[1])
    drawn = coins.words(_PURPOSE_CODEWORDS, size * width // 64)
    raw = np.ascontiguousarray(drawn, dtype="<u8").view(np.uint8).reshape(len(vectors), size, width // 8)
    codewords = np.empty((len(vectors), width // 8), dtype=np.uint8)
    for rows, rotated in _rotated_blocks(vectors, starts, size):
        chosen = _at_rank(rotated, np.unpackbits(raw[rows], axis=-1, bitorder="little"), ranks[rows])
        codewords[rows] = raw[rows][np.arange(len(chosen)), chosen]
    return Reports(nonces, np.zeros(len(vectors), dtype=np.uint16), codewords)
