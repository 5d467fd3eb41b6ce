"""Options of algorithm feddp_kmeans.

Scott et al. is Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with
server-side data".
"""

from typing import Annotated

from pydantic import Field

from dapple_dp.schemas.choices import Assignment, Auto, StartSpace
from dapple_dp.schemas.settings.section import Positive, Scalar, Section, Share, auto_or_integer
from dapple_dp.schemas.settings.tiers import PAPER_ONLY

MinimalWeight = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False), Scalar]


class LloydConfig(Section):
    """FedDP-Lloyds: rounds of sums and counts after the start (Scott et al., Algorithm 2)."""

    steps: Annotated[int, Field(strict=True, ge=0, le=50), Scalar] = Field(
        default=0, description="the number of Lloyd rounds, an integer from 0 to 50 (0 to 2 are best in practice)"
    )
    share: Share = Field(
        default=0.25, description="the share of the budget for all Lloyd rounds, strictly between 0 and 1"
    )


class QualityConfig(Section):
    """A last round, of any algorithm: the cost of the final centers and the sizes of their clusters, with noise."""

    share: Share = Field(default=0.02, description="the share of the budget for this round, strictly between 0 and 1")
    max_distance: Positive | None = Field(
        default=None,
        description="the distance to its center beyond which a row's cost grows no more, > 0, in feature units, or "
        "leave it out to cut nothing off",
    )


class SimplifyConfig(Section):
    """Thinning of the server data by histogram rounds (Scott et al., Algorithm 4)."""

    w_min: MinimalWeight = Field(description="the smallest weight of a cluster, a fraction of the rows in (0, 1]")
    rounds: Annotated[Auto | int, auto_or_integer(200)] = Field(
        default=Auto.AUTO,
        description="the number of histogram rounds, from 1 to 200, or auto for that of Algorithm 4",
    )
    share: Share = Field(
        default=0.1, description="the share of the budget for all these rounds, strictly between 0 and 1"
    )


class DiameterConfig(Section):
    """Reduction of the diameter of the data by one histogram round (Scott et al., Lemma 16)."""

    w_min: MinimalWeight = Field(description="the smallest weight of a cluster, a fraction of the rows in (0, 1]")
    sigma_max: Positive = Field(
        description="the largest standard deviation of a cluster in any direction, > 0, in feature units"
    )
    share: Share = Field(default=0.1, description="the share of the budget for this round, strictly between 0 and 1")


class FedDPOptions(Section):
    """Options of algorithm feddp_kmeans (Scott et al., Algorithm 1)."""

    restarts: Annotated[int, Field(strict=True, ge=20, le=1000), Scalar] = Field(
        default=50, description="the number of restarts of k-means on the server, an integer from 20 to 1000"
    )
    assignment: Assignment = Field(
        default=Assignment.NEAREST,
        description="nearest, or one_third to keep only rows whose distance to their center is at most a third "
        "of that to every other (Scott et al. 2025, Algorithm 5, Part 2)",
    )
    guards: Annotated[bool, Field(json_schema_extra=PAPER_ONLY, strict=True)] = Field(
        default=True,
        description="true to leave out weights below one noise stddev and means of counts below two, and to add less "
        "noise off the diagonal of the outer product; or false for the method as printed, with allocation paper",
    )
    space: StartSpace = Field(
        default=StartSpace.AUTO,
        description="subspace for the leading directions of a released outer product, full to release none and to "
        "cluster the server points as they are, or auto for what cross-validation on the server data prefers",
    )
    simplify: SimplifyConfig | None = Field(
        json_schema_extra=PAPER_ONLY,
        default=None,
        description="a section with w_min to thin the server data (Scott et al. 2025, Algorithm 4), or leave it out",
    )
    reduce_diameter: DiameterConfig | None = Field(
        json_schema_extra=PAPER_ONLY,
        default=None,
        description="a section with w_min and sigma_max to move far components together "
        "(Scott et al. 2025, Lemma 16), or leave it out",
    )
