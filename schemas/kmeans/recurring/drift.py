"""Changes from one release of a clustering to the next, relative to the noise of both."""

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRIFT_FILE = "drift.json"
DRIFT_SCORE = 3.0
"""Scores above this count as drift; noise alone exceeds it once in 740 times (sizes, both ways: once in 370)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drift:
    """Comparison of two releases, with one entry per cluster of the later one; NaN if there is nothing to compare.

    Attributes:
      previous_run: id of the earlier run.
      previous_digest: SHA-256 of its centers, 64 hex digits.
      rows: k indices: index of each cluster when it was released, before renumbering.
      numbers: k, ascending: the earlier run's number for clusters that match one of its own, new numbers for others.
      next_number: the smallest number that no cluster has ever had.
      gone: numbers of the earlier run that no cluster matches.
      movements: shape (k,), feature units: distance between the released centers.
      noise: shape (k,), feature units: distance that noise alone would move the noisy means.
      scores: shape (k,): of the distance between the noisy means; standard normal if noise alone moved them.
      sizes: shape (k, 2): noisy sizes, before and after.
      size_stddevs: noise stddev of one size, before and after; NaN if unknown.
      size_scores: shape (k,): standard normal if the true sizes are equal.
    """

    previous_run: str
    previous_digest: str
    rows: tuple[int, ...]
    numbers: tuple[int, ...]
    next_number: int
    gone: tuple[int, ...]
    movements: NDArray[np.float64]
    noise: NDArray[np.float64]
    scores: NDArray[np.float64]
    sizes: NDArray[np.float64]
    size_stddevs: tuple[float, float]
    size_scores: NDArray[np.float64]

    @property
    def new(self) -> tuple[int, ...]:
        """Numbers of clusters that match no cluster of the earlier run."""
        return tuple(number for number, moved in zip(self.numbers, self.movements, strict=True) if math.isnan(moved))

    @property
    def moved(self) -> tuple[int, ...]:
        """Numbers of clusters whose means lie farther apart than noise explains."""
        return tuple(np.array(self.numbers)[self.scores > DRIFT_SCORE].tolist())

    @property
    def resized(self) -> tuple[int, ...]:
        """Numbers of clusters whose sizes differ by more than noise explains."""
        return tuple(np.array(self.numbers)[np.abs(self.size_scores) > DRIFT_SCORE].tolist())

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `drift.json`."""
        return {
            "label": "released",
            "previous": {"run_id": self.previous_run, "digest": self.previous_digest},
            "threshold": DRIFT_SCORE,
            "moved": list(self.moved),
            "resized": list(self.resized),
            "new": list(self.new),
            "gone": list(self.gone),
            "size_noise_stddev": number_or_none(self.size_stddevs[1]),
            "previous_size_noise_stddev": number_or_none(self.size_stddevs[0]),
            "clusters": [self._cluster(index) for index in range(len(self.numbers))],
        }

    def _cluster(self, index: int) -> dict[str, Any]:
        return {
            "cluster": self.numbers[index],
            "movement": number_or_none(self.movements[index]),
            "movement_noise": number_or_none(self.noise[index]),
            "movement_score": number_or_none(self.scores[index]),
            "noisy_size": number_or_none(self.sizes[index, 1]),
            "previous_noisy_size": number_or_none(self.sizes[index, 0]),
            "size_score": number_or_none(self.size_scores[index]),
        }


def number_or_none(value: float) -> float | None:
    """Returns None for NaN and infinities, which JSON lacks."""
    return float(value) if math.isfinite(value) else None
