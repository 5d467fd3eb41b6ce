"""Sufficient statistics of reports: exact, mergeable, and of a size that doesn't depend on the number of reports."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.reports.parameters import ReportParameters, ReportVariant
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.numerics.reports import codebook, published_protocol
from dapple_dp.transforms.numerics.reports.encoder import Reports

LIFTED = 2
"""Additional coordinates of a lifted point."""


class DecodedCenters(NamedTuple):
    """Centers: `centers` (n_clusters, n_features) in units of the radius, and `sizes` (n_clusters,) in reports."""

    centers: NDArray[np.float64]
    sizes: NDArray[np.float64]


def in_ball(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Projects points onto the unit ball."""
    return points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)


class ReportSums(NamedTuple):
    """Sums over reports; every entry is an integer.

    Attributes:
      n_reports: number of reports.
      cells: int64, shape (n_cells, n_dims): codewords by the mask of their subset of levels (at most 2**depth
        rows), or for the paper's variant histogram sign and direction by level and subset.
      moments: int64, shape (n_dims, n_dims): sum of codeword times codeword; no rows for the paper's variant.
    """

    n_reports: int
    cells: NDArray[np.int64]
    moments: NDArray[np.int64]

    @classmethod
    def zeros(cls, parameters: ReportParameters) -> Self:
        """Creates the neutral element."""
        if parameters.variant is ReportVariant.PAPER:
            cells = np.zeros((2 << parameters.depth, 1 + parameters.n_features), dtype=np.int64)
            return cls(0, cells, np.zeros((0, 0), dtype=np.int64))
        n_dims = parameters.n_features + LIFTED
        return cls(0, np.zeros((1 << parameters.depth, n_dims), np.int64), np.zeros((n_dims, n_dims), np.int64))

    @classmethod
    def of(cls, reports: Reports, parameters: ReportParameters) -> "ReportSums":
        """Adds up some reports with distinct nonces."""
        total = ReportSums.zeros(parameters)
        for block in reports.blocks():
            _add_block(total, block, parameters)
        return total._replace(n_reports=len(reports.nonces))

    def merge(self, other: "ReportSums") -> "ReportSums":
        """Returns the sums of both, in new arrays."""
        return ReportSums(self.n_reports + other.n_reports, self.cells + other.cells, self.moments + other.moments)


def codewords(reports: Reports, parameters: ReportParameters) -> NDArray[np.float64]:
    """Returns the codewords of reports as vectors of shape (n, n_features + 2), integers of variance `code_width`."""
    starts, n_dims = codebook.roots(parameters.key, reports.nonces), parameters.n_features + LIFTED
    width = codebook.code_width(n_dims)
    if parameters.variant is ReportVariant.PRIVUNIT:
        bits = np.unpackbits(reports.codewords, axis=1, bitorder="little")
    else:
        bits = codebook.codeword_bits(starts, reports.indices[:, None], width)[:, 0]
    return codebook.rotated(bits, codebook.rotation_signs(starts, width), n_dims)


def _add_block(total: ReportSums, block: Reports, parameters: ReportParameters) -> None:
    """Adds a block to sums that the caller owns."""
    starts = codebook.roots(parameters.key, block.nonces)
    if parameters.variant is ReportVariant.PAPER:
        groups = published_protocol.draw_cells(starts, parameters.depth)
        terms = published_protocol.statistics(block.indices, starts, parameters.n_features)
    else:
        groups = codebook.draw_subsets(starts, parameters.depth, parameters.even_subsets)
        terms = codewords(block, parameters)
        total.moments[...] += (terms.T @ terms).astype(np.int64)
    lattice.add_by_group(total.cells, terms, groups)
