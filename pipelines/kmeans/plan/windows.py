"""What a window of an epoch has beside its releases: the roll of its clients, and the memory of the windows before."""

import numpy as np

from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun
from dapple_dp.pipelines.tables.epoch_roll import EpochRoll
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.transforms.kmeans.windows.server import own_means
from dapple_dp.transforms.kmeans.windows.state import WindowState
from dapple_dp.transforms.numerics.kmeans.recurring.memory import most_runs
from dapple_dp.transforms.numerics.tables.participation import Rule


def roll_of(config: FitConfig) -> EpochRoll | None:
    """Who counts in which windows, of a window at client level; None where all rows count."""
    if not isinstance(config, WindowsFit) or config.privacy.unit is PrivacyUnit.RECORD:
        return None
    epoch, (column, dates) = config.epoch, config.folders
    return EpochRoll(
        facts=epoch.model_dump(exclude={"window"}, exclude_none=True) | {"dataset": str(config.data.name)},
        column=column,
        dates=dates,
        index=epoch.index,
        rule=Rule(epoch.times, epoch.separation, len(config.weights), epoch.binds),
        client_id=str(config.data.client_id),
        ledger=str(config.ledger),
        state=config.state,
    )


def window_memory(config: WindowsFit, state: WindowState, previous: PreviousRun, model: ClusterModel) -> Memory:
    """What a window alone adds to the series, after what those before it in the epoch added.

    Clusters stand in the order of the centers that the window started from, which is that of all windows before it.
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
