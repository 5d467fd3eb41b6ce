"""Fits without privacy, for comparison with private ones; their output stays in the trusted zone."""

from collections.abc import Mapping

import pydantic
from pydantic import Field

from dapple_dp.schemas.choices import PooledAlgorithm
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Count, JobSettings, Whole
from dapple_dp.schemas.tables.data_section import DataConfig, OptionalServerData
from dapple_dp.schemas.tables.encoding import ColumnEncoding, Encodings, check_encodings


class PooledFitConfig(JobSettings):
    """One `fit` job without privacy."""

    algorithm: PooledAlgorithm = Field(description="optimal")
    data: DataConfig = Field(description="the section of the table with path and features")
    server_data: OptionalServerData = Field(
        default=None,
        description="the section of the public table with path (for encode), or none",
    )
    n_clusters: Count = Field(description="the number of centers, an integer >= 1")
    encode: Encodings = Field(
        default_factory=dict,
        description="a mapping of columns of data.features to a section with kind, or leave it out",
    )
    seed: Whole = Field(default=0, description="the seed of the starts, an integer >= 0")

    _encodings_fit_the_data = pydantic.model_validator(mode="after")(check_encodings)

    @property
    def encodings(self) -> Mapping[str, ColumnEncoding]:
        """Encodings of columns."""
        return self.encode


def validated_pooled(settings: Mapping[str, object]) -> PooledFitConfig:
    """Validates plain data and returns the job.

    Args:
      settings: as parsed from YAML or JSON.

    Raises:
      ConfigError: one sentence about the first wrong setting; a privacy section is refused, too, since the result
        isn't private.
    """
    if "privacy" in settings:
        raise ConfigError(
            f"privacy isn't supported for algorithm {settings.get('algorithm')}, "
            "which guarantees nothing; remove it, or use feddp_kmeans for a private clustering."
        )
    return rejection.check_config(PooledFitConfig, settings)
