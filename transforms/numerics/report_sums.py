"""Sufficient statistics of reports: exact, mergeable, as large for ten reports as for a billion."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from schemas.report_parameters import ReportParameters, ReportVariant
from transforms.numerics import paper_reports
from transforms.numerics import report_codebook as codebook
from transforms.numerics.report_encoder import Reports

LIFTED = 2
"""Coordinates of a lifted point beyond its features."""
_BLOCK_REPORTS = 4096


class ReportSums(NamedTuple):
    """Sums over reports; every entry is an integer.

    Attributes:
      n_reports: how many.
      cells: int64, shape (n_cells, n_dims): codewords by the mask of their subset of levels (at most 2**depth
        rows), or for the paper's variant histogram sign and direction by level and subset.
      moments: int64, shape (n_dims, n_dims): sum of codeword times codeword; no rows for the paper's variant.
    """

    n_reports: int
    cells: NDArray[np.int64]
    moments: NDArray[np.int64]

    @classmethod
    def zeros(cls, parameters: ReportParameters) -> Self:
        """The neutral element."""
        if parameters.variant is ReportVariant.PAPER:
            cells = np.zeros((2 << parameters.depth, 1 + parameters.n_features), dtype=np.int64)
            return cls(0, cells, np.zeros((0, 0), dtype=np.int64))
        n_dims = parameters.n_features + LIFTED
        return cls(0, np.zeros((1 << parameters.depth, n_dims), np.int64), np.zeros((n_dims, n_dims), np.int64))

    @classmethod
    def of(cls, reports: Reports, parameters: ReportParameters) -> "ReportSums":
        """Sums of some reports; their nonces are distinct."""
        total = ReportSums.zeros(parameters)
        for start in range(0, len(reports.nonces), _BLOCK_REPORTS):
            block = reports.take(slice(start, start + _BLOCK_REPORTS))
            _add_block(total, block, parameters)
        return total._replace(n_reports=len(reports.nonces))

    def merge(self, other: "ReportSums") -> "ReportSums":
        """The sums of both, new ones."""
        return ReportSums(self.n_reports + other.n_reports, self.cells + other.cells, self.moments + other.moments)


def codewords(reports: Reports, parameters: ReportParameters, starts: NDArray[np.uint64]) -> NDArray[np.float64]:
    """What reports say, as vectors of shape (n, n_features + 2), integers of variance `code_width`."""
    n_dims = parameters.n_features + LIFTED
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
        groups = paper_reports.draw_cells(starts, parameters.depth)
        terms = paper_reports.statistics(block.indices, starts, parameters.n_features)
    else:
        groups = codebook.draw_subsets(starts, parameters.depth)
        terms = codewords(block, parameters, starts)
        total.moments[...] += (terms.T @ terms).astype(np.int64)
    order = np.argsort(groups, kind="stable")
    present, first = np.unique(groups[order], return_index=True)
    total.cells[present] += np.add.reduceat(terms[order], first, axis=0).astype(np.int64)
