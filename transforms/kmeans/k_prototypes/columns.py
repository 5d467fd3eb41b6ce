"""Public places of numbers and codes among the features of a row, and the code that a row has in each column."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.kmeans.prototypes_config import KPrototypesFit
from dapple_dp.schemas.tables.encoding import OneHot
from dapple_dp.transforms.core.statistics.term_cells import CellLimits


class Columns(NamedTuple):
    """Columns of numbers and columns of codes.

    A code is one of a public list, or "other", the one code of all that are not listed, whose place is after them. Two
    listed codes that differ are the root of 2 times `length` apart; "other" is `length` away from each of them.

    Attributes:
      n_features: of a row.
      numbers: places of the numbers, at least one.
      codes: of each column of codes, at least one, the first place and the number of listed codes, >= 1.
      length: > 0: what stands for 1 where a row has a listed code; half of it and less stands for 0.
    """

    n_features: int
    numbers: tuple[int, ...]
    codes: tuple[tuple[int, int], ...]
    length: float

    @classmethod
    def of(cls, config: KPrototypesFit) -> "Columns":
        """Returns the columns of a job."""
        numbers: list[int] = []
        codes: list[tuple[int, int]] = []
        place = 0
        for name, encoding in config.encodings.items():
            if isinstance(encoding, OneHot):
                codes.append((place, len(encoding.vocabulary)))
                place += len(encoding.vocabulary)
            else:
                missing = config.data.missing.get(name)
                width = 2 if missing is not None and missing.indicator else 1
                numbers += range(place, place + width)
                place += width
        return cls(place, tuple(numbers), tuple(codes), config.k_prototypes.length)

    @property
    def widths(self) -> NDArray[np.int64]:
        """Cells of each column of codes: one for each that is listed, and one for others."""
        return np.array([size + 1 for _, size in self.codes], dtype=np.int64)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The first cell of each column of codes."""
        return np.cumsum(self.widths) - self.widths

    @property
    def n_cells(self) -> int:
        """Cells of a cluster."""
        return int(self.widths.sum())

    @property
    def limits(self) -> CellLimits:
        """Limits on the cells of a row: one for each column of codes."""
        return CellLimits(self.n_cells, len(self.codes))

    def codes_of(self, points: NDArray[np.floating]) -> NDArray[np.int64]:
        """Codes of rows, shape (n, m): exactly one for each column, whatever the features are."""
        found = np.empty((len(points), len(self.codes)), dtype=np.int64)
        for column, (first, size) in enumerate(self.codes):
            held = points[:, first : first + size] > 0.5 * self.length
            found[:, column] = np.where(held.any(axis=1), held.argmax(axis=1), size)
        return found

    def features(self, numbers: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Rows, shape (n, n_features), of numbers (n, d) and codes (n, m)."""
        found = np.zeros((len(numbers), self.n_features))
        found[:, list(self.numbers)] = numbers
        for column, (first, size) in enumerate(self.codes):
            listed = np.flatnonzero(codes[:, column] < size)
            found[listed, first + codes[listed, column]] = self.length
        return found

    def by_column(self, cells: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """The parts of cells, shape (n, n_cells), that belong to each column of codes."""
        yield from np.split(cells, self.starts[1:], axis=1)

    def modes(self, cells: NDArray[np.float64]) -> NDArray[np.int64]:
        """The most frequent code of each column, shape (n, m), by cells (n, n_cells)."""
        return np.stack([part.argmax(axis=1) for part in self.by_column(cells)], axis=1)

    def shares(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """Noisy cells (n, n_cells) as shares that add up to 1 in each column; equal ones where none is positive."""
        found = []
        for part in self.by_column(np.maximum(cells, 0.0)):
            totals = part.sum(axis=1, keepdims=True)
            found.append(np.where(totals > 0.0, part / np.where(totals > 0.0, totals, 1.0), 1.0 / part.shape[1]))
        return np.hstack(found)
