"""The section of a `fit` that follows an earlier one, and what it asks of the rest of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from schemas.choices import Algorithm, ClippingRule
from schemas.errors import ConfigError
from schemas.section import Section, Text

if TYPE_CHECKING:
    from schemas.config import FitConfig

WARM_ALGORITHMS = (Algorithm.FEDDP_KMEANS, Algorithm.DP_LLOYD)
"""Algorithms whose Lloyd rounds can start from the centers of an earlier run."""


class RecurringConfig(Section):
    """An earlier run of the same job that this one follows: its cluster numbers, and by default its centers."""

    previous: Text = Field(description="the output folder of the earlier fit")
    warm_start: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="true to start Lloyd rounds from the centers of the earlier fit, or false to find the centers anew "
        "and take over the numbers of the clusters only",
    )


def check_recurring(config: FitConfig) -> None:
    """Refuses a warm start of jobs that have no Lloyd rounds to spend their budget on, or no public frame.

    Raises:
      ConfigError: in one sentence.
    """
    if not config.starts_warm:
        return
    _check_algorithm(config)
    if config.chooses_clusters:
        raise ConfigError(
            "n_clusters must be an integer for a warm start, got a choice; give the number of the earlier fit, or "
            "write recurring.warm_start: false."
        )
    if config.clipping.norm is ClippingRule.PRIVATE:
        raise ConfigError(
            "clipping.norm must be public for a warm start, got 'private'; give the clipping_norm of frame in the "
            "earlier run.json as a number."
        )


def _check_algorithm(config: FitConfig) -> None:
    """Refuses algorithms, and options of theirs, that cannot start from centers."""
    if config.algorithm not in WARM_ALGORITHMS:
        raise ConfigError(
            f"algorithm must be feddp_kmeans or dp_lloyd for a warm start, got {config.algorithm}; use one of them, or "
            "write recurring.warm_start: false."
        )
    if config.algorithm is Algorithm.DP_LLOYD:
        return
    if config.lloyd.steps < 1:
        raise ConfigError(
            f"lloyd.steps must be at least 1 for a warm start, got {config.lloyd.steps}; these rounds spend its whole "
            "budget."
        )
    if config.feddp_kmeans.reduce_diameter is not None:
        raise ConfigError(
            "feddp_kmeans.reduce_diameter must be left out for a warm start, got a section; it moves the frame of "
            "every run."
        )
