"""The rounds of DP-Lloyd without noise, variant `lloyd`: the baseline of its family. The output is not private.

Input element: `ShardRef`. Output element: centers, shape (n_clusters, n_features), feature units, exactly one.
Start, domain and exact sums are those of the private variants with absolute sums; no code here makes a `Release`.
Source: Diaa, Humphries, Kerschbaum (2025), "FastLloyd", Section 6 (Lloyd, seven rounds).
"""

import dataclasses
import math
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton
from numpy.typing import NDArray

from dapple_dp.schemas.core.unit import unit_of
from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.dp_lloyd import rounds as dp_lloyd
from dapple_dp.transforms.kmeans.dp_lloyd import starts as dp_lloyd_starts
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings, lattice_centers
from dapple_dp.transforms.numerics.kmeans import folding, lloyd_rules
from dapple_dp.transforms.on_beam.exact_sums import SumStatistics
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn
from dapple_dp.transforms.tables.shard_rows import prefetched_blocks


def initial_state(config: PooledFitConfig, server: NDArray[np.float64]) -> LloydState:
    """Returns the state before the first round, from public data only.

    Args:
      config: a job of algorithm dp_lloyd without privacy.
      server: shape (q, d), feature units: public points for start `server_kmeanspp`, else q may be 0.

    Raises:
      ConfigError: if there are fewer server points than clusters, and the start needs them.
    """
    options = config.lloyd_options
    settings = LloydSettings(
        options=options,
        n_clusters=config.n_clusters,
        unit=unit_of(config.unit),
        public_rows=config.data.public_rows,
        seed=config.seed,
        epsilon=math.inf,
        noise_multiplier=0.0,
    )
    return dp_lloyd_starts.state_before(settings, Frame.of_box(settings.box, server.shape[1]), server)


def n_rounds(state: LloydState) -> int:
    """Returns the rounds of the job: given, or as many as in the paper."""
    steps = state.settings.options.steps
    return lloyd_rules.MOST_ROUNDS if isinstance(steps, str) else steps


def moved(exact_sum: np.ndarray, state: LloydState) -> LloydState:
    """Returns the state with centers at the means of their rows; a center without rows stays.

    Args:
      exact_sum: int64, from `dp_lloyd.absolute_statistic`. Not private.
      state: before the round.
    """
    n_clusters, n_features = state.known_centers.shape
    sums = exact_sum[: n_clusters * n_features].reshape(n_clusters, n_features) * state.unit
    counts = exact_sum[n_clusters * n_features :] / lattice.SUM_UNITS
    occupied = (counts > 0.0)[:, None]
    means = np.where(occupied, sums / np.where(occupied, counts[:, None], 1.0), state.known_centers * state.unit)
    inside = folding.fold(means, state.settings.box.half_side)
    return dataclasses.replace(state, centers=lattice_centers(state.frame, inside), sizes=counts)


class _SumsFn(SmallBlocksFn):
    def __init__(self, contract: TableContract):
        self._contract = contract

    def process(self, shard: ShardRef, state: LloydState) -> Iterator[np.ndarray]:
        total = np.zeros(_sum_size(state), dtype=np.int64)
        for block in prefetched_blocks(shard, self._contract):
            total += dp_lloyd.absolute_statistic(block, state)
        yield total


def _sum_size(state: LloydState) -> int:
    n_clusters, n_features = state.known_centers.shape
    return n_clusters * (n_features + 1)


def centers_of(state: LloydState) -> np.ndarray:
    """Returns the centers in feature units, shape (n_clusters, n_features)."""
    return np.asarray(state.known_centers * state.unit + state.frame.lattice.center)


@dataclasses.dataclass(eq=False, kw_only=True)
class RunPlainLloyd(beam.PTransform):
    """Lloyd's algorithm: `ShardRef`s → centers.

    Attributes:
      contract: reads shards; by client, with whole clients in shards, if clients have equal weights.
      initial: state before the first round; public data only.

    Windowing: global. Privacy: none. Cost: one pass over the needed columns, and one shuffle of one vector per bundle,
    for each round.
    """

    contract: TableContract
    initial: LloydState

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Computes sums, then means, round after round."""
        state = shards.pipeline | "Public" >> beam.Create([self.initial], reshuffle=False)
        for step in range(n_rounds(self.initial)):
            before = AsSingleton(state)
            state = (
                shards
                | f"Sums{step}" >> beam.ParDo(_SumsFn(self.contract), before)
                | f"Aggregate{step}" >> SumStatistics(size=_sum_size(self.initial))
                | f"Move{step}" >> beam.Map(moved, before)
            )
        return state | "Centers" >> beam.Map(centers_of)
