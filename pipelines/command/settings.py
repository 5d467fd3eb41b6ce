"""Settings of words that stand for several jobs, or whose job has no function of its own that reads text."""

from schemas.kmeans.fit_config import FitConfig, validated
from schemas.kmeans.pooled_config import PooledFitConfig, is_pooled, pooled
from schemas.masked.config import AggregateConfig, validated_aggregate
from schemas.settings import yaml_text


def fit(text: str) -> FitConfig | PooledFitConfig:
    """A fit, private or of the trusted zone; raises ConfigError, in one sentence."""
    settings = yaml_text.parse(text)
    return pooled(settings) if is_pooled(settings) else validated(settings)  # type: ignore[arg-type]


def aggregate(text: str) -> AggregateConfig:
    """The aggregator's job; raises ConfigError, in one sentence."""
    return validated_aggregate(yaml_text.parse(text))  # type: ignore[arg-type]
