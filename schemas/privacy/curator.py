"""What only the curator can say of a job; it is published as it is written, and changes nothing of the run."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.section import Count, Section

PublicText = Annotated[str, Field(strict=True, min_length=1, max_length=2000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]+$")]
"""Text that is published: short, and without control characters."""
SettingName = Annotated[str, Field(strict=True, pattern=r"^[a-z_]+(\.[A-Za-z0-9_]+)*$", max_length=200)]
"""A setting with its sections, such as `clipping.norm`."""


class PlanOptions(Section):
    """What `dapple plan` assumes, and what `privacy.shares: auto` simulates."""

    assumed_rows: Count = Field(
        description="the assumed number of rows (privacy unit client: of clients), an integer >= 1, never read off "
        "the private data; privacy.shares auto chooses by it"
    )


class DeploymentConfig(Section):
    """Fields of the registry entry that a run cannot know; what is left out stays unknown there."""

    intended_use: PublicText | None = Field(default=None, description="what the centers are for")
    release_schedule: PublicText | None = Field(default=None, description="whether and when the run is repeated")
    approved_by: PublicText | None = Field(default=None, description="who chose the settings and approved the run")

    @property
    def given(self) -> dict[str, str]:
        """The fields that the job gives."""
        return self.model_dump(exclude_none=True)


def check_justified(justification: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuses reasons for settings that no job of this kind has.

    Raises:
      ConfigError: in one sentence.
    """
    sections = set(known)
    for name in justification:
        if name.partition(".")[0] not in sections:
            raise ConfigError(
                f"justification must name settings of the job, got {name!r}; write them with their section, such as "
                "clipping.norm."
            )
