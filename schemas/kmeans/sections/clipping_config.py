"""Public bounds on the contributions of a row and of a client to a private fit."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from dapple_dp.schemas.choices import ClippingCenter, ClippingRule
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Count, Section, is_number, python_scalar

CLIPPING_NORMS = (1e-60, 1e60)
"""Range of clipping norms, feature units: their fourth powers (variances of outer products) fit into float64."""
PRIVATE_NORM_QUANTILE, PRIVATE_NORM_SHARE = 0.95, 0.05
"""Quantile of row norms that a private norm estimates, and its share of the budget."""


def _clipping_norm(value: object) -> object:
    """Validates a clipping norm: `server_radius`, `private`, `domain` or a number in `CLIPPING_NORMS`."""
    value = python_scalar(value)
    if isinstance(value, str) and value in set(ClippingRule):
        return ClippingRule(value)
    rule = f"'server_radius', 'private' or a number from {CLIPPING_NORMS[0]:g} to {CLIPPING_NORMS[1]:g}"
    if not is_number(value, *CLIPPING_NORMS):
        raise rejection.broken_rule(rule)
    return float(value)  # type: ignore[arg-type]


class ClippingConfig(Section):
    """Public bounds on the contribution of a row and of a client."""

    norm: Annotated[ClippingRule | float, BeforeValidator(_clipping_norm)] = Field(
        description="the largest L2 norm of a centered row, a number > 0 in feature units, "
        "server_radius for the radius of the server data, private for the noisy .95 quantile of the rows' norms, or "
        "domain for half the diagonal of dp_lloyd.domain"
    )
    center: ClippingCenter = Field(
        default=ClippingCenter.SERVER_MEAN, description="server_mean to subtract the mean of the server data, or none"
    )
    client_rows: Count | None = Field(
        default=None,
        description="the public typical number of rows of a client, an integer >= 1, for privacy unit client",
    )
