"""Facts about a job that only the curator knows; they are published as written and don't affect the run."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.section import Count, Section

PublicText = Annotated[str, Field(strict=True, min_length=1, max_length=2000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]+$")]
"""Text that is published: at most 2000 characters, none of them control characters."""
SettingName = Annotated[str, Field(strict=True, pattern=r"^[a-z_]+(\.[A-Za-z0-9_]+)*$", max_length=200)]
"""Dotted name of a setting, such as `clipping.norm`."""


class PlanOptions(Section):
    """Assumptions of `dapple plan`, which `privacy.shares: auto` also uses in its simulation."""

    assumed_rows: Count = Field(
        description="the assumed number of rows (privacy unit client: of clients), an integer >= 1, never read off "
        "the private data; privacy.shares auto chooses by it"
    )


class DeploymentConfig(Section):
    """Fields of the registry entry that a run can't know; missing ones stay "unknown" there."""

    intended_use: PublicText | None = Field(default=None, description="what the centers are for")
    release_schedule: PublicText | None = Field(default=None, description="whether and when the run is repeated")
    approved_by: PublicText | None = Field(default=None, description="who chose the settings and approved the run")

    @property
    def given(self) -> dict[str, str]:
        """Fields that the job sets, by name."""
        return self.model_dump(exclude_none=True)


def check_justified(justification: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuses justifications of settings that this kind of job doesn't have.

    Raises:
      ConfigError: if a name doesn't start with a known section.
    """
    sections = set(known)
    for name in justification:
        if name.partition(".")[0] not in sections:
            raise ConfigError(
                f"justification must name settings of the job, got {name!r}; write them with their section, such as "
                "clipping.norm."
            )
