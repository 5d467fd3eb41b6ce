"""What jobs on a model that was released have in common: `model` and the `data` section."""

import json
from collections.abc import Mapping
from typing import TypeVar

from pydantic import Field

from schemas import rejection, yaml_text
from schemas.config import DataConfig, FitConfig, validated
from schemas.errors import ConfigError
from schemas.pooled_config import PooledFitConfig, is_pooled, pooled
from schemas.section import Section, Text

NOT_PRIVATE = {"private": False, "label": "evaluation (not private)"}
"""What every output of these jobs says of itself: it comes from exact rows and stays in the trusted zone."""
NOT_PRIVATE_METADATA = {f"dapple.{name}": json.dumps(value) for name, value in NOT_PRIVATE.items()}
"""The same as key-value metadata of a Parquet file."""
_SECTIONS = ("assign", "evaluate", "profile")


class ModelJob(Section):
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
    settings = yaml_text.parse(text)
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"the job must be a mapping of settings, got {type(settings).__name__}; start with model and data."
        )
    # Without a fit's job in the file, `privacy` and `ledger` are those of a profile.
    others = _SECTIONS if "algorithm" in settings else (*_SECTIONS, "privacy", "ledger")
    settings = {name: value for name, value in settings.items() if name in kind.model_fields or name not in others}
    if "algorithm" in settings:
        own = {name: value for name, value in settings.items() if name in kind.model_fields}
        fitted = PooledFitConfig if is_pooled(settings) else FitConfig
        fit = {name: value for name, value in settings.items() if name in fitted.model_fields}
        unknown = settings.keys() - own.keys() - fit.keys()
        settings = (
            own
            | {name: settings[name] for name in unknown}
            | {"data": (pooled(fit) if is_pooled(fit) else validated(fit)).data}
        )
    return rejection.checked(kind, settings)
