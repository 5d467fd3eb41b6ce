"""What jobs on a model that was released have in common."""

from pydantic import Field

from schemas.settings.section import Section, Text
from schemas.tables.data_section import DataConfig


class ModelJob(Section):
    """A job that applies a model to a data set."""

    model: Text = Field(description="the output folder of a fit")
    data: DataConfig = Field(description="a section with path and the model's features")
