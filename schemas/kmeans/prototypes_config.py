"""Jobs of algorithm k_prototypes: numbers inside public bounds, and codes of public lists."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from dapple_dp.schemas.choices import Algorithm, ClippingCenter, ClippingRule
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.any_fit import AnyFit
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Section, number_from
from dapple_dp.schemas.tables.encoding import Bounds, BoundsRange, ColumnEncoding, OneHot, interval

GAMMA = 0.25
"""Weight of a code that differs: the squared distance of numbers that are a quarter of their domain apart."""
_GAMMAS = (1e-4, 2.0)
BOX = (-1.0, 1.0)
"""Interval to which the bounds of columns are scaled."""
Interval = tuple[float, float]


def _domain(value: object) -> object:
    """A mapping of columns to their two numbers."""
    if not isinstance(value, Mapping) or not value or not all(isinstance(name, str) and name for name in value):
        raise rejection.broken_rule("a mapping of every column of numbers, one or more, to its two numbers")
    return {name: interval(ends) for name, ends in value.items()}


class KPrototypesConfig(Section):
    """k-prototypes (Huang 1998): numbers by squared distances, codes by whether they are the same."""

    domain: Annotated[dict[str, Interval], BeforeValidator(_domain)] = Field(
        description="a mapping of every column of numbers to its public interval, a list of two numbers in the unit of "
        "the column; rows outside are clipped to it"
    )
    gamma: Annotated[float, number_from(*_GAMMAS)] = Field(
        default=GAMMA,
        description=f"what a code that differs weighs, a number from {_GAMMAS[0]:g} to {_GAMMAS[1]:g}: the squared "
        "distance of numbers, where the domain of each is 2 long; the default is that of numbers which lie a quarter "
        "of their domain apart",
    )

    @property
    def length(self) -> float:
        """Feature of a code that a row has; two codes that differ are the root of gamma apart."""
        return math.sqrt(0.5 * self.gamma)


class KPrototypesFit(AnyFit):
    """One `fit` job of algorithm k_prototypes."""

    has_domain = True
    instead_of_kmeans = "run `dapple fit`"

    algorithm: Literal[Algorithm.K_PROTOTYPES] = Field(description="k_prototypes")
    k_prototypes: KPrototypesConfig = Field(description="a section with domain for algorithm k_prototypes")

    @property
    def encodings(self) -> Mapping[str, ColumnEncoding]:
        """Numbers by their bounds, codes with the weight of the algorithm, in the order of the columns."""
        encodings: dict[str, ColumnEncoding] = {}
        for name in self.data.features:
            if name in self.k_prototypes.domain:
                low, high = self.k_prototypes.domain[name]
                encodings[name] = Bounds(lower=low, upper=high, to=BoundsRange.SYMMETRIC)
            else:
                encodings[name] = self.encode[name].model_copy(update={"weight": self.k_prototypes.length})
        return encodings

    def _check_algorithm(self) -> None:
        self._check_given_count()
        self._check_unused()
        self._check_columns()

    def _check_columns(self) -> None:
        """Refuses columns that are neither numbers nor codes, or both."""
        features, domain = self.data.features, self.k_prototypes.domain
        if isinstance(features, str) or self.data.has_patterns:
            raise ConfigError(
                f"data.features must be a list of columns for algorithm k_prototypes, got {features!r}; list each "
                "column by its name."
            )
        for name, encoding in self.encode.items():
            if not isinstance(encoding, OneHot) or encoding.needs_server or encoding.weight != 1.0:
                raise ConfigError(
                    f"encode.{name} must be kind one_hot with a vocabulary list and no weight for algorithm "
                    "k_prototypes, got other settings; list the codes (`dapple profile` finds them privately), put "
                    "numeric columns in k_prototypes.domain, and weight codes with k_prototypes.gamma."
                )
        both = next((name for name in features if (name in domain) == (name in self.encode)), None)
        strange = next((name for name in domain if name not in features), None)
        if both is not None or strange is not None:
            raise ConfigError(
                "each column of data.features must be in either k_prototypes.domain or encode for algorithm "
                "k_prototypes, and no others in k_prototypes.domain, got "
                f"{both if both is not None else strange!r}; give numeric columns an interval in "
                "k_prototypes.domain, and codes a vocabulary in encode."
            )
        if not self.encode:
            raise ConfigError(
                "encode must have a column of codes for algorithm k_prototypes, got none; add one, or use "
                "algorithm dp_lloyd."
            )

    def _check_unused(self) -> None:
        """Refuses settings of other algorithms."""
        self._check_no_quality("judge the prototypes with the evaluate job in the trusted zone")
        self._check_fixed_split("the algorithm splits its budget itself")
        if self.server_data is not None:
            raise ConfigError(
                "server_data isn't supported for algorithm k_prototypes; leave it out, since the fit starts from "
                "the vocabularies and the domain."
            )
        if self.clipping.norm is not ClippingRule.DOMAIN or self.clipping.center is not ClippingCenter.NONE:
            raise ConfigError(
                "clipping.norm must be domain, and clipping.center none, for algorithm k_prototypes, got "
                f"{str(self.clipping.norm)!r} and {str(self.clipping.center)!r}; leave them out: the domain bounds "
                "the rows."
            )
