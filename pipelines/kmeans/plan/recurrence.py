"""Comparison of a run with the one that it follows: lasting cluster numbers, moves beyond the noise, and memory.

All of it is post-processing of releases that these runs have paid for.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.kmeans.recurring.config import RecurringConfig
from dapple_dp.schemas.kmeans.recurring.drift import Drift
from dapple_dp.schemas.kmeans.recurring.remembered import Memory, Remembered
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.kmeans.windows.server import own_means
from dapple_dp.transforms.kmeans.windows.state import WindowState
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans, last_means
from dapple_dp.transforms.numerics.kmeans.recurring import drift
from dapple_dp.transforms.numerics.kmeans.recurring.matching import Matching, match_centers
from dapple_dp.transforms.numerics.kmeans.recurring.memory import drift_scores, memory_of, most_runs, recalled


class Followed(NamedTuple):
    """A model after it was compared to the previous run.

    Attributes:
      model: model with the cluster numbers of the previous run; its centers are remembered means if the job has a
        memory.
      drift: differences from the previous run; None without one.
      remembered: summary of the runs so far; None without a memory.
    """

    model: ClusterModel
    drift: Drift | None = None
    remembered: Remembered | None = None


def compare_to_previous(planned: PlannedFit, model: ClusterModel) -> Followed:
    """Matches a model's clusters to the previous run; returns it unchanged if there is none."""
    previous = planned.previous
    if previous is None:
        return Followed(model)
    old = previous.model
    matching = match_centers(model.centers, old.centers, old.cluster_numbers, previous.next_number)
    found = model.renumbered(matching.rows, matching.numbers)
    found, kept = _apply_memory(planned, previous, found, tuple(matching.rows.tolist()))
    return Followed(found, _drift(planned, previous, found, matching), kept)


def _drift(planned: PlannedFit, previous: PreviousRun, model: ClusterModel, matching: Matching) -> Drift:
    """Computes the differences of matched clusters."""
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
        # No size scores: the noise of successive windows is correlated, and each has only rows of its own days.
        size_scores=size_scores if epoch is None else np.full(len(pairs), np.nan),
    )


def _scattered(pairs: NDArray[np.bool_], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places the numbers of matched clusters at their positions, with NaN at the others."""
    result = np.full(len(pairs), np.nan)
    result[pairs] = values
    return result


def _mean_scores(
    previous: PreviousRun, model: ClusterModel, matching: Matching
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores and noise of the means of matched clusters; NaN if a run has no noisy means."""
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
    """Selects the given clusters, in this order."""
    return noisy._replace(sums=noisy.sums[rows], counts=noisy.counts[rows])


def _apply_memory(
    planned: PlannedFit, previous: PreviousRun, model: ClusterModel, rows: tuple[int, ...]
) -> tuple[ClusterModel, Remembered | None]:
    """Replaces centers by remembered means, if the job has a memory; returns the model unchanged otherwise.

    A cluster whose decayed count is too small for its noise keeps the center of this run.

    Args:
      planned: the job.
      previous: the previous run.
      model: model of this run, with the cluster numbers of the previous one.
      rows: position of each cluster of `model` in the release.

    Raises:
      ConfigError: if the previous run released no sums and counts.
    """
    section = planned.config.recurring
    if section is None or section.memory is None:
        return model, None
    config, state = planned.config, planned.initial
    if isinstance(config, WindowsFit) and isinstance(state, WindowState):
        memory = _window_memory(config, state, previous, model)
        return _recalled(planned, section, model, memory, config.weights)
    length, before = section.memory, _memory_before(previous)
    order = np.searchsorted(previous.model.cluster_numbers, model.cluster_numbers)
    before = dataclasses.replace(
        before, origins=before.origins[:, order], sums=before.sums[:, order], counts=before.counts[:, order]
    )
    memory = before.then(_of_run(model, rows, "this run"), most_runs(length))
    return _recalled(planned, section, model, memory)


def _recalled(
    planned: PlannedFit, section: RecurringConfig, model: ClusterModel, memory: Memory, weights: tuple[int, ...] = (1,)
) -> tuple[ClusterModel, Remembered]:
    """Replaces centers by remembered means where these are known."""
    length, short = section.memory or 1, section.short_length
    found = recalled(memory, length, weights)
    scores = drift_scores(memory, length, short, row_spread(planned), weights)
    noise = np.where(found.known, np.sqrt(found.variances(memory)), np.nan)
    centers = np.where(found.known[:, None], found.means, model.centers)
    kept = Remembered(memory=memory, length=length, short=short, known=found.known, noise=noise, scores=scores)
    return dataclasses.replace(model, centers=centers), kept


def row_spread(planned: PlannedFit) -> float:
    """Largest distance of a counted row from the origin of the last round's sums, feature units."""
    config, frame = planned.config, planned.initial.frame
    if isinstance(config, DPLloydFit):
        return LloydSettings.from_config(config).radius(len(frame.lattice.center))
    return frame.lattice.clipping_norm


def _memory_before(previous: PreviousRun) -> Memory:
    """Memory of the previous run, or its own release if it has none."""
    if previous.memory is not None:
        return previous.memory
    return _of_run(previous.model, previous.rows, previous.folder)


def _of_run(model: ClusterModel, rows: tuple[int, ...], where: str) -> Memory:
    """Sums and counts that one run released, in the order of its clusters."""
    noisy = last_means(model.releases, model.n_clusters)
    if noisy is None or model.noisy_means is None:
        raise ConfigError(
            f"recurring.memory needs a run that released sums and counts of its clusters, and {where} didn't; follow a "
            "run with Lloyd rounds, or leave memory out."
        )
    order = list(rows)
    return memory_of(noisy._replace(sums=noisy.sums[order], counts=noisy.counts[order]), model.noisy_means)


def _window_memory(config: WindowsFit, state: WindowState, previous: PreviousRun, model: ClusterModel) -> Memory:
    """Adds this window's own contribution to the memory of earlier windows in the epoch.

    Clusters are in the order of the centers that the window started from, which all earlier windows share.
    """
    noisy = own_means(state, model.releases, config.weights)
    own = Memory(
        origins=state.positions[None],
        sums=noisy.sums[None],
        counts=noisy.counts[None],
        sums_stddevs=np.array([noisy.sums_stddev]),
        counts_stddevs=np.array([noisy.counts_stddev]),
    )
    before = previous.memory if config.epoch.index else None
    return own if before is None else before.then(own, most_runs(config.recurring.memory))
