"""Config of an `evaluate` job."""

from typing import Annotated

from pydantic import Field

from schemas.kmeans.model_job import ModelJob, parse_model_job
from schemas.settings.section import Flag, Scalar, Section, Text


class EvaluateOptions(Section):
    """What is scored beyond the cost."""

    label: Text | None = Field(
        default=None, description="a column of classes (strings, integers or booleans) to compare with, or leave it out"
    )
    reference: Text | None = Field(
        default=None,
        description="a Parquet file with a list column named center, or the output folder of a fit, or leave it out",
    )
    silhouette_rows: Annotated[int, Field(strict=True, ge=0, le=20_000), Scalar] = Field(
        default=2000, description="the number of rows to sample for the silhouette, an integer from 0 to 20000"
    )
    beside_released: Flag = Field(
        default=False, description="true to allow an output folder below that of a fit, or false"
    )


class EvaluateConfig(ModelJob):
    """One `evaluate` job."""

    evaluate: EvaluateOptions = Field(default=EvaluateOptions(), description="a section of options, or leave it out")


def load_evaluate_config(text: str) -> EvaluateConfig:
    """A job from YAML text; raises ConfigError as `parse_model_job` does."""
    return parse_model_job(text, EvaluateConfig)
