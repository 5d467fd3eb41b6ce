"""Sections of algorithm spherical: its rounds, and the public terms that clusters are called after."""

from typing import Annotated, ClassVar

from pydantic import Field

from schemas.choices import Auto, ClippingCenter
from schemas.kmeans.sections.clipping_config import CLIPPING_NORMS, ClippingConfig
from schemas.kmeans.sections.privacy_config import PrivacyConfig
from schemas.privacy.plan import PrivacyUnit
from schemas.privacy.unit import Unit
from schemas.settings.section import Scalar, Section, Share, Text, auto_or_integer, number_from
from schemas.settings.vocabulary import VocabularySection

AUTO_STEPS = 15
"""Rounds of sums, if the job does not say how many."""
CELLS_PER_ROW, MOST_AUTO_CELLS = 8, 32
"""Cells in which a unit counts if the job does not say how many: of a typical row, and of a unit at most."""
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
    per_unit: Annotated[Auto | int, auto_or_integer(1000)] = Field(
        default=Auto.AUTO,
        description="the most pairs of a cluster and a term that one privacy unit counts in, an integer from 1 to "
        f"1000, or auto for {CELLS_PER_ROW} for each of its typical rows, at most {MOST_AUTO_CELLS}",
    )
    most_per_row: Annotated[int, Field(strict=True, ge=1, le=1000), Scalar] = Field(
        default=32, description="the most terms of a row that are read, the first ones, an integer from 1 to 1000"
    )
    share: Share = Field(default=0.4, description="the share of the budget for names, strictly between 0 and 1")

    def cells_of(self, unit: Unit) -> int:
        """The most cells of one unit: more are more noise, and fewer leave out more of its terms."""
        if isinstance(self.per_unit, str):
            return min(CELLS_PER_ROW * unit.rows, MOST_AUTO_CELLS)
        return self.per_unit
