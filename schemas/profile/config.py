"""Settings of a `profile` job: the columns to describe, their public bounds, and the budget."""

import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Self

import pydantic
from pydantic import BeforeValidator, Field

from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.jobs.model_job import ModelJob, parse_model_job
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import (
    Count,
    Epsilon,
    Finite,
    Positive,
    Scalar,
    Section,
    Share,
    Text,
    python_scalar,
)
from dapple_dp.schemas.tables.data_section import LedgerPath, check_named
from dapple_dp.schemas.tables.encoding import Category, are_bounds

MOST_PERCENTILES = 99
MOST_VALUES = 10_000
"""Maximum size of a public vocabulary."""


def _percentiles(value: object) -> object:
    """Validates percentiles: ascending numbers inside (0, 100), without duplicates."""
    listed = list(map(python_scalar, value)) if isinstance(value, list | tuple) else [None]
    numbers = [number for number in listed if isinstance(number, int | float) and not isinstance(number, bool)]
    ascending = all(low < high for low, high in itertools.pairwise([0, *numbers, 100]))
    if len(numbers) < len(listed) or not ascending or len(numbers) > MOST_PERCENTILES:
        raise rejection.broken_rule(f"a list of at most {MOST_PERCENTILES} ascending numbers between 0 and 100")
    return tuple(map(float, numbers))


def _values(value: object) -> object:
    """Validates None, or distinct categories of one type."""
    if value is None:
        return None
    values = tuple(map(python_scalar, value)) if isinstance(value, list | tuple) else ()
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {str, int, bool} or not len(set(values)) == len(values) <= MOST_VALUES:
        raise rejection.broken_rule(
            f"null or a list of 1 to {MOST_VALUES} distinct strings, distinct integers or booleans"
        )
    return values


class NumericColumn(Section):
    """Settings of a column whose mean and percentiles are estimated in every cluster."""

    lower: Finite = Field(
        description="the public lower bound of the column, a finite number; smaller values count as it"
    )
    upper: Finite = Field(
        description="the public upper bound of the column, a finite number; larger values count as it"
    )
    percentiles: Annotated[tuple[float, ...], BeforeValidator(_percentiles)] = Field(
        default=(), description="a list of ascending numbers between 0 and 100, or leave it out for the mean alone"
    )

    @pydantic.model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if not are_bounds(self.lower, self.upper):
            raise ConfigError(
                f"upper must be clearly greater than lower, {self.lower:g}, got {self.upper:g}; give public bounds."
            )
        return self


class CategoricalColumn(Section):
    """Settings of a column whose values are counted in every cluster."""

    values: Annotated[tuple[Category, ...] | None, BeforeValidator(_values)] = Field(
        default=None,
        description="the public list of values to count, or null to release only values that enough units share",
    )

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The vocabulary as text, in which values are compared and released; None if it isn't public."""
        return None if self.values is None else tuple(map(_category_text, self.values))


def _category_text(value: Category) -> str:
    """Returns a category as text; booleans are true and false, as in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _entries(section: str, model: type[Section]) -> Callable[[object], object]:
    """Returns a validator for a mapping of columns; errors give the full dotted name of an entry."""

    def parsed(value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {column: _entry(f"profile.{section}.{column}", settings, model) for column, settings in value.items()}

    return parsed


def _entry(name: str, settings: object, model: type[Section]) -> Section:
    if isinstance(settings, Section):
        return settings
    if not isinstance(settings, Mapping):
        known = " and ".join(model.model_fields)
        raise ConfigError(f"{name} must be a section of settings, got {rejection.quote(settings)}; give {known}.")
    return rejection.check_config(model, settings, within=name)


class ProfilePrivacy(Section):
    """Budget of the profile, in addition to that of the model."""

    unit: PrivacyUnit = Field(description="record or client: what one neighbor adds or removes")
    epsilon: Epsilon = Field(description="the total epsilon of the profile, a finite number > 0")
    delta: Share = Field(description="the total delta of the profile, a number strictly between 0 and 1")


class ProfileShares(Section):
    """Shares of the budget; only the ratios of those in use matter, and columns get equal parts."""

    sizes: Positive = Field(default=1.0, description="the share of the cluster sizes, a finite number > 0")
    means: Positive = Field(default=1.0, description="the share of all means, a finite number > 0")
    percentiles: Positive = Field(default=1.0, description="the share of all percentiles, a finite number > 0")
    histograms: Positive = Field(default=1.0, description="the share of all histograms, a finite number > 0")


class ProfileOptions(Section):
    """The columns to describe, and limits on the rows that PipelineDP processes one by one."""

    numeric: Annotated[dict[Text, NumericColumn], BeforeValidator(_entries("numeric", NumericColumn))] = Field(
        default_factory=dict, description="a section per numeric column, with lower, upper and percentiles"
    )
    categorical: Annotated[
        dict[Text, CategoricalColumn], BeforeValidator(_entries("categorical", CategoricalColumn))
    ] = Field(default_factory=dict, description="a section per categorical column, with values")
    max_rows_per_client: Count | None = Field(
        default=None, description="the largest number of rows of a client that count, an integer >= 1, for unit client"
    )
    sampling_rate: Annotated[float, Field(strict=True, gt=0, le=1), Scalar] | None = Field(
        default=None,
        description="the public share of rows (unit client: of clients) for percentiles, a number in (0, 1], or leave "
        "it out for all",
    )
    max_rows: Count | None = Field(
        default=None,
        description="the expected number of rows for percentiles at most, an integer >= 1 beside data.public_rows, "
        "or leave it out",
    )
    shares: ProfileShares = Field(
        default=ProfileShares(), description="a section with sizes, means, percentiles and histograms, or leave it out"
    )


class ProfileConfig(ModelJob):
    """A `profile` job."""

    privacy: ProfilePrivacy = Field(description="a section with unit, epsilon and delta")
    profile: ProfileOptions = Field(default=ProfileOptions(), description="a section of columns and options")
    ledger: LedgerPath = None

    @property
    def by_client(self) -> bool:
        """True if the privacy unit is the client."""
        return self.privacy.unit is PrivacyUnit.CLIENT

    @property
    def unit_rows(self) -> int:
        """Largest number of rows of one privacy unit that count."""
        return self.profile.max_rows_per_client or 1

    @property
    def rate(self) -> float:
        """Public rate at which units are sampled for percentiles; never computed from exact counts."""
        options = self.profile
        if options.max_rows is None:
            return options.sampling_rate or 1.0
        return min(1.0, options.max_rows / (float(self.data.public_rows or 1) * self.unit_rows))

    _ledger_knows_the_data = pydantic.model_validator(mode="after")(check_named)

    @pydantic.model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        options = self.profile
        for name in options.categorical:
            if name in options.numeric:
                raise ConfigError(
                    f"profile.categorical and profile.numeric must not share columns, got {name!r} in both; remove "
                    "it from one of them."
                )
        if self.data.client_id in (*options.numeric, *options.categorical):
            raise ConfigError(f"profile must not describe data.client_id, got {self.data.client_id!r}; remove it.")
        return self

    @pydantic.model_validator(mode="after")
    def _clients_are_bounded(self) -> Self:
        bound = self.profile.max_rows_per_client
        if self.by_client and self.data.client_id is None:
            raise ConfigError("data.client_id is required for privacy.unit client; name the column of client ids.")
        if self.by_client and bound is None:
            raise ConfigError(
                "profile.max_rows_per_client is required for privacy.unit client; give the number of rows of a "
                "client that may count, which decides how much noise is needed."
            )
        if not self.by_client and bound is not None:
            raise ConfigError(
                f"profile.max_rows_per_client isn't supported for privacy.unit record, got {bound}; leave it out, "
                "since every row counts and one row is protected."
            )
        if self.data.max_rows_per_client is not None:
            raise ConfigError(
                f"data.max_rows_per_client isn't supported in a profile, got {self.data.max_rows_per_client}; use "
                "profile.max_rows_per_client with privacy.unit client."
            )
        return self

    @pydantic.model_validator(mode="after")
    def _rate_is_public(self) -> Self:
        options = self.profile
        if options.max_rows is not None and options.sampling_rate is not None:
            raise ConfigError(
                "profile.max_rows and profile.sampling_rate must not be given together, got both; give one of them."
            )
        if options.max_rows is not None and self.data.public_rows is None:
            raise ConfigError(
                "data.public_rows is required for profile.max_rows; give the number of rows (unit client: of "
                "clients) if it is public, or a profile.sampling_rate."
            )
        return self


def load_profile_config(text: str) -> ProfileConfig:
    """Parses a job from YAML text; raises ConfigError like `parse_model_job`."""
    return parse_model_job(text, ProfileConfig)
