"""Jobs of algorithm dp_medians: Lloyd rounds on a public box that sum directions instead of rows."""

from typing import Literal

from pydantic import Field

from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydConfig, DPLloydFit

AUTO_MEDIAN_STEPS = 8
"""Default rounds of medians."""
LEAST_RADIUS = 1e-3
"""Distance to the center, in half diagonals of the domain, below which a row has no direction."""
FIRST_LENGTH = 0.25
"""Largest move of a center in the first round, relative to the distance to the nearest other center."""


class DPMediansFit(DPLloydFit):
    """A `fit` job of algorithm dp_medians, with the box, the starts and the steps of DP-Lloyd."""

    algorithm: Literal[Algorithm.DP_MEDIANS] = Field(description="dp_medians")  # type: ignore[assignment]
    dp_lloyd: DPLloydConfig = Field(
        description="a section with domain for algorithm dp_medians, whose start and rounds it describes, too"
    )

    @property
    def n_steps(self) -> int:
        """Number of rounds of medians."""
        steps = self.dp_lloyd.steps
        return AUTO_MEDIAN_STEPS if isinstance(steps, str) else steps

    @property
    def start(self) -> "DPMediansFit":
        """The DP-Lloyd job whose start is used; its rounds of means on all clusters are skipped."""
        return self.model_copy(update={"dp_lloyd": self.dp_lloyd.model_copy(update={"steps": self.n_steps + 1})})

    def _check_warm_start(self) -> None:
        if self.recurring is not None and self.recurring.memory is not None:
            raise ConfigError(
                f"recurring.memory isn't supported for algorithm dp_medians, got {self.recurring.memory}; leave it "
                "out, since this algorithm releases no sums that could be remembered."
            )
