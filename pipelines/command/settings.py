"""Settings of words that stand for several jobs, or whose job has no function of its own that reads text."""

from typing import TYPE_CHECKING

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig, is_pooled, validated
from dapple_dp.schemas.masked.config import AggregateConfig, validated_aggregate
from dapple_dp.schemas.settings import yaml_text

if TYPE_CHECKING:
    from dapple_dp.schemas.kmeans.pooled_config import PooledFitConfig
    from dapple_dp.schemas.kmeans.spherical_config import SphericalFit


def fit(text: str) -> "FitConfig | PooledFitConfig":
    """A fit, private or of the trusted zone; raises ConfigError, in one sentence."""
    settings = yaml_text.parse(text)
    if not is_pooled(settings):
        return validated(settings)  # type: ignore[arg-type]
    from dapple_dp.schemas.kmeans.pooled_config import validated_pooled

    return validated_pooled(settings)  # type: ignore[arg-type]


def topics(text: str) -> "SphericalFit":
    """A private fit whose clusters get names; raises ConfigError, in one sentence."""
    from dapple_dp.schemas.kmeans.spherical_config import SphericalFit

    found = validated(yaml_text.parse(text))  # type: ignore[arg-type]
    if not isinstance(found, SphericalFit) or found.names is None:
        got = f"algorithm {found.algorithm}" if not isinstance(found, SphericalFit) else "no names"
        raise ConfigError(
            f"algorithm must be spherical, and names a section with column and vocabulary, for topics, got {got}; use "
            "the job fit for clusters without names."
        )
    return found


def aggregate(text: str) -> "AggregateConfig":
    """The aggregator's job; raises ConfigError, in one sentence."""
    return validated_aggregate(yaml_text.parse(text))  # type: ignore[arg-type]
