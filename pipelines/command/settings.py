"""Settings of words that stand for several jobs, or whose job has no function of its own that reads text."""

from typing import TYPE_CHECKING

from dapple_dp.schemas.kmeans.fit_config import FitConfig, is_pooled, validated
from dapple_dp.schemas.masked.config import AggregateConfig, validated_aggregate
from dapple_dp.schemas.settings import yaml_text

if TYPE_CHECKING:
    from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig


def fit(text: str) -> "FitConfig | PooledFitConfig":
    """A fit, private or of the trusted zone; raises ConfigError, in one sentence."""
    settings = yaml_text.parse(text)
    if not is_pooled(settings):
        return validated(settings)  # type: ignore[arg-type]
    from dapple_dp.schemas.kmeans.jobs.pooled_config import validated_pooled

    return validated_pooled(settings)  # type: ignore[arg-type]


def aggregate(text: str) -> "AggregateConfig":
    """The aggregator's job; raises ConfigError, in one sentence."""
    return validated_aggregate(yaml_text.parse(text))  # type: ignore[arg-type]
