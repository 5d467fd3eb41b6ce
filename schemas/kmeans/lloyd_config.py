"""Jobs of algorithm dp_lloyd: Lloyd rounds on a public box, for all its starts.

Diaa et al. is Diaa, Humphries, Kerschbaum (2025), "FastLloyd: Federated, accurate, secure, and tunable k-means
clustering with differential privacy".
"""

from collections.abc import Mapping
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from dapple_dp.schemas.choices import Algorithm, Auto, ClippingRule, LloydStart
from dapple_dp.schemas.core.plan import Allocation
from dapple_dp.schemas.errors import ConfigError, few
from dapple_dp.schemas.kmeans.any_fit import AnyFit
from dapple_dp.schemas.kmeans.sections.clipping_config import CLIPPING_NORMS
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Section, auto_or_integer
from dapple_dp.schemas.tables.encoding import Bounds, BoundsRange, ColumnEncoding, interval
from dapple_dp.schemas.tables.feature_patterns import has_patterns

START_SHARE = 0.5
"""Share of the budget for a private start."""
CLIENT_RADIUS = 0.5
"""Largest norm of a client's stacked relative sums, divided by its number of rows, in units of the radius."""
Interval = tuple[float, float]
BOX: Interval = (-1.0, 1.0)
"""Interval to which columns with separate bounds are mapped."""


def _domain(value: object) -> object:
    """Validates a domain: an interval for all features, one for each, or a mapping of columns to intervals."""
    if isinstance(value, Mapping):
        if not value or not all(isinstance(name, str) and name for name in value):
            raise rejection.broken_rule("a mapping of every column to its two numbers", got=rejection.quote(value))
        return {name: _of_column(name, ends) for name, ends in value.items()}
    if isinstance(value, list | tuple) and value and all(isinstance(pair, list | tuple) for pair in value):
        return tuple(map(interval, value))
    return _common(interval(value))


def _common(ends: Interval) -> Interval:
    """Validates the interval of all features: it isn't rescaled, so row norms in it must be possible clipping norms."""
    least, most = CLIPPING_NORMS
    if max(map(abs, ends)) > most or ends[1] - ends[0] < least:
        raise rejection.broken_rule(
            f"two numbers from {-most:g} to {most:g}, at least {least:g} apart, or a pair for each column"
        )
    return ends


def _of_column(name: str, ends: object) -> Interval:
    """Validates the interval of a column; the error names the column."""
    try:
        return interval(ends)
    except PydanticCustomError as error:
        rule = (error.context or {})["rule"]
        raise rejection.broken_rule(rule, got=f"{rejection.quote(ends)} for column {name!r}") from None


class DPLloydConfig(Section):
    """DP-Lloyd: rounds of noisy sums and counts per cluster (Diaa et al., Algorithm 1)."""

    init: LloydStart | None = Field(
        default=None,
        description="best, candidates, sphere_packing, feddp_init or central_tree, or leave it out for best",
    )
    domain: Annotated[Interval | tuple[Interval, ...] | dict[str, Interval], BeforeValidator(_domain)] = Field(
        union_mode="left_to_right",
        description="the public interval of every feature, a list of two numbers in feature units, or one for each "
        "column, a mapping by name or a list in the order of data.features; rows outside are clipped to it",
    )
    steps: Annotated[Auto | int, auto_or_integer(50)] = Field(
        default=Auto.AUTO,
        description="the number of Lloyd rounds, an integer from 1 to 50, or auto for an error analysis "
        "(which needs data.public_rows; without it the least that analysis gives, 2, or 1 after a private start), or "
        "4 after start candidates",
    )

    @property
    def interval(self) -> Interval:
        """The interval of every feature during clustering."""
        return BOX if self.by_column else cast(Interval, self.domain)

    @property
    def by_column(self) -> bool:
        """True if columns have separate bounds, which are all mapped to the same box."""
        return isinstance(self.domain, dict) or isinstance(self.domain[0], tuple)

    def column_bounds(self, features: str | tuple[str, ...]) -> dict[str, ColumnEncoding]:
        """Returns the columns' separate bounds as an `encode` section.

        Args:
          features: `features` of the data section.

        Raises:
          ConfigError: unless there is exactly one interval for each column.
        """
        if not self.by_column or has_patterns(features):
            return {}
        if isinstance(features, str):
            raise ConfigError(
                f"dp_lloyd.domain must be one pair of numbers for the list column {features!r}, got a pair for each "
                "of several columns; give the interval of all its numbers."
            )
        pairs = cast(tuple[Interval, ...], self.domain)
        given = self.domain if isinstance(self.domain, dict) else dict(zip(features, pairs, strict=False))
        missing = [name for name in features if name not in given]
        unknown = [name for name in given if name not in features]
        if missing or unknown or len(self.domain) != len(features):
            got = " and ".join(
                f"{each} for {few(names)}" for each, names in (("none", missing), ("one", unknown)) if names
            )
            got = got if isinstance(self.domain, dict) else f"{len(self.domain)} for {len(features)} columns"
            by_name = "use the names of data.features, exactly as written"
            remedy = by_name if isinstance(self.domain, dict) else "give one for each column, in their order"
            raise ConfigError(
                f"dp_lloyd.domain must have one interval for each column of data.features and no other, got {got}; "
                f"{remedy}."
            )
        return {name: Bounds(lower=given[name][0], upper=given[name][1], to=BoundsRange.SYMMETRIC) for name in features}

    def encodings(
        self, encode: Mapping[str, ColumnEncoding], features: str | tuple[str, ...]
    ) -> Mapping[str, ColumnEncoding]:
        """Returns the encodings of columns, from the section `encode` or from the columns' separate bounds.

        Raises:
          ConfigError: if there are both, or not exactly one interval for each column.
        """
        if not self.by_column:
            return encode
        if encode:
            raise ConfigError(
                "dp_lloyd.domain must be one pair of numbers if there is an encode section, got one for each "
                "column; write domain: [-1, 1], and encode.COLUMN: {kind: bounds, to: symmetric} with the bounds."
            )
        return self.column_bounds(features)

    @property
    def start(self) -> LloydStart:
        """The method that chooses the initial centers."""
        return LloydStart.BEST if self.init is None else self.init

    @property
    def starts_privately(self) -> bool:
        """True if the start takes part of the budget."""
        return self.start is not LloydStart.SPHERE_PACKING

    @property
    def shrinks(self) -> bool:
        """True if moves are shrunken by their known noise, as after a private start."""
        return self.starts_privately


class DPLloydFit(AnyFit):
    """One `fit` job of algorithm dp_lloyd."""

    has_domain = True

    algorithm: Literal[Algorithm.DP_LLOYD] = Field(description="dp_lloyd")
    dp_lloyd: DPLloydConfig = Field(description="a section with domain for algorithm dp_lloyd")

    def _check_algorithm(self) -> None:
        self._check_start(self.dp_lloyd.start)
        self._check_given_count()
        self._check_unused()
        _ = self.encodings

    @property
    def encodings(self) -> Mapping[str, ColumnEncoding]:
        """Encodings of columns, from the section `encode` or from the columns' bounds."""
        return self.dp_lloyd.encodings(self.encode, self.data.features)

    @property
    def common_interval(self) -> Interval | None:
        """Interval to which all features are clipped without rescaling; None if columns have separate bounds."""
        return None if self.dp_lloyd.by_column else self.dp_lloyd.interval

    def _check_warm_start(self) -> None:
        """Accepts all: every job can start from given centers."""

    def _check_unused(self) -> None:
        """Refuses settings of other algorithms."""
        if self.quality is not None:
            raise ConfigError(
                f"quality isn't supported for algorithm {self.algorithm}; judge its centers with the evaluate job "
                "in the trusted zone."
            )
        if self.lloyd.steps:
            raise ConfigError(
                f"lloyd.steps must be 0 for algorithm {self.algorithm}, got {self.lloyd.steps}; "
                "use dp_lloyd.steps instead."
            )
        if self.privacy.allocation is not Allocation.TUNED:
            raise ConfigError(
                f"privacy.allocation must be tuned for algorithm {self.algorithm}, got "
                f"{str(self.privacy.allocation)!r}; leave it out: an error analysis splits the budget."
            )

    def _check_start(self, start: LloydStart) -> None:
        """Refuses clipping and server data that don't fit the start."""
        if start is LloydStart.FEDDP_INIT and self.server_data is None:
            raise ConfigError(
                f"server_data is required for dp_lloyd.init {start}; give a server_data section, or use init best."
            )
        if self.clipping.norm is ClippingRule.PRIVATE:
            raise ConfigError(
                f"clipping.norm must be domain or a number for algorithm {self.algorithm}, got 'private'; "
                "leave it out: the domain bounds the rows."
            )
        if start is LloydStart.FEDDP_INIT:
            return
        if self.clipping.norm is ClippingRule.SERVER_RADIUS or self.clipping.center != "none":
            raise ConfigError(
                f"clipping.norm must be domain or a number, and clipping.center none, for dp_lloyd.init {start}, got "
                f"{str(self.clipping.norm)!r} and {str(self.clipping.center)!r}; leave them out: the domain bounds "
                "the rows."
            )
