"""Fits without privacy, for comparison with private ones; their output stays in the trusted zone."""

from collections.abc import Mapping
from typing import Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.choices import LloydVariant, PooledAlgorithm
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydConfig, check_public_start
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Count, JobSettings, Whole
from dapple_dp.schemas.tables.data_section import DataConfig, OptionalServerData
from dapple_dp.schemas.tables.encoding import ColumnEncoding, Encodings, check_encodings


class PooledFitConfig(JobSettings):
    """One `fit` job without privacy."""

    algorithm: PooledAlgorithm = Field(description="k_fed, optimal, or dp_lloyd with variant lloyd")
    data: DataConfig = Field(description="the section of the table with path and features")
    server_data: OptionalServerData = Field(
        default=None,
        description="the section of the public table with path (for encode and dp_lloyd.init server_kmeanspp), or none",
    )
    n_clusters: Count = Field(description="the number of centers, an integer >= 1")
    encode: Encodings = Field(
        default_factory=dict,
        description="a mapping of columns of data.features to a section with kind, or leave it out",
    )
    dp_lloyd: DPLloydConfig | None = Field(
        default=None, description="a section with variant: lloyd and domain for algorithm dp_lloyd, or leave it out"
    )
    unit: PrivacyUnit = Field(
        default=PrivacyUnit.RECORD,
        description="record where every row weighs the same, or client where every client does, for algorithm dp_lloyd",
    )
    seed: Whole = Field(default=0, description="the seed of the starts, an integer >= 0")

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_encodings(self)
        if self.algorithm is PooledAlgorithm.K_FED and self.data.client_id is None:
            raise ConfigError(
                "data.client_id must be given for algorithm k_fed, got nothing; name the column that names the client."
            )
        return self

    @pydantic.model_validator(mode="after")
    def _lloyd_has_its_section(self) -> Self:
        if self.algorithm is not PooledAlgorithm.DP_LLOYD:
            if self.dp_lloyd is not None or self.unit is not PrivacyUnit.RECORD:
                name = "dp_lloyd" if self.dp_lloyd is not None else "unit"
                raise ConfigError(
                    f"{name} must be left out for algorithm {self.algorithm}, got it; use algorithm dp_lloyd."
                )
            return self
        check_public_start(self.lloyd_options, has_server=self.server_data is not None)
        _ = self.encodings
        if self.unit is PrivacyUnit.CLIENT and self.data.client_id is None:
            raise ConfigError(
                "data.client_id must be given for unit client, got nothing; name the column that names the client."
            )
        return self

    @property
    def encodings(self) -> Mapping[str, ColumnEncoding]:
        """Encodings of columns, from the section `encode` or from the columns' bounds in `dp_lloyd`."""
        return self.encode if self.dp_lloyd is None else self.dp_lloyd.encodings(self.encode, self.data.features)

    @property
    def by_client(self) -> bool:
        """True if all rows of a client must be in one shard."""
        return self.algorithm is PooledAlgorithm.K_FED or self.unit is PrivacyUnit.CLIENT

    @property
    def lloyd_options(self) -> DPLloydConfig:
        """The section of algorithm dp_lloyd; raises ConfigError if it is missing or asks for noise."""
        if self.dp_lloyd is None or self.dp_lloyd.variant is not LloydVariant.LLOYD:
            raise ConfigError(
                "dp_lloyd.variant must be lloyd without privacy, got another one; give a privacy section instead."
            )
        return self.dp_lloyd


def validated_pooled(settings: Mapping[str, object]) -> PooledFitConfig:
    """Validates plain data and returns the job.

    Args:
      settings: as parsed from YAML or JSON.

    Raises:
      ConfigError: one sentence about the first wrong setting; a privacy section is refused, too, since the result
        isn't private.
    """
    if "privacy" in settings:
        lloyd = " with variant lloyd" if settings.get("algorithm") == PooledAlgorithm.DP_LLOYD else ""
        raise ConfigError(
            f"privacy must be left out for algorithm {settings.get('algorithm')}{lloyd}, got a section; "
            "this algorithm guarantees nothing, use feddp_kmeans for a private clustering."
        )
    return rejection.check_config(PooledFitConfig, settings)
