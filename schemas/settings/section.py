"""What sections of a job are made of: frozen models, and the types of their scalar settings."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from dapple_dp.schemas.choices import Auto
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import rejection


def python_scalar(value: object) -> object:
    """NumPy scalars as Python's, so that a sweep over an array of values needs no casts."""
    # A caller that has NumPy scalars has imported it; a job file is refused without that wait.
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
    """Refuses an epsilon so small or so large that no noise can be computed for it."""
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
    """Refuses what Python code passes to a section in the one sentence that a job file gets."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        """A section; raises ConfigError for a setting that breaks its rule."""
        try:
            found = super().__call__(*args, **settings)
        except pydantic.ValidationError as error:
            raise ConfigError(rejection.sentence(error, self)) from None  # type: ignore[arg-type]
        rejection.check_tiers(found)
        return found


class Section(pydantic.BaseModel, metaclass=_Called):
    """A group of settings; unknown keys are errors.

    Raises:
      ConfigError: one sentence, if it is called with a setting that breaks its rule.
    """

    # What checks a section is built when it is used: no job has the sections of all.
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class JobSettings(Section):
    """All settings of a job, which is refused if it holds what is not supported without saying so."""

    experimental: Flag = Field(
        default=False, description="true to use what is experimental or paper only, or leave it out"
    )


def auto_or_integer(most: int) -> BeforeValidator:
    """Takes `auto`, or an integer from 1 to `most`."""

    def parsed(value: object) -> object:
        value = python_scalar(value)
        if value == Auto.AUTO:
            return Auto.AUTO
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise rejection.broken_rule(f"'auto' or an integer from 1 to {most}")
        return value

    return BeforeValidator(parsed)


def is_number(value: object, low: float, high: float) -> bool:
    """Whether it is a number, and no boolean, from `low` to `high`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def number_from(low: float, high: float) -> BeforeValidator:
    """Takes a number from `low` to `high` as a float; the rule names both ends."""

    def parsed(value: object) -> object:
        value = python_scalar(value)
        if not is_number(value, low, high):
            raise rejection.broken_rule(f"a number from {low:g} to {high:g}".replace("+", ""))
        return float(value)  # type: ignore[arg-type]

    return BeforeValidator(parsed)
