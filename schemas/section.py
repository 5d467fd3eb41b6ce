"""What sections of a job are made of: frozen models, and the types of their scalar settings."""

from typing import Annotated

import numpy as np
import pydantic
from pydantic import BeforeValidator, Field


def python_scalar(value: object) -> object:
    """NumPy scalars as Python's, so that a sweep over an array of values needs no casts."""
    return value.item() if isinstance(value, np.generic) else value


Scalar = BeforeValidator(python_scalar)
Text = Annotated[str, Field(strict=True, min_length=1)]
Count = Annotated[int, Field(strict=True, ge=1), Scalar]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False), Scalar]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), Scalar]
Share = Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False), Scalar]


class Section(pydantic.BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
