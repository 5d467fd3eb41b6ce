"""Sections of algorithm spherical: its rounds, and the public terms that clusters are called after."""

from typing import Annotated, ClassVar

from pydantic import Field

from schemas.choices import Auto, ClippingCenter
from schemas.kmeans.sections.clipping_config import CLIPPING_NORMS, ClippingConfig
from schemas.kmeans.sections.privacy_config import PrivacyConfig
from schemas.privacy.plan import PrivacyUnit
from schemas.settings.section import Scalar, Section, Share, Text, auto_or_integer, number_from
from schemas.settings.vocabulary import VocabularySection

AUTO_STEPS = 15
"""Rounds of sums, if the job does not say how many."""
MOST_CELLS = 1 << 22
"""Clusters times terms, at most: as many numbers are noised at once."""


class ClientPrivacyConfig(PrivacyConfig):
    """The guarantee: people who write texts write many, so the client is the unit."""

    unit: PrivacyUnit = Field(
        default=PrivacyUnit.CLIENT,
        description="client or, with a reason in justification, record: what one neighbor adds or removes",
    )


class UnitBallConfig(ClippingConfig):
    """Rows are at most 1 long, as those of most embedding models are."""

    norm: Annotated[float, number_from(*CLIPPING_NORMS)] = Field(
        default=1.0, description="the largest L2 norm of a row, a number > 0 in feature units"
    )
    center: ClippingCenter = Field(default=ClippingCenter.NONE, description="none")


class SphericalConfig(Section):
    """Spherical k-means: centers of length 1, and rows belong to the center of the largest inner product."""

    steps: Annotated[Auto | int, auto_or_integer(100)] = Field(
        default=Auto.AUTO,
        description=f"the number of rounds of sums, an integer from 1 to 100, or auto for {AUTO_STEPS}",
    )
    client_norm: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] = Field(
        default=0.5,
        description="the largest norm of the stacked sums of a client, divided by its rows, in clipping norms, in "
        "(0, 1]; for privacy unit client",
    )

    @property
    def n_steps(self) -> int:
        """Rounds of sums."""
        return AUTO_STEPS if isinstance(self.steps, str) else self.steps


class NamesConfig(VocabularySection):
    """What clusters are called after: a column of terms, of which a public vocabulary says which may be seen."""

    named: ClassVar[str] = "names."

    column: Text = Field(
        description="the column of terms, lists of strings or strings, that is no feature but by encode.kind terms"
    )
    per_unit: Annotated[int, Field(strict=True, ge=1, le=1000), Scalar] = Field(
        default=8,
        description="the most pairs of a cluster and a term that one privacy unit counts in, an integer from 1 to 1000",
    )
    most_per_row: Annotated[int, Field(strict=True, ge=1, le=1000), Scalar] = Field(
        default=32, description="the most terms of a row that are read, the first ones, an integer from 1 to 1000"
    )
    share: Share = Field(default=0.3, description="the share of the budget for names, strictly between 0 and 1")
