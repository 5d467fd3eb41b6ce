"""Base classes of settings: frozen sections, and the types of their scalar values."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from dapple_dp.schemas.choices import Auto
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import rejection


def python_scalar(value: object) -> object:
    """Converts a NumPy scalar to Python's type, so that sweeps over arrays of values need no casts."""
    # Callers with NumPy scalars have imported NumPy; validating a job file doesn't wait for that import.
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


Scalar = BeforeValidator(python_scalar)
Text = Annotated[str, Field(strict=True, min_length=1)]
Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True, ge=0), Scalar]
Count = Annotated[int, Field(strict=True, ge=1), Scalar]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False), Scalar]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), Scalar]


def _in_reach(epsilon: float) -> float:
    """Refuses an epsilon too small or too large to compute noise for it."""
    if not LEAST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise rejection.broken_rule(f"from {LEAST_EPSILON:g} to {LARGEST_EPSILON:g}")
    return epsilon


LEAST_EPSILON, LARGEST_EPSILON = 1e-6, 1e6
Epsilon = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), AfterValidator(_in_reach), Scalar]
Share = Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False), Scalar]


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(pydantic.BaseModel)


class _Called(ModelMetaclass):
    """Raises the same one-sentence error for wrong arguments in Python as for a job file."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        """Creates a section; raises ConfigError for a setting that breaks its rule."""
        try:
            result = super().__call__(*args, **settings)
        except pydantic.ValidationError as error:
            raise ConfigError(rejection.sentence(error, self)) from None  # type: ignore[arg-type]
        rejection.check_tiers(result)
        return result


class Section(pydantic.BaseModel, metaclass=_Called):
    """Base of groups of settings; unknown keys are errors.

    Raises:
      ConfigError: one sentence, if a setting breaks its rule.
    """

    # Validators are built on first use, since no job uses all sections.
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class JobSettings(Section):
    """Base of all settings of a job, which must set `experimental` to use unsupported ones."""

    experimental: Flag = Field(
        default=False, description="true to use what is experimental or paper only, or leave it out"
    )


def auto_or_integer(most: int) -> BeforeValidator:
    """Accepts `auto`, or an integer from 1 to `most`."""

    def parsed(value: object) -> object:
        value = python_scalar(value)
        if value == Auto.AUTO:
            return Auto.AUTO
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise rejection.broken_rule(f"'auto' or an integer from 1 to {most}")
        return value

    return BeforeValidator(parsed)


def is_number(value: object, low: float, high: float) -> bool:
    """Returns whether a value is a number from `low` to `high`; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def number_from(low: float, high: float) -> BeforeValidator:
    """Accepts a number from `low` to `high` and converts it to float; the error names both ends."""

    def parsed(value: object) -> object:
        value = python_scalar(value)
        if not is_number(value, low, high):
            raise rejection.broken_rule(f"a number from {low:g} to {high:g}".replace("+", ""))
        return float(value)  # type: ignore[arg-type]

    return BeforeValidator(parsed)
