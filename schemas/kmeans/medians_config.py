"""Jobs of algorithm dp_medians: Lloyd rounds on a public box that sum directions, not rows."""

from typing import Literal

from pydantic import Field

from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydConfig, DPLloydFit

AUTO_MEDIAN_STEPS = 8
"""Rounds of medians, if the job does not say how many."""
LEAST_RADIUS = 1e-3
"""Half diagonals of the domain: rows nearer to their center than this have no direction."""
FIRST_LENGTH = 0.25
"""How far a center may move in the first round, in distances from there to the nearest other center."""
_MEANS_ONLY = ("variant", "update")
"""Settings of `dp_lloyd` about means."""


class DPMediansFit(DPLloydFit):
    """One `fit` job of algorithm dp_medians, with the box, the starts and the steps of DP-Lloyd."""

    algorithm: Literal[Algorithm.DP_MEDIANS] = Field(description="dp_medians")  # type: ignore[assignment]
    dp_lloyd: DPLloydConfig = Field(
        description="a section with domain for algorithm dp_medians, whose start and rounds it describes, too"
    )

    @property
    def n_steps(self) -> int:
        """Rounds of medians."""
        steps = self.dp_lloyd.steps
        return AUTO_MEDIAN_STEPS if isinstance(steps, str) else steps

    @property
    def start(self) -> "DPMediansFit":
        """The job whose start this one takes; its rounds of means on all clusters are left out."""
        return self.model_copy(update={"dp_lloyd": self.dp_lloyd.model_copy(update={"steps": self.n_steps + 1})})

    def _check_algorithm(self) -> None:
        for name in _MEANS_ONLY:
            got = getattr(self.dp_lloyd, name)
            if got != DPLloydConfig.model_fields[name].default:
                raise ConfigError(
                    f"dp_lloyd.{name} must be left out for algorithm dp_medians, got {str(got)!r}; it says how "
                    "means move, and centers are medians."
                )
        super()._check_algorithm()

    def _check_warm_start(self) -> None:
        if self.recurring is not None and self.recurring.memory is not None:
            raise ConfigError(
                f"recurring.memory must be left out for algorithm dp_medians, got {self.recurring.memory}; it "
                "remembers sums of rows, and this algorithm releases none."
            )
