"""Privacy budget of a fit, and its split in the start of FedDP-KMeans."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from dapple_dp.schemas.choices import Auto
from dapple_dp.schemas.core.plan import Allocation, PrivacyUnit
from dapple_dp.schemas.settings.section import Epsilon, Positive, Section, Share
from dapple_dp.schemas.settings.tiers import PAPER_ONLY


class SharesConfig(Section):
    """Shares of the budget of FedDP-Init; only their ratios matter."""

    outer_product: Positive = Field(description="the share of the outer product, a finite number > 0")
    weights: Positive = Field(description="the share of the histogram of server points, a finite number > 0")
    sums: Positive = Field(description="the share of the sums per cluster, a finite number > 0")
    counts: Positive = Field(description="the share of the counts per cluster, a finite number > 0")


def _auto_or_shares(value: object) -> object:
    """Validates `auto`, a section of shares, or nothing."""
    if value is None or isinstance(value, SharesConfig):
        return value
    return Auto.AUTO if value == Auto.AUTO else SharesConfig.model_validate(value)


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
    shares: Annotated[SharesConfig | Auto | None, BeforeValidator(_auto_or_shares)] = Field(
        default=None,
        description="a section with outer_product, weights, sums and counts, auto to choose them and the Lloyd rounds "
        "by simulation on the server data, or leave it out",
    )
