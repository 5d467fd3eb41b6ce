"""Jobs without privacy that a private clustering is compared with: their output stays in the trusted zone."""

from collections.abc import Mapping
from typing import Annotated, Self

import pydantic
from pydantic import Field

from schemas import rejection
from schemas.choices import PooledAlgorithm
from schemas.config import PrepareOptions
from schemas.data_config import DataConfig, OptionalServerData
from schemas.encoding import Encodings, check_encodings
from schemas.errors import ConfigError
from schemas.section import Count, Scalar, Section

Restarts = Annotated[int, Field(strict=True, ge=1, le=1000), Scalar]


class KFedOptions(Section):
    """Options of algorithm k_fed (Dennis, Li, Smith 2021)."""

    local_clusters: Count | None = Field(
        default=None,
        description="the number of centers each client finds among its own rows, an integer >= 1, "
        "or leave it out for n_clusters",
    )
    restarts: Restarts = Field(
        default=10, description="the number of restarts of k-means on each client, an integer from 1 to 1000"
    )


class OptimalOptions(Section):
    """Options of algorithm optimal: k-means of a sample, then Lloyd rounds over all rows from the best starts."""

    sample_rows: Count = Field(default=20_000, description="the number of sampled rows for the starts, an integer >= 1")
    restarts: Restarts = Field(
        default=20, description="the number of k-means runs on the sample, an integer from 1 to 1000"
    )
    starts: Restarts = Field(
        default=4, description="how many of the best of these runs go on over all rows, an integer from 1 to 1000"
    )
    steps: Restarts = Field(
        default=15, description="the number of Lloyd rounds over all rows, an integer from 1 to 1000"
    )


class PooledFitConfig(Section):
    """One `fit` job without privacy."""

    algorithm: PooledAlgorithm = Field(description="k_fed or optimal")
    data: DataConfig = Field(description="the section of the table with path and features")
    server_data: OptionalServerData = Field(
        default=None, description="the section of the public table with path (for encode), or none"
    )
    n_clusters: Count = Field(description="the number of centers, an integer >= 1")
    encode: Encodings = Field(
        default_factory=dict,
        description="a mapping of columns of data.features to a section with kind, or leave it out",
    )
    k_fed: KFedOptions = Field(default=KFedOptions(), description="a section of options, or leave it out")
    optimal: OptimalOptions = Field(default=OptimalOptions(), description="a section of options, or leave it out")
    prepare: PrepareOptions = Field(default=PrepareOptions(), description="a section with shards, or leave it out")
    seed: Annotated[int, Field(strict=True, ge=0), Scalar] = Field(
        default=0, description="the seed of the starts, an integer >= 0"
    )

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_encodings(self.encode, self.data.features, has_server=self.server_data is not None)
        if self.algorithm is PooledAlgorithm.K_FED and self.data.client_id is None:
            raise ConfigError(
                "data.client_id must be given for algorithm k_fed, got nothing; name the column that names the client."
            )
        if self.algorithm is PooledAlgorithm.OPTIMAL and self.optimal.sample_rows < self.n_clusters:
            raise ConfigError(
                f"optimal.sample_rows must be at least n_clusters, got {self.optimal.sample_rows}; sample more rows."
            )
        return self


def pooled(settings: Mapping[str, object]) -> PooledFitConfig:
    """A job from plain data.

    Args:
      settings: as YAML or JSON would give them.

    Raises:
      ConfigError: one sentence about the first wrong setting; a privacy section is refused, since nothing here is
        private.
    """
    if "privacy" in settings:
        raise ConfigError(
            f"privacy must be left out for algorithm {settings.get('algorithm')}, got a section; "
            "this algorithm guarantees nothing, use feddp_kmeans for a private clustering."
        )
    return rejection.checked(PooledFitConfig, settings)


def is_pooled(settings: object) -> bool:
    """Whether plain data ask for an algorithm without privacy."""
    return isinstance(settings, Mapping) and settings.get("algorithm") in tuple(PooledAlgorithm)
