"""Values that are not there: masks of NumPy, which scikit-learn and Arrow do not see, and what stands for one value."""

from typing import Any

import numpy as np

from dapple_dp.schemas.errors import InputError

_MISSING = frozenset({"NAType", "NaTType"})
"""Types of pandas for a value that is not there."""


def is_missing(value: Any) -> bool:
    """Whether an object stands for no value: None, NaN, or what pandas writes for it."""
    return value is None or type(value).__name__ in _MISSING or (isinstance(value, float) and value != value)


def refuse_masked(values: Any, name: str) -> None:
    """Raises InputError if values are masked: in an array, or in a list of arrays or rows."""
    parts = values if isinstance(values, list | tuple) else (values,)
    cells = (cell for part in parts for cell in (part if isinstance(part, list | tuple) else (part,)))
    if any(isinstance(cell, np.ma.MaskedArray) and np.ma.getmaskarray(cell).any() for cell in cells):
        raise InputError(
            f"{name} must hold no masked values, got some; leave those rows out, or give values for them with "
            "numpy.ma.filled."
        )
