"""After the rounds of a run that follows another: lasting cluster numbers, and what moved beyond the noise.

All of it is post-processing of two releases.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun
from dapple_dp.pipelines.kmeans.plan.remember import apply_memory
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.kmeans.recurring.drift import Drift
from dapple_dp.schemas.kmeans.recurring.remembered import Remembered
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans, last_means
from dapple_dp.transforms.numerics.kmeans.recurring import drift
from dapple_dp.transforms.numerics.kmeans.recurring.matching import Matching, match_centers


class Followed(NamedTuple):
    """What became of a model.

    Attributes:
      model: under the numbers of the run that its job follows; its centers are remembered means if the job asks for it.
      drift: how it differs from that run; None if it follows none.
      remembered: what it remembers; None without a memory.
    """

    model: ClusterModel
    drift: Drift | None = None
    remembered: Remembered | None = None


def compare_to_previous(planned: PlannedFit, model: ClusterModel) -> Followed:
    """A model after those that its job follows; as it is if it follows none."""
    previous = planned.previous
    if previous is None:
        return Followed(model)
    old = previous.model
    matching = match_centers(model.centers, old.centers, old.cluster_numbers, previous.next_number)
    found = model.renumbered(matching.rows, matching.numbers)
    found, kept = apply_memory(planned, previous, found, tuple(matching.rows.tolist()))
    return Followed(found, _drift(planned, previous, found, matching), kept)


def _drift(planned: PlannedFit, previous: PreviousRun, model: ClusterModel, matching: Matching) -> Drift:
    """Differences of matched clusters."""
    old, pairs = previous.model, matching.previous >= 0
    places = matching.previous[pairs]
    scores, noise = _mean_scores(previous, model, matching)
    epoch = planned.statement.epoch
    stddevs = old.size_stddev, model.size_stddev
    before = _scattered(pairs, old.noisy_sizes[places])
    size_scores = drift.size_scores(before, model.noisy_sizes, stddevs)
    return Drift(
        previous_run=previous.run_id,
        previous_digest=previous.saved.digest,
        rows=tuple(matching.rows.tolist()),
        numbers=matching.numbers,
        next_number=matching.next_number,
        gone=tuple(sorted(set(old.cluster_numbers) - set(matching.numbers))),
        movements=_scattered(pairs, np.linalg.norm(model.centers[pairs] - old.centers[places], axis=1)),
        noise=_scattered(pairs, noise),
        scores=_scattered(pairs, scores),
        sizes=np.stack([before, model.noisy_sizes], axis=1),
        size_stddevs=stddevs,
        # Noise of successive windows is correlated, and each has rows of its own days alone.
        size_scores=size_scores if epoch is None else np.full(len(pairs), np.nan),
    )


def _scattered(pairs: NDArray[np.bool_], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers of matched clusters at their places, NaN at the others."""
    found = np.full(len(pairs), np.nan)
    found[pairs] = values
    return found


def _mean_scores(
    previous: PreviousRun, model: ClusterModel, matching: Matching
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores and noise of the means of matched clusters; NaN where a run has no noisy means."""
    old, pairs = previous.model, matching.previous >= 0
    places = matching.previous[pairs]
    before = last_means(old.releases, old.n_clusters)
    after = last_means(model.releases, model.n_clusters)
    if before is None or after is None or old.noisy_means is None or model.noisy_means is None:
        return np.full(len(places), np.nan), np.full(len(places), np.nan)
    differences = model.noisy_means[pairs] - old.noisy_means[places]
    then = _picked(before, np.array(previous.rows)[places])
    return drift.mean_scores(differences, then, _picked(after, matching.rows[pairs]))


def _picked(noisy: NoisyMeans, rows: NDArray[np.int64]) -> NoisyMeans:
    """Some of the clusters, in this order."""
    return noisy._replace(sums=noisy.sums[rows], counts=noisy.counts[rows])
