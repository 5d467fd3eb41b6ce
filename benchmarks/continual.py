"""Windows of one epoch on arrays in this process, by the rounds, statistics, noise and server steps of the jobs."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import of_kind
from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.transforms.core import accounting, loop
from dapple_dp.transforms.core.round import measure
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.kmeans.windows import rounds as windows
from dapple_dp.transforms.kmeans.windows import server as windows_server
from dapple_dp.transforms.numerics.kmeans.recurring.memory import memory_of, most_runs, recalled

LENGTH, BAND, EPSILON, DELTA = 30, 16, 1.0, 1e-6
Rows = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Data whose windows are clustered."""

    name: str
    n_features: int
    n_clusters: int
    n_rows: int
    spread: float
    domain: tuple[float, float]

    def means(self, seed: int) -> Rows:
        """Cluster means, shape (k, d)."""
        return np.random.default_rng([seed, 1]).uniform(0.0, 1.0, (self.n_clusters, self.n_features))

    def rows(self, means: Rows, rng: np.random.Generator, n_rows: int = 0) -> Rows:
        """Rows around means."""
        size = n_rows or self.n_rows
        noise = rng.normal(0.0, self.spread, (size, self.n_features))
        return np.asarray(means[rng.integers(0, len(means), size)] + noise)

    def window(self, **more: Any) -> WindowsFit:
        """The job of a window; no file of it is read."""
        names = [f"x{index}" for index in range(self.n_features)]
        return of_kind(
            WindowsFit,
            {
                "algorithm": "windows",
                "data": {"path": "none", "features": names, "name": "windows"},
                "n_clusters": self.n_clusters,
                "privacy": {"unit": "record", "epsilon": EPSILON, "delta": DELTA},
                "dp_lloyd": {"domain": list(self.domain), "steps": 1},
                "ledger": "none.sqlite",
            }
            | more,
        )


class Stream:
    """Windows of one epoch."""

    def __init__(self, setting: Setting, start: Rows, n_windows: int, **settings: Any):
        epoch = {"name": "e", "column": "dt", "first": "2026-01-01", "windows": n_windows, "band": BAND, "once": "x"}
        epoch = epoch | {"window": "2026-01-01"} | settings.pop("epoch", {})
        epoch = {name: value for name, value in epoch.items() if value is not None}
        more = {"epoch": epoch, "recurring": {"previous": "none", "memory": LENGTH}}
        self._config = setting.window(**more, **settings)
        self._centers, self._blocks = start, list[ClientBlock]()
        self.memory: Memory | None = None
        self.own_exact = np.zeros(0, dtype=np.int64)
        specs = windows.round_specs(self._config, setting.n_features)
        self._plan = accounting.calibrate(
            self._config.privacy.unit,
            specs,
            EPSILON,
            DELTA,
            protocol_of(self._config.algorithm).allocation(self._config),
        )
        self.weights = self._config.weights

    def window(self, rows: Rows | ClientBlock, key: bytes) -> Rows:
        """The centers after one window more."""
        index = len(self._blocks)
        self._blocks.append(rows if isinstance(rows, ClientBlock) else ClientBlock(rows))
        state = windows_server.initial_state(self._config.at(index), self._centers, self.memory)
        (bound,) = windows.rounds(self._config.at(index), self._plan)

        def remembered(block: ClientBlock, state: Any) -> NDArray[np.int64]:
            """The statistic of a window and of those before, each in the state of its date."""
            blocks = [block, *reversed(self._blocks[:index])]
            states = [windows.state_at(state, f"lake/dt={date}/rows.parquet") for date in state.dates]
            parts = [measure(bound, *pair) for pair in zip(blocks, states, strict=False)]
            self.own_exact = parts[0]
            return np.sum(parts, axis=0, dtype=np.int64)

        made = bound._replace(statistic=remembered)
        _, self.state = _, after = loop.simulate(state, [made], self._blocks[index:], key).states
        one = memory_of(after.noisy, state.positions + after.noisy.means)
        self.memory = one if self.memory is None else self.memory.then(one, most_runs(LENGTH))
        found = recalled(self.memory, LENGTH, self.weights)
        self._centers = np.where(found.known[:, None], found.means, state.positions)
        return self._centers
