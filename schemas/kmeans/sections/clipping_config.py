"""Public bounds on what one row, and one client, may contribute to a private fit."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from dapple_dp.schemas.choices import ClippingCenter, ClippingRule
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Count, Scalar, Section, Share, is_number, python_scalar
from dapple_dp.schemas.settings.tiers import PAPER_ONLY

CLIPPING_NORMS = (1e-60, 1e60)
"""Feature units: the fourth powers of clipping norms, variances of outer products, are far from float64's ends."""
ClientBound = Annotated[float, Field(strict=True, ge=1e-6, le=1e12, allow_inf_nan=False), Scalar]


def _clipping_norm(value: object) -> object:
    """`server_radius`, `private`, `domain` or a number among `CLIPPING_NORMS`."""
    value = python_scalar(value)
    if isinstance(value, str) and value in set(ClippingRule):
        return ClippingRule(value)
    rule = f"'server_radius', 'private' or a number from {CLIPPING_NORMS[0]:g} to {CLIPPING_NORMS[1]:g}"
    if not is_number(value, *CLIPPING_NORMS):
        raise rejection.broken_rule(rule)
    return float(value)  # type: ignore[arg-type]


class ClientBoundsConfig(Section):
    """Public bounds on the norm of each statistic of a client (Scott et al. 2025, appendix G.5)."""

    outer_product: ClientBound | None = Field(
        default=None, description="the largest Frobenius norm of a client's outer product, in squared feature units"
    )
    histogram: ClientBound | None = Field(default=None, description="the most rows of a client in a histogram (L1)")
    sums: ClientBound | None = Field(
        default=None, description="the largest L2 norm of a client's stacked means, in feature units"
    )
    counts: ClientBound | None = Field(default=None, description="the most clusters that a client counts in (L1)")
    lloyd_sums: ClientBound | None = Field(
        default=None, description="the largest L2 norm of a client's stacked sums in a Lloyd round, in feature units"
    )
    lloyd_counts: ClientBound | None = Field(
        default=None, description="the most rows of a client that a Lloyd round counts (L1)"
    )


class ClippingConfig(Section):
    """Public bounds on what one row, and one client, may contribute."""

    norm: Annotated[ClippingRule | float, BeforeValidator(_clipping_norm)] = Field(
        description="the largest L2 norm of a centered row, a number > 0 in feature units, "
        "server_radius for the radius of the server data, private for a noisy quantile of the rows' norms, or "
        "domain for half the diagonal of dp_lloyd.domain"
    )
    center: ClippingCenter = Field(
        default=ClippingCenter.SERVER_MEAN, description="server_mean to subtract the mean of the server data, or none"
    )
    quantile: Share = Field(
        default=0.95, description="the share of rows inside a private norm, strictly between 0 and 1"
    )
    share: Share = Field(
        default=0.05, description="the share of the budget that a private norm may spend, strictly between 0 and 1"
    )
    client_rows: Count | None = Field(
        default=None,
        description="the public typical number of rows of a client, an integer >= 1, for privacy unit client",
    )
    bounds: ClientBoundsConfig | None = Field(
        json_schema_extra=PAPER_ONLY,
        default=None,
        description="a section of public bounds on clients' statistics, for privacy unit client and allocation paper, "
        "or leave it out for medians over server data",
    )
