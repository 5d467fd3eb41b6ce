"""Conversion of tables and arrays in memory to matrices of floats; errors never contain a value."""

import collections
import decimal
import numbers
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import issparse

from dapple_dp.schemas.errors import InputError, few
from dapple_dp.schemas.settings.yaml_text import is_torn
from dapple_dp.schemas.tables import columns as arrow

_NUMBERS, _TIMES = frozenset("biuf"), frozenset("Mm")
"""Kinds of NumPy's types: numbers, and dates or times."""
_TO_MEMORY = ("toPandas", "compute", "collect")
"""Methods that load a table of another library into memory."""
_MISSING = frozenset({"NAType", "NaTType"})
"""Types of pandas for a missing value."""


_REFUSALS = {
    "others": (
        "numbers only",
        "drop codes and ids (pass ids of people as groups), convert text that holds numbers, and count dates in days "
        "from a public one",
    ),
    "categories": (
        "numbers only",
        "use a column of 0 and 1 for each of them, or cast a column whose numbers measure something",
    ),
    "lists": ("one number per row and column", "give the matrix of them, or a column for each of their numbers"),
}
"""What a column must hold, and what to do if it holds something else, by what that is."""


class _NoNumbersError(Exception):
    """A column isn't numeric.

    Attributes:
      got: what it holds, as in `_REFUSALS`.
    """

    def __init__(self, got: str = "others"):
        super().__init__(got)
        self.got = got


def in_memory(X: Any, name: str) -> Any:
    """Returns rows as a pandas table, an Arrow table or an array-like.

    Args:
      X: an array, a list of rows, a table of pandas, or one that can be converted to Arrow.
      name: name of the rows in messages.

    Raises:
      InputError: if rows aren't in memory, or are masked or sparse.
    """
    refuse_masked(X, name)
    if issparse(X):
        raise InputError(f"{name} must be dense, got a sparse matrix; use toarray() if it fits into memory.")
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if isinstance(X, np.ndarray | pa.Table) or hasattr(X, "iloc"):
        return X
    method = next((method for method in _TO_MEMORY if hasattr(type(X), method)), None)
    if method is not None:
        raise InputError(f"{name} must be in memory, got a {type(X).__name__}; call its method {method}() first.")
    if hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns"):
        return pa.table(X)
    if isinstance(X, str | bytes | os.PathLike):
        raise InputError(
            f"{name} must be rows in memory, got a {type(X).__name__}; read the file, or run `dapple fit`."
        )
    return X


def matrix_of(X: Any, name: str) -> NDArray[Any]:
    """Converts rows to a matrix: float32 if all columns of a table are, else float64; nulls are NaN.

    Args:
      X: from `in_memory`.
      name: name of the rows in messages.

    Returns:
      Shape (n_rows, n_features), both at least 1; an array of numbers is returned unchanged.

    Raises:
      InputError: a ValueError, if it isn't a matrix of numbers.
      TypeError: for objects that are neither numbers nor text.
    """
    matrix = _of_table(X, name) if is_table(X) else _of_array(X, name)
    if 0 in matrix.shape:
        lacks = "feature(s)" if matrix.shape[1] == 0 else "sample(s)"
        raise InputError(
            f"{name} must have rows and columns, got 0 {lacks} (shape={matrix.shape}) while a minimum of 1 is required."
        )
    return matrix


def is_table(X: Any) -> bool:
    """Returns whether rows are a table, with named and typed columns."""
    return isinstance(X, pa.Table) or (hasattr(X, "iloc") and hasattr(X, "columns") and hasattr(X, "dtypes"))


def column_names(X: Any, indexes: Sequence[int]) -> str:
    """Names columns in messages: the first few, and how many more there are."""
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is None:
        return f"{_columns([*map(int, indexes)])}, counted from 0"
    return _columns([str(list(names)[index]) for index in indexes])


def _columns(labels: Sequence[object]) -> str:
    return f"column{'s' * (len(labels) > 1)} {few(labels)}"


def _of_table(X: Any, name: str) -> NDArray[np.floating]:
    names = X.column_names if isinstance(X, pa.Table) else list(X.columns)
    _check_names(names, name)
    values_of: Iterable[Any] = X.columns if isinstance(X, pa.Table) else (values for _, values in X.items())
    read = _of_arrow if isinstance(X, pa.Table) else _of_pandas
    numeric: list[NDArray[np.floating]] = []
    refused: dict[str, list[str]] = {}
    for label, values in zip(names, values_of, strict=True):
        try:
            numeric.append(read(values))
        except _NoNumbersError as error:
            refused.setdefault(error.got, []).append(str(label))
    if refused:
        rules = ((*_REFUSALS[got], got, _columns(labels)) for got, labels in refused.items())
        raise InputError(
            " ".join(f"{name} must hold {rule}, got {got} in {where}; {advice}." for rule, advice, got, where in rules)
        )
    single = bool(numeric) and all(values.dtype == np.float32 for values in numeric)
    matrix = np.empty((len(X), len(numeric)), dtype=np.float32 if single else np.float64)
    for index, values in enumerate(numeric):
        matrix[:, index] = values
    return matrix


def _check_names(names: Sequence[Any], name: str) -> None:
    """Refuses duplicate, empty and invalid column names."""
    repeated = [str(label) for label, times in collections.Counter(names).items() if times > 1]
    if repeated:
        raise InputError(
            f"{name} must have unique column names, got {few(repeated)} more than once; rename or drop one."
        )
    if "" in names:
        raise InputError(f"{name} must have a name for every column, got an empty one; name that column.")
    torn = next((str(label) for label in names if is_torn(str(label))), None)
    if torn is not None:
        raise InputError(f"{name} must have valid Unicode column names, got {torn!r}; rename that column.")


def _of_arrow(values: pa.ChunkedArray) -> NDArray[np.floating]:
    kind = values.type
    if pa.types.is_dictionary(kind) and arrow.is_numeric(kind):
        raise _NoNumbersError("categories")
    if arrow.is_list(kind):
        raise _NoNumbersError("lists")
    if not arrow.is_numeric(kind) and not pa.types.is_null(kind):
        raise _NoNumbersError
    return arrow.floats(arrow.plain(values))


def _of_pandas(values: Any) -> NDArray[np.floating]:
    kind, stored = getattr(values.dtype, "kind", ""), getattr(values.dtype, "pyarrow_dtype", None)
    if type(values.dtype).__name__ == "CategoricalDtype" or (stored is not None and pa.types.is_dictionary(stored)):
        if any(isinstance(value, str) for value in values.unique()):
            raise _NoNumbersError
        raise _NoNumbersError("categories")
    if kind in _NUMBERS:
        single = values.dtype == np.float32
        return np.asarray(values.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan))
    if kind in _TIMES or kind == "c":
        raise _NoNumbersError
    objects = np.asarray(values, dtype=object)
    if any(isinstance(value, list | tuple | np.ndarray) for value in objects):
        raise _NoNumbersError("lists")
    return _of_objects(objects)


def _is_number(value: Any) -> bool:
    """Returns whether an object is a number or a missing value."""
    return isinstance(value, numbers.Real | decimal.Decimal | np.bool_) or is_missing(value)


def _of_objects(values: NDArray[Any]) -> NDArray[np.float64]:
    """Converts objects that are numbers or missing, of any shape, to floats; raises _NoNumbersError for others."""
    result = np.empty(values.shape)
    for index, value in enumerate(values.flat):
        if not _is_number(value):
            raise _NoNumbersError
        try:
            result.flat[index] = np.nan if is_missing(value) else float(value)
        except (OverflowError, ValueError):
            result.flat[index] = np.inf
    return result


def _of_array(X: Any, name: str) -> NDArray[Any]:
    """Returns an array of numbers unchanged, or converts one of objects that are numbers; refuses others."""
    try:
        array = np.asanyarray(X)
    except ValueError:
        raise InputError(
            f"{name} must be a matrix, got rows of different lengths; give every row the same number of values."
        ) from None
    if array.dtype.kind in _TIMES:
        raise InputError(f"{name} must hold numbers only, got dates or times; count them in days from a public date.")
    if array.dtype.names is not None:
        raise InputError(f"{name} must be a matrix, got records with fields; make a table of them.")
    if array.ndim == 0:
        raise InputError(
            f"{name} must be a matrix or a table in memory, got a {type(X).__name__}; make an array or a table of it."
        )
    if array.ndim != 2:
        raise InputError(
            f"{name} must be a matrix, got shape {array.shape}. Reshape your data to (n_rows, n_features): one column "
            "is reshape(-1, 1), one row reshape(1, -1)."
        )
    if array.dtype.kind == "c":
        raise InputError(
            f"{name} must be real, got dtype {array.dtype}. Complex data not supported: give real and "
            "imaginary parts as columns."
        )
    if array.dtype.kind in _NUMBERS or 0 in array.shape:
        return array
    try:
        return _of_objects(array)
    except _NoNumbersError:
        raise _refused(X, array, name) from None


def _refused(X: Any, array: NDArray[Any], name: str) -> Exception:
    """Builds the error; NumPy turns numbers next to a text into texts, so columns that are no numbers come first."""
    columns = [index for index, column in enumerate(array.T) if not all(map(_is_number, column))]
    if array.dtype.kind in "SU":
        columns = [index for index in columns if not _can_be_floats(array[:, index])] or columns
    refusal = f"{name} must hold numbers only, got others in {column_names(X, columns)}"
    if not all(isinstance(value, str | bytes) or _is_number(value) for value in array[:, columns].flat):
        # scikit-learn's tests expect these words.
        return TypeError(f"{refusal}; argument must be a string or a real number.")
    return InputError(f"{refusal}; convert or drop {'them' if len(columns) > 1 else 'that column'}.")


def _can_be_floats(column: NDArray[Any]) -> bool:
    try:
        column.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def is_missing(value: Any) -> bool:
    """Returns whether an object is a missing value: None, NaN, NA or NaT."""
    return value is None or type(value).__name__ in _MISSING or (isinstance(value, float) and value != value)


def refuse_masked(values: Any, name: str) -> None:
    """Raises InputError if values are masked: in an array, or in a list of arrays or rows."""
    parts = values if isinstance(values, list | tuple) else (values,)
    cells = (cell for part in parts for cell in (part if isinstance(part, list | tuple) else (part,)))
    if any(isinstance(cell, np.ma.MaskedArray) and np.ma.getmaskarray(cell).any() for cell in cells):
        raise InputError(f"{name} must not hold masked values; drop those rows, or fill them with numpy.ma.filled.")
