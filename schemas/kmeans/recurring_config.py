"""The section of a `fit` that follows an earlier one."""

from pydantic import Field

from schemas.settings.section import Flag, Section, Text


class RecurringConfig(Section):
    """An earlier run of the same job that this one follows: its cluster numbers, and by default its centers."""

    previous: Text = Field(description="the output folder of the earlier fit")
    warm_start: Flag = Field(
        default=True,
        description="true to start Lloyd rounds from the centers of the earlier fit, or false to find the centers anew "
        "and take over the numbers of the clusters only",
    )
