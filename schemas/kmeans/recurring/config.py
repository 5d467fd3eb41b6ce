"""The section of a `fit` that follows an earlier fit."""

from typing import Annotated, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.section import Flag, Scalar, Section, Text

_SHORT = 6
"""Ratio of the long memory to the short one, by which drift is measured."""
Runs = Annotated[int, Field(strict=True, ge=2, le=10_000), Scalar]


class RecurringConfig(Section):
    """Link to an earlier run of the same job: continues its cluster numbers and, by default, its centers."""

    previous: Text = Field(description="the output folder of the earlier fit")
    warm_start: Flag = Field(
        default=True,
        description="true to start Lloyd rounds from the centers of the earlier fit, or false for new ones "
        "and take over the numbers of the clusters only",
    )
    memory: Runs | None = Field(
        default=None,
        description="how many runs the centers remember, an integer from 2 to 10000: they are means of the released "
        "sums and counts of this run and of those before it, or leave it out",
    )

    @property
    def short_length(self) -> int:
        """Length of the short memory, in runs; 1 means just this run."""
        return max(1, (self.memory or 0) // _SHORT)

    @pydantic.model_validator(mode="after")
    def _memory_has_a_warm_start(self) -> Self:
        if self.memory is not None and not self.warm_start:
            raise ConfigError(
                f"recurring.memory isn't supported with recurring.warm_start: false, got {self.memory}; leave it "
                "out: a start from scratch remembers nothing, and the next warm run remembers this one."
            )
        return self
