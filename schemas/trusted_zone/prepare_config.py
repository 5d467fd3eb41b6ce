"""Config of a `prepare` job: its own, or the parts of a `fit` job that say where the rows are."""

from typing import Self

import pydantic
from pydantic import Field

from schemas.errors import ConfigError
from schemas.kmeans.fit_config import validated
from schemas.kmeans.pooled_config import is_pooled, pooled
from schemas.settings import rejection, yaml_text
from schemas.settings.section import Section
from schemas.tables.data_section import DataConfig, PrepareOptions


class PrepareConfig(Section):
    """One `prepare` job."""

    data: DataConfig = Field(description="the section of the private table with path, features and client_id")
    prepare: PrepareOptions = Field(default=PrepareOptions(), description="a section with shards, or leave it out")

    @pydantic.model_validator(mode="after")
    def _knows_clients(self) -> Self:
        if self.data.client_id is None:
            raise ConfigError(
                "data.client_id must be given for prepare, got nothing; "
                f"give {rejection.description('data.client_id', PrepareConfig)}."
            )
        return self


def load_prepare_config(text: str) -> PrepareConfig:
    """A job from YAML text; a whole `fit` job is checked as one, and its other sections are no matter.

    Raises:
      ConfigError: one sentence about the first wrong setting, or if the text is not YAML.
    """
    settings = rejection.mapping(yaml_text.parse(text), "data and its path")
    if "algorithm" in settings:
        fit = pooled(settings) if is_pooled(settings) else validated(settings)
        if fit.encode:
            raise ConfigError(
                "encode must be left out for prepare, got a section; fit groups encoded rows by itself where it must."
            )
        settings = {"data": fit.data, "prepare": fit.prepare}
    return rejection.checked(PrepareConfig, settings)
