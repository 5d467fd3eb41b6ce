"""The `chunks` section of a fit: how its rounds are cut into pipelines."""

from typing import Annotated

from pydantic import Field

from schemas.settings.section import Scalar, Section


class ChunksConfig(Section):
    """How rounds are run; no matter for results or privacy."""

    rounds: Annotated[int, Field(strict=True, ge=1, le=1000), Scalar] | None = Field(
        default=None,
        description="the number of rounds of one pipeline, an integer from 1 to 1000; a run that was stopped resumes "
        "after the last one that ended; leave it out for all rounds in one pipeline, but "
        "for ten on a Flink cluster and for one where one machine reads 8 GiB of rows",
    )
