"""Privacy budget of a fit, and its split in the start of FedDP-KMeans."""

from typing import Annotated, NamedTuple, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from dapple_dp.schemas.choices import Auto
from dapple_dp.schemas.core.plan import Allocation, PrivacyUnit
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Epsilon, Section, Share
from dapple_dp.schemas.settings.tiers import PAPER_ONLY


class Shares(NamedTuple):
    """Budget shares of FedDP-Init; only ratios matter: nominal epsilons (paper) or 1 / noise multiplier^2 (tuned)."""

    outer_product: float
    weights: float
    sums: float
    counts: float


def _auto_or_nothing(value: object) -> object:
    """Validates `auto`, or nothing; a job whose shares are chosen holds these."""
    if value is None or value == Auto.AUTO or isinstance(value, Shares):
        return value
    raise rejection.broken_rule("'auto' or left out")


def _as_json(shares: Shares | Auto | None) -> dict[str, float] | str | None:
    return shares._asdict() if isinstance(shares, Shares) else shares


_Chosen = Annotated[
    Shares | Auto | None,
    BeforeValidator(_auto_or_nothing),
    PlainSerializer(_as_json),
    WithJsonSchema({"anyOf": [{"const": str(Auto.AUTO), "type": "string"}, {"type": "null"}]}),
]


class PrivacyConfig(Section):
    """Privacy budget of the whole run; settings that determine the guarantee have no defaults."""

    unit: PrivacyUnit = Field(description="record or client: what one neighbor adds or removes")
    epsilon: Epsilon = Field(description="the total epsilon of the run, a finite number > 0")
    delta: Share = Field(description="the total delta of the run, a number strictly between 0 and 1")
    allocation: Allocation = Field(
        default=Allocation.TUNED,
        json_schema_extra=PAPER_ONLY,
        description="tuned, or paper for the allocation of Scott, Lampert, Saulpic 2025",
    )
    shares: _Chosen = Field(
        default=None,
        description="auto to choose the shares of the releases and the Lloyd rounds by simulation on the server data, "
        "or leave it out",
    )

    def with_shares(self, shares: Shares) -> Self:
        """Returns the section with shares that are chosen."""
        return self.model_copy(update={"shares": shares})
