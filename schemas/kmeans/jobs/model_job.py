"""Jobs on a released model or on the rows of a fit; their YAML file may also hold the fit itself."""

from collections.abc import Mapping
from typing import Any, Self, TypeVar

import pydantic
from pydantic import Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import SETTINGS, FitConfig, is_pooled, validated
from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig, validated_pooled
from dapple_dp.schemas.settings import rejection, yaml_text
from dapple_dp.schemas.settings.section import JobSettings, Text
from dapple_dp.schemas.tables.data_section import DataConfig, PrepareOptions

_SECTIONS = ("assign", "evaluate", "profile")


class ModelJob(JobSettings):
    """A job that applies a model to a data set."""

    model: Text = Field(description="the output folder of a fit")
    data: DataConfig = Field(description="a section with path and the model's features")


Job = TypeVar("Job", bound=ModelJob)


def parse_model_job(text: str, kind: type[Job]) -> Job:
    """Parses the YAML text of a job; the file may also hold a `fit` job and sections of other jobs.

    The settings of the `fit` job are validated, too; the section of another job on a model is ignored.

    Args:
      text: YAML.
      kind: class of the job.

    Raises:
      ConfigError: one sentence about the first wrong setting, or if the text is not YAML.
    """
    settings = rejection.mapping(yaml_text.parse(text), "model and data")
    # Without a fit job in the file, `privacy` and `ledger` belong to a profile.
    others = _SECTIONS if "algorithm" in settings else (*_SECTIONS, "privacy", "ledger")
    settings = {name: value for name, value in settings.items() if name in kind.model_fields or name not in others}
    if "algorithm" in settings:
        own = {name: value for name, value in settings.items() if name in kind.model_fields}
        fitted = PooledFitConfig.model_fields if is_pooled(settings) else SETTINGS
        fit = {name: value for name, value in settings.items() if name in fitted}
        unknown = settings.keys() - own.keys() - fit.keys()
        settings = own | {name: settings[name] for name in unknown} | {"data": _checked_fit(fit).data}
    return rejection.check_config(kind, settings)


def _checked_fit(settings: Mapping[str, Any]) -> FitConfig | PooledFitConfig:
    return validated_pooled(settings) if is_pooled(settings) else validated(settings)


class PrepareConfig(JobSettings):
    """One `prepare` job."""

    data: DataConfig = Field(description="the section of the private table with path, features and client_id")
    prepare: PrepareOptions = Field(default=PrepareOptions(), description="a section with shards, or leave it out")

    @pydantic.model_validator(mode="after")
    def _knows_clients(self) -> Self:
        if self.data.client_id is None:
            raise ConfigError(
                "data.client_id is required for prepare; give "
                f"{rejection.description('data.client_id', PrepareConfig)}."
            )
        return self


def load_prepare_config(text: str) -> PrepareConfig:
    """Parses a job from YAML text; a `fit` job in the same file is validated, then only its data section is used.

    Raises:
      ConfigError: one sentence about the first wrong setting, or if the text is not YAML.
    """
    settings = rejection.mapping(yaml_text.parse(text), "data and its path")
    if "algorithm" in settings:
        own = {"prepare": settings.pop("prepare")} if "prepare" in settings else {}
        fit = _checked_fit(settings)
        if fit.encode:
            raise ConfigError(
                "encode isn't supported for prepare; leave it out, since fit groups encoded rows itself where it must."
            )
        settings = {"experimental": fit.experimental, "data": fit.data} | own
    return rejection.check_config(PrepareConfig, settings)
