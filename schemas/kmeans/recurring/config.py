"""The section of a `fit` that follows an earlier one."""

from typing import Annotated, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.section import Count, Flag, Scalar, Section, Text

_SHORT = 6
"""How many times shorter the short memory is, if the job does not say."""
Runs = Annotated[int, Field(strict=True, ge=2, le=10_000), Scalar]


class RecurringConfig(Section):
    """An earlier run of the same job that this one follows: its cluster numbers, and by default its centers."""

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
    short_memory: Count | None = Field(
        default=None,
        description="how many runs a second memory remembers, against which drift is measured, an integer below it; by "
        "default a sixth of it",
    )

    @property
    def short_length(self) -> int:
        """Length of the short memory, in runs; 1 is this run alone."""
        return self.short_memory or max(1, (self.memory or 0) // _SHORT)

    @pydantic.model_validator(mode="after")
    def _memories_fit(self) -> Self:
        if self.memory is None:
            if self.short_memory is not None:
                raise ConfigError(
                    f"recurring.short_memory must be left out without recurring.memory, got {self.short_memory}; "
                    "give both."
                )
            return self
        if not self.warm_start:
            raise ConfigError(
                f"recurring.memory must be left out with recurring.warm_start: false, got {self.memory}; centers that "
                "are found from scratch remember nothing, and the next warm run remembers this one."
            )
        if self.short_length >= self.memory:
            raise ConfigError(
                f"recurring.short_memory must be below recurring.memory, {self.memory}, got {self.short_length}; give "
                "a smaller one."
            )
        return self
