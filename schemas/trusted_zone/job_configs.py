"""Settings of the jobs `assign` and `evaluate`."""

import collections
from typing import Annotated, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.jobs.model_job import ModelJob, parse_model_job
from dapple_dp.schemas.settings.section import Flag, Positive, Scalar, Section, Text

CLUSTER = "cluster"
FILE = "file"
ROW = "row"


class EvaluateOptions(Section):
    """Scores to compute in addition to the cost."""

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
    """Parses a job from YAML text; raises ConfigError like `parse_model_job`."""
    return parse_model_job(text, EvaluateConfig)


class AssignOptions(Section):
    """Columns in addition to a row's cluster, and the clusters to join."""

    id_columns: tuple[Text, ...] = Field(
        default=(), description="a list of columns to copy beside the cluster, besides data.client_id"
    )
    level: Annotated[int, Field(strict=True, ge=1), Scalar] | None = Field(
        default=None,
        description="the number of clusters that are left of the tree of centers, at most those of the model, or leave "
        "it out for all",
    )
    least_size: Positive | None = Field(
        default=None,
        description="the noisy size that every cluster must have, > 0, or else join its nearest relative, or leave it "
        "out for all clusters; not beside level",
    )
    beside_released: Flag = Field(
        default=False, description="true to allow an output folder below that of a fit, or false"
    )

    @pydantic.model_validator(mode="after")
    def _joins_by_one_rule(self) -> Self:
        if self.level is not None and self.least_size is not None:
            raise ConfigError(
                "assign.least_size and assign.level must not be given together, got both; give one of them."
            )
        return self


class AssignConfig(ModelJob):
    """One `assign` job."""

    assign: AssignOptions = Field(default=AssignOptions(), description="a section of options, or leave it out")

    @property
    def id_columns(self) -> tuple[str, ...]:
        """Columns to copy; if empty, rows are identified by their file and position."""
        client_id = self.data.client_id
        return (() if client_id is None else (client_id,)) + self.assign.id_columns

    @pydantic.model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        names = (*self.id_columns, CLUSTER)
        repeated = [name for name, times in collections.Counter(names).items() if times > 1]
        if repeated:
            raise ConfigError(
                f"assign.id_columns must be distinct, without data.client_id and {CLUSTER!r}, got {repeated[0]!r} "
                "twice; remove it or rename the column."
            )
        return self


def load_assign_config(text: str) -> AssignConfig:
    """Parses a job from YAML text; raises ConfigError like `parse_model_job`."""
    return parse_model_job(text, AssignConfig)
