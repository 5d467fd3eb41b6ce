"""Loaders of settings, for commands with several jobs or whose job has no loader of its own."""

from typing import TYPE_CHECKING

from dapple_dp.schemas.kmeans.fit_config import FitConfig, is_pooled, validated
from dapple_dp.schemas.masked.config import AggregateConfig, validated_aggregate
from dapple_dp.schemas.settings import yaml_text

if TYPE_CHECKING:
    from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig


def fit(text: str) -> "FitConfig | PooledFitConfig":
    """Parses the settings of a private or pooled fit; raises ConfigError if they are invalid."""
    settings = yaml_text.parse(text)
    if not is_pooled(settings):
        return validated(settings)  # type: ignore[arg-type]
    from dapple_dp.schemas.kmeans.jobs.pooled_config import validated_pooled

    return validated_pooled(settings)  # type: ignore[arg-type]


def aggregate(text: str) -> "AggregateConfig":
    """Parses the settings of the aggregator; raises ConfigError if they are invalid."""
    return validated_aggregate(yaml_text.parse(text))  # type: ignore[arg-type]
