"""Settings of words that stand for several jobs, or whose job has no function of its own that reads text."""

from schemas.errors import ConfigError
from schemas.kmeans.fit_config import FitConfig, SphericalFit, validated
from schemas.kmeans.pooled_config import PooledFitConfig, is_pooled, validated_pooled
from schemas.masked.config import AggregateConfig, validated_aggregate
from schemas.settings import yaml_text


def fit(text: str) -> FitConfig | PooledFitConfig:
    """A fit, private or of the trusted zone; raises ConfigError, in one sentence."""
    settings = yaml_text.parse(text)
    return validated_pooled(settings) if is_pooled(settings) else validated(settings)  # type: ignore[arg-type]


def topics(text: str) -> SphericalFit:
    """A private fit whose clusters get names; raises ConfigError, in one sentence."""
    found = validated(yaml_text.parse(text))  # type: ignore[arg-type]
    if not isinstance(found, SphericalFit) or found.names is None:
        got = f"algorithm {found.algorithm}" if not isinstance(found, SphericalFit) else "no names"
        raise ConfigError(
            f"algorithm must be spherical, and names a section with column and vocabulary, for topics, got {got}; use "
            "the job fit for clusters without names."
        )
    return found


def aggregate(text: str) -> AggregateConfig:
    """The aggregator's job; raises ConfigError, in one sentence."""
    return validated_aggregate(yaml_text.parse(text))  # type: ignore[arg-type]
