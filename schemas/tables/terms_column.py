"""Columns of public terms, such as tags or words: in addition to a row's features, or as the row's vector."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from dapple_dp.schemas.tables import columns
from dapple_dp.schemas.tables.data_section import MOST_WIDTH
from dapple_dp.schemas.tables.encoded_column import EncodedColumn, distinct

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NO_TERM = -1.0
"""Value that fills the rest of a row with less than `most` terms."""
_ENTRIES = 8
"""Number of nonzero features in the vector of a term."""
_DRAWS = 41
"""Seed of the public random vectors."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TermsColumn:
    """Conversion of a row's terms to numbers, which depend on that row alone.

    Attributes:
      column: name of the column in the table: lists of strings, or strings, each of which is one term.
      vocabulary: distinct public terms; others are ignored.
      most: largest number of distinct terms to read per row, the first ones in its list.
    """

    column: str
    vocabulary: tuple[str, ...]
    most: int

    @property
    def names(self) -> tuple[str, ...]:
        """Column names for these numbers in stored rows."""
        return tuple(f"{self.column}#{index}" for index in range(self.most))

    def check_type(self, kind: pa.DataType, where: str) -> None:
        """Raises SchemaMismatchError if values of the plain type `kind` aren't terms."""
        check_terms(self.column, kind, where, "cast it, or name another column in names.column")

    def beside(self, points: NDArray[np.floating], column: pa.ChunkedArray) -> NDArray[np.floating]:
        """Appends the numbers of the terms to the features of rows.

        Args:
          points: shape (n_rows, n_features).
          column: plain, n_rows long; a null has no terms.

        Returns:
          Same dtype, shape (n_rows, n_features + most): positions in the vocabulary, then `NO_TERM`.
        """
        result = np.full((len(points), points.shape[1] + self.most), NO_TERM, dtype=points.dtype)
        result[:, : points.shape[1]] = points
        start, words = 0, pa.array(self.vocabulary, pa.large_string())
        for chunk in column.chunks:
            rows, codes = codes_of(chunk, words)
            first = np.searchsorted(rows, np.arange(len(chunk)))
            place = np.arange(len(rows)) - first[rows]
            kept = place < self.most
            result[start + rows[kept], points.shape[1] + place[kept]] = codes[kept]
            start += len(chunk)
        return result


def check_terms(column: str, kind: pa.DataType, where: str, remedy: str) -> None:
    """Raises SchemaMismatchError if values of the plain type `kind` aren't terms."""
    inside = columns.plain_type(kind.value_type) if columns.is_list(kind) else kind
    if not columns.is_text(inside):
        raise columns.mismatch(column, where, "hold strings, or lists of strings", str(kind), remedy)


def codes_of(chunk: pa.Array, words: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows of a chunk, ascending, and positions in `words`, of all known terms, once per row."""
    if columns.is_list(chunk.type):
        # Null lists may contain values in files by other writers; `list_flatten` skips them.
        n_terms = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False)
        rows, values = np.repeat(np.arange(len(chunk)), n_terms), pc.list_flatten(chunk)
    else:
        rows, values = np.arange(len(chunk)), chunk
    values = columns.plain(pa.chunked_array([values])).cast(pa.large_string())
    codes = pc.fill_null(pc.index_in(values, value_set=words, skip_nulls=True), -1).to_numpy()
    known = codes >= 0
    rows, codes = rows[known].astype(np.int64), codes[known].astype(np.int64)
    first = np.sort(np.unique(rows * len(words) + codes, return_index=True)[1])
    return rows[first], codes[first]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TermsVector(EncodedColumn):
    """The distinct terms of a row as the direction of the sum of their vectors, with length `weight`.

    Vectors of terms are public: the features are split into eight equal parts, and a vector has one sign in each. They
    depend only on positions in the vocabulary. Inner products of rows are kept up to about 1 / sqrt(width). All rows
    without a known term have the same vector, as if this were a term.

    Attributes:
      vocabulary: distinct public terms, at least one.
      width: number of features, >= 8.

    Source: Kane, Nelson (2014), "Sparser Johnson-Lindenstrauss transforms", block construction.
    """

    vocabulary: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(distinct)]
    width: Annotated[int, Field(ge=_ENTRIES, le=MOST_WIDTH)]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, by position, since they have no meaning of their own."""
        return tuple(f"{self.column}[{index}]" for index in range(self.width))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the features, used instead of labels."""
        return self.names

    @property
    def in_percent(self) -> tuple[bool, ...]:
        """Always false, since coordinates aren't shares."""
        return (False,) * len(self.names)

    @property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """Range of a coordinate: none exceeds the length of its row."""
        return ((-self.weight, self.weight),) * len(self.names)

    def decoded(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the coordinates unchanged, since the terms of a center can't be recovered."""
        return block

    @property
    def read_as(self) -> pa.DataType:
        """String: in a spreadsheet, a row has one term."""
        return pa.string()

    @property
    def complaint(self) -> tuple[str, str]:
        """Rule and violation: nulls are invalid; a row without terms has an empty list."""
        return "hold a list of terms in every row", "a null"

    def check_type(self, kind: pa.DataType, where: str) -> None:
        """Checks for strings, or lists of strings."""
        check_terms(self.column, kind, where, f"cast it, or change encode.{self.column}.kind")

    def fill(self, values: pa.ChunkedArray, block: NDArray[np.float64]) -> None:
        """Writes the vectors, one chunk at a time."""
        # SciPy is imported here, since most jobs have no such column.
        from scipy.sparse import csr_array

        words, start = pa.array(self.vocabulary, pa.large_string()), 0
        vectors = _term_vectors(len(self.vocabulary) + 1, self.width)
        for chunk in values.chunks:
            stop = start + len(chunk)
            rows, codes = codes_of(chunk, words)
            bare = np.setdiff1d(np.arange(len(chunk)), rows)
            rows, codes = np.append(rows, bare), np.append(codes, np.full(len(bare), len(self.vocabulary)))
            counts = csr_array((np.ones(len(rows)), (rows, codes)), shape=(len(chunk), vectors.shape[0]))
            block[start:stop] = self.weight * _directions((counts @ vectors).toarray())
            block[start:stop][~pc.is_valid(chunk).to_numpy(zero_copy_only=False)] = np.nan
            start = stop


@functools.lru_cache(maxsize=8)
def _term_vectors(n_terms: int, width: int) -> "csr_array":
    """Returns the vectors of terms, shape (n_terms, width): integers, `_ENTRIES` signs in each row."""
    from scipy.sparse import csr_array

    raw = np.random.Philox(key=_DRAWS).random_raw(n_terms * _ENTRIES).reshape(n_terms, _ENTRIES)
    ends = np.arange(_ENTRIES + 1, dtype=np.uint64) * np.uint64(width) // np.uint64(_ENTRIES)
    places = ends[:-1] + (raw >> np.uint64(1)) % np.diff(ends)
    signs = 2.0 * (raw & np.uint64(1)) - 1.0
    starts = np.arange(n_terms + 1) * _ENTRIES
    return csr_array((signs.ravel(), places.ravel().astype(np.int64), starts), shape=(n_terms, width))


def _directions(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scales integer vectors, shape (n, width), to length 1; zeros, from terms that cancel out, stay zero."""
    lengths = np.sqrt((sums**2).sum(axis=1, keepdims=True))
    return np.asarray(sums / np.maximum(lengths, 1.0))
