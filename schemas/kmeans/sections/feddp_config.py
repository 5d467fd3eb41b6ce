"""Options of algorithm feddp_kmeans.

Scott et al. is Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with
server-side data".
"""

from typing import Annotated

from pydantic import Field

from dapple_dp.schemas.choices import StartSpace
from dapple_dp.schemas.settings.section import Positive, Scalar, Section, Share


class LloydConfig(Section):
    """FedDP-Lloyds: rounds of sums and counts after the start (Scott et al., Algorithm 2)."""

    steps: Annotated[int, Field(strict=True, ge=0, le=50), Scalar] = Field(
        default=0, description="the number of Lloyd rounds, an integer from 0 to 50 (0 to 2 are best in practice)"
    )
    share: Share = Field(
        default=0.25, description="the share of the budget for all Lloyd rounds, strictly between 0 and 1"
    )


class QualityConfig(Section):
    """A last round, for any algorithm, that releases the final centers' cost and the sizes of their clusters."""

    share: Share = Field(default=0.02, description="the share of the budget for this round, strictly between 0 and 1")
    max_distance: Positive | None = Field(
        default=None,
        description="the distance to its center beyond which a row's cost grows no more, > 0, in feature units, or "
        "leave it out to cut nothing off",
    )


class FedDPOptions(Section):
    """Options of algorithm feddp_kmeans (Scott et al., Algorithm 1)."""

    restarts: Annotated[int, Field(strict=True, ge=20, le=1000), Scalar] = Field(
        default=50, description="the number of restarts of k-means on the server, an integer from 20 to 1000"
    )
    space: StartSpace = Field(
        default=StartSpace.AUTO,
        description="subspace for the leading directions of a released outer product, full to release none and to "
        "cluster the server points as they are, or auto for what cross-validation on the server data prefers",
    )
