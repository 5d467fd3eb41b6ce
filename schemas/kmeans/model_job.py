"""Jobs on a model that was released, read from a file that may hold the fit of that model, too."""

from typing import TypeVar

from pydantic import Field

from dapple_dp.schemas.kmeans.fit_config import SETTINGS, is_pooled, validated
from dapple_dp.schemas.kmeans.pooled_config import PooledFitConfig, validated_pooled
from dapple_dp.schemas.settings import rejection, yaml_text
from dapple_dp.schemas.settings.section import JobSettings, Text
from dapple_dp.schemas.tables.data_section import DataConfig

_SECTIONS = ("assign", "evaluate", "profile")


class ModelJob(JobSettings):
    """A job that applies a model to a data set."""

    model: Text = Field(description="the output folder of a fit")
    data: DataConfig = Field(description="a section with path and the model's features")


Job = TypeVar("Job", bound=ModelJob)


def parse_model_job(text: str, kind: type[Job]) -> Job:
    """A job from YAML text, which sections of other jobs may share.

    The settings of a whole `fit` job beside its own are checked; the section of another job on a model is that job's.

    Args:
      text: YAML.
      kind: of the job.

    Raises:
      ConfigError: one sentence about the first wrong setting, or if the text is not YAML.
    """
    settings = rejection.mapping(yaml_text.parse(text), "model and data")
    # Without a fit's job in the file, `privacy` and `ledger` are those of a profile.
    others = _SECTIONS if "algorithm" in settings else (*_SECTIONS, "privacy", "ledger")
    settings = {name: value for name, value in settings.items() if name in kind.model_fields or name not in others}
    if "algorithm" in settings:
        own = {name: value for name, value in settings.items() if name in kind.model_fields}
        fitted = PooledFitConfig.model_fields if is_pooled(settings) else SETTINGS
        fit = {name: value for name, value in settings.items() if name in fitted}
        unknown = settings.keys() - own.keys() - fit.keys()
        settings = (
            own
            | {name: settings[name] for name in unknown}
            | {"data": (validated_pooled(fit) if is_pooled(fit) else validated(fit)).data}
        )
    return rejection.check_config(kind, settings)
