"""The section of a `fit` that is one window of an epoch: a public calendar, and what one budget covers."""

import datetime
from typing import Annotated, Any, Self

import pydantic
from pydantic import BeforeValidator, Field

from schemas.errors import ConfigError
from schemas.settings import rejection
from schemas.settings.section import Scalar, Section, Text

MOST_WINDOWS = 10_000
_COEFFICIENT_BITS = 4
"""The weight of a window's own statistic is 2**_COEFFICIENT_BITS; finer weights gain less than a hundredth."""


def _date(value: object) -> str:
    """A date as YYYY-MM-DD; YAML reads such words as dates."""
    text = value.isoformat() if type(value) is datetime.date else value
    try:
        if isinstance(text, str) and datetime.date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise rejection.broken_rule("a date like 2026-01-31")


Date = Annotated[str, BeforeValidator(_date)]
_Count = Annotated[int, Field(strict=True, ge=1, le=MOST_WINDOWS), Scalar]


class EpochTerms(Section):
    """The calendar of windows that share one charge, and in how many of them a privacy unit takes part."""

    name: Text = Field(description="a name that no other epoch of the data set has, for the ledger")
    column: Text = Field(description="the Hive partition column whose folders are dates like dt=2026-01-31")
    first: Date = Field(description="the date of the first window")
    days: _Count = Field(default=1, description="from one window's date to that of the next, an integer >= 1")
    windows: _Count = Field(description="how many windows the epoch has, an integer from 1 to 10000")
    band: _Count = Field(
        default=16,
        description="how many windows each release adds up at most, so that their noise is correlated, an integer "
        ">= 1; 1 for independent noise; the partitions of so many windows must stay readable",
    )
    once: Text | None = Field(
        default=None,
        description="at privacy unit record: the reason why every row lies in the folder of one date only and for "
        "ever, in words; leave it out at unit client",
    )
    max_windows: _Count | None = Field(
        default=None,
        description="at privacy unit client: in how many windows of the epoch a client counts, an integer >= 1; rows "
        "of further ones are left out",
    )
    min_separation: _Count | None = Field(
        default=None,
        description="at privacy unit client: how many windows lie from one in which a client counts to the next at "
        "least, an integer >= 1; 1 to count in successive ones",
    )

    @property
    def times(self) -> int:
        """In how many windows one unit counts at most."""
        return min(self.max_windows or 1, -(-self.windows // self.separation))

    @property
    def separation(self) -> int:
        """How many windows lie between these at least, the later one included."""
        return self.min_separation or self.windows


class EpochConfig(EpochTerms):
    """One window of an epoch: each row lies in one, by the date in the name of its folder."""

    window: Date = Field(description="the date of the window of this run")

    @property
    def index(self) -> int:
        """Number of the window of this run, from 0."""
        return (datetime.date.fromisoformat(self.window) - datetime.date.fromisoformat(self.first)).days // self.days

    def dates(self, reach: int) -> tuple[str, ...]:
        """Dates of the windows whose statistics this one releases, its own first; `reach` is how many there are."""
        own = datetime.date.fromisoformat(self.window)
        ages = range(min(reach, self.index + 1))
        return tuple((own - datetime.timedelta(days=age * self.days)).isoformat() for age in ages)

    def date_of(self, index: int) -> str:
        """The date of a window."""
        first = datetime.date.fromisoformat(self.first)
        return (first + datetime.timedelta(days=index * self.days)).isoformat()

    @pydantic.model_validator(mode="after")
    def _window_is_one_of_the_epoch(self) -> Self:
        if not 0 <= self.index < self.windows or self.date_of(self.index) != self.window:
            raise ConfigError(
                f"epoch.window must be one of the {self.windows} dates from {self.first} on, every "
                f"{self.days} days, got {self.window}; begin a new epoch, or correct the date."
            )
        return self

    def to_json(self) -> dict[str, Any]:
        """What `privacy.json`, `run.json` and the ledger say of it."""
        return self.model_dump(exclude_none=True) | {"index": self.index}


def coefficients(band: int, length: int) -> tuple[int, ...]:
    """Weight of the statistic of each age in a release of a window, its own first.

    Source: Fichtenberger, Henzinger, Upadhyay (2022), "Constant matters: Fine-grained complexity of differentially
    private continual observation", for the square root of the matrix of prefix sums; here with decay, rounded, banded.

    Args:
      band: how many windows a release adds up, >= 1.
      length: of the memory that is to have little noise, in windows, >= 2.

    Returns:
      Positive integers, descending, at most `band`: those that are rounded to zero are left out.

    Example:
      >>> coefficients(4, 30)
      (16, 8, 6, 5)
    """
    found, factor, decay = [], 1.0, 1.0 - 1.0 / length
    for age in range(band):
        factor *= (2 * age - 1) / (2 * age) if age else 1.0
        found.append(round(2**_COEFFICIENT_BITS * factor * decay**age))
    return tuple(weight for weight in found if weight)
