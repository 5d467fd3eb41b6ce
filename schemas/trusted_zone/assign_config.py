"""Config of an `assign` job."""

import collections
from typing import Self

import pydantic
from pydantic import Field

from schemas.errors import ConfigError
from schemas.kmeans.model_job import ModelJob, parse_model_job
from schemas.settings.section import Flag, Section, Text

CLUSTER = "cluster"
FILE = "file"
ROW = "row"


class AssignOptions(Section):
    """What stands beside a row's cluster."""

    id_columns: tuple[Text, ...] = Field(
        default=(), description="a list of columns to copy beside the cluster, besides data.client_id"
    )
    beside_released: Flag = Field(
        default=False, description="true to allow an output folder below that of a fit, or false"
    )


class AssignConfig(ModelJob):
    """One `assign` job."""

    assign: AssignOptions = Field(default=AssignOptions(), description="a section of options, or leave it out")

    @property
    def id_columns(self) -> tuple[str, ...]:
        """Columns to copy; none to name the file and the row's place in it instead."""
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
    """A job from YAML text; raises ConfigError as `parse_model_job` does."""
    return parse_model_job(text, AssignConfig)
