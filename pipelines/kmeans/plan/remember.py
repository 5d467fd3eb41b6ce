"""After the rounds of a run with a memory: centers are means of what all runs of the series released.

All of it is post-processing of releases that every one of these runs has paid for.
"""

import dataclasses

import numpy as np

from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun
from dapple_dp.pipelines.kmeans.plan.windows import window_memory
from dapple_dp.schemas.choices import LloydVariant
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.kmeans.recurring.config import RecurringConfig
from dapple_dp.schemas.kmeans.recurring.remembered import Memory, Remembered
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.kmeans.windows.state import WindowState
from dapple_dp.transforms.numerics.kmeans.centers import last_means
from dapple_dp.transforms.numerics.kmeans.recurring.memory import drift_scores, memory_of, most_runs, recalled


def apply_memory(
    planned: PlannedFit, previous: PreviousRun, model: ClusterModel, rows: tuple[int, ...]
) -> tuple[ClusterModel, Remembered | None]:
    """A model whose centers are remembered means, and what it remembers; as it is if the job asks for no memory.

    A cluster whose decayed count is too small for its noise keeps the center of this run.

    Args:
      planned: the job.
      previous: the run that it follows.
      model: of this run, under the numbers of the earlier one.
      rows: where each cluster of `model` was when it was released.

    Raises:
      ConfigError: if the earlier run released no sums and counts.
    """
    section = planned.config.recurring
    if section is None or section.memory is None:
        return model, None
    config, state = planned.config, planned.initial
    if isinstance(config, WindowsFit) and isinstance(state, WindowState):
        memory = window_memory(config, state, previous, model)
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
    """The model with remembered centers."""
    length, short = section.memory or 1, section.short_length
    found = recalled(memory, length, weights)
    scores = drift_scores(memory, length, short, row_spread(planned), weights)
    noise = np.where(found.known, np.sqrt(found.variances(memory)), np.nan)
    centers = np.where(found.known[:, None], found.means, model.centers)
    kept = Remembered(memory=memory, length=length, short=short, known=found.known, noise=noise, scores=scores)
    return dataclasses.replace(model, centers=centers), kept


def row_spread(planned: PlannedFit) -> float:
    """How far a row that counts may be from where the sums of the last round are measured, feature units."""
    config, frame = planned.config, planned.initial.frame
    if isinstance(config, DPLloydFit) and config.dp_lloyd.variant is LloydVariant.FAST:
        return LloydSettings.from_config(config).radius(len(frame.lattice.center))
    return frame.lattice.clipping_norm


def _memory_before(previous: PreviousRun) -> Memory:
    """What the earlier run remembers, or what it released."""
    if previous.memory is not None:
        return previous.memory
    return _of_run(previous.model, previous.rows, previous.folder)


def _of_run(model: ClusterModel, rows: tuple[int, ...], where: str) -> Memory:
    """Sums and counts that one run released, in the order of its clusters."""
    noisy = last_means(model.releases, model.n_clusters)
    if noisy is None or model.noisy_means is None:
        raise ConfigError(
            f"recurring.memory must follow a run that released sums and counts of its clusters, got none of {where}; "
            "follow a run with Lloyd rounds, or leave memory out."
        )
    order = list(rows)
    return memory_of(noisy._replace(sums=noisy.sums[order], counts=noisy.counts[order]), model.noisy_means)
