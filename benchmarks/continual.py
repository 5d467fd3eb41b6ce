"""Windows of new rows at one epsilon: nights alone, nights that remember, and windows of an epoch.

A row is in one window, so every way below costs each row the same epsilon. Ways:

- `nights`: each window starts from the centers of the one before and forgets the rest (`recurring`);
- `memory`: the same with `recurring.memory`;
- `stream`: windows of one epoch (`stream`), with the same memory;
- `all rows`: one fit of all rows so far, as if nothing had been released before.

Rounds, statistics, noise and server steps are those of the jobs, run in this process on arrays. The cost is the mean
squared distance of fresh rows to the nearest center, scaled so that that of the true centers is the optimum.

    python -m benchmarks.continual --out benchmarks/results/continual.md
"""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement
from schemas.kmeans.fit_config import FitConfig, validated
from schemas.kmeans.recurring.remembered import Memory
from schemas.kmeans.windows_config import coefficients
from schemas.privacy.plan import PrivacyUnit
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.protocols import PROTOCOLS, warm_protocol
from transforms.kmeans.windows import rounds as windows
from transforms.kmeans.windows import server as windows_server
from transforms.numerics.kmeans.centers import last_means
from transforms.numerics.kmeans.recurring.memory import drift_scores, memory_of, most_runs, recalled
from transforms.numerics.kmeans.recurring.windows import mixing
from transforms.numerics.privacy.noise import draw_release
from transforms.numerics.statistics.nearest import NearestCenters
from transforms.privacy import accounting
from transforms.rounds.protocol import RoundsProtocol

LENGTH, BAND, EPSILON, DELTA = 30, 16, 1.0, 1e-6
SHOWN = (10, 25, 50)
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

    def config(self, **more: Any) -> FitConfig:
        """The job; no file of it is read."""
        names = [f"x{index}" for index in range(self.n_features)]
        return validated(
            {
                "algorithm": "dp_lloyd",
                "data": {"path": "none", "features": names, "name": "windows"},
                "n_clusters": self.n_clusters,
                "privacy": {"unit": "record", "epsilon": EPSILON, "delta": DELTA},
                "dp_lloyd": {"domain": list(self.domain), "steps": 1},
                "ledger": "none.sqlite",
            }
            | more
        )


SETTINGS = (
    Setting(
        name="mixture of the paper", n_features=100, n_clusters=10, n_rows=2000, spread=0.5**0.5, domain=(-2.0, 3.0)
    ),
    Setting(name="separated", n_features=8, n_clusters=10, n_rows=2000, spread=0.1, domain=(-0.5, 1.5)),
)


def run(protocol: RoundsProtocol, config: FitConfig, rows: Rows, key: bytes) -> Any:
    """The state after the rounds of a job on some rows."""
    n_features = rows.shape[1]
    initial = protocol.initial_state(config, np.zeros((0, n_features)), n_features)
    specs = protocol.round_specs(config, n_features, 0)
    plan = accounting.calibrate(PrivacyUnit.RECORD, specs, EPSILON, DELTA, protocol.allocation(config))
    state = initial
    for bound in protocol.rounds(config, plan):
        exact = bound.statistic(ClientBlock(rows), state)
        state = bound.step(state, draw_release(key, bound.plan, exact))
    return state


class Nights:
    """Windows that follow each other, with or without a memory."""

    def __init__(self, setting: Setting, start: Rows, *, remembers: bool):
        self._config = setting.config(recurring={"previous": "none"})
        self._centers, self._remembers = start, remembers
        self.memory: Memory | None = None

    def window(self, rows: Rows, key: bytes) -> Rows:
        """The centers after one window more."""
        model = run(warm_protocol(self._config, self._centers), self._config, rows, key).model()
        self._centers = model.centers
        noisy = last_means(model.releases, model.n_clusters)
        if self._remembers and noisy is not None and model.noisy_means is not None:
            one = memory_of(noisy, model.noisy_means)
            self.memory = one if self.memory is None else self.memory.then(one, most_runs(LENGTH))
            found = recalled(self.memory, LENGTH)
            self._centers = np.where(found.known[:, None], found.means, model.centers)
        return self._centers


class Stream:
    """Windows of one epoch."""

    def __init__(self, setting: Setting, start: Rows, n_windows: int):
        epoch = {"name": "e", "column": "dt", "first": "2026-01-01", "windows": n_windows, "band": BAND, "once": "x"}
        more = {"epoch": epoch | {"window": "2026-01-01"}, "recurring": {"previous": "none", "memory": LENGTH}}
        self._config = setting.config(algorithm="windows", **more)
        self._centers, self._rows = start, list[Rows]()
        self.memory: Memory | None = None
        specs = windows.round_specs(self._config, setting.n_features)
        self._plan = accounting.calibrate(
            PrivacyUnit.RECORD, specs, EPSILON, DELTA, PROTOCOLS[self._config.algorithm].allocation(self._config)
        )
        self.weights = self._config.weights

    def window(self, rows: Rows, key: bytes) -> Rows:
        """The centers after one window more."""
        index = len(self._rows)
        self._rows.append(rows)
        state = windows_server.initial_state(self._config.at(index), self._centers, self.memory)
        (bound,) = windows.rounds(self._config.at(index), self._plan)
        exact = np.zeros(bound.plan.size, dtype=np.int64)
        for age, date in enumerate(state.dates):
            placed = windows.state_at(state, f"lake/dt={date}/rows.parquet")
            exact += bound.statistic(ClientBlock(self._rows[index - age]), placed)
        self.state = after = bound.step(state, draw_release(key, bound.plan, exact))
        one = memory_of(after.noisy, state.positions + after.noisy.means)
        self.memory = one if self.memory is None else self.memory.then(one, most_runs(LENGTH))
        found = recalled(self.memory, LENGTH, self.weights)
        self._centers = np.where(found.known[:, None], found.means, state.positions)
        return self._centers


def key_of(*words: object) -> bytes:
    """A public key of one draw."""
    return hashlib.sha256(repr(words).encode()).digest()


def cost_of(setting: Setting, means: Rows, seed: int) -> Callable[[Rows], float]:
    """Cost of centers over that of the true ones, on fresh rows."""
    rows = setting.rows(means, np.random.default_rng([seed, 3]), 20_000)
    best = float(NearestCenters.of(means).rows(rows).squared.mean())
    return lambda centers: float(NearestCenters.of(centers).rows(rows).squared.mean()) / best


def draw(setting: Setting, seed: int, n_windows: int) -> dict[str, list[float]]:
    """Costs of each way after each shown window."""
    means, rng = setting.means(seed), np.random.default_rng([seed, 2])
    start_config = setting.config(dp_lloyd={"domain": list(setting.domain), "steps": 2})
    protocol = PROTOCOLS[start_config.algorithm]
    start = run(protocol, start_config, setting.rows(means, rng, 10 * setting.n_rows), key_of(seed, "start"))
    centers, cost = start.model().centers, cost_of(setting, means, seed)
    ways: dict[str, Any] = {
        "nights": Nights(setting, centers, remembers=False),
        "memory": Nights(setting, centers, remembers=True),
        "stream": Stream(setting, centers, n_windows),
    }
    found: dict[str, list[float]] = {name: [] for name in (*ways, "all rows", "start")}
    seen: list[Rows] = []
    for index in range(n_windows):
        seen.append(setting.rows(means, rng))
        for name, way in ways.items():
            now = way.window(seen[-1], key_of(seed, name, index))
            if index + 1 in SHOWN:
                found[name].append(cost(now))
        if index + 1 in SHOWN:
            whole = run(protocol, start_config, np.vstack(seen), key_of(seed, "all", index)).model().centers
            found["all rows"].append(cost(whole))
            found["start"].append(cost(centers))
    return found


def costs(setting: Setting, seeds: int) -> list[str]:
    """The table of one setting."""
    drawn = [draw(setting, seed, max(SHOWN)) for seed in range(seeds)]
    lines = [f"| {setting.name} | after window | " + " | ".join(drawn[0]) + " |"]
    lines.append("| --- | --- | " + " | ".join("---" for _ in drawn[0]) + " |")
    for place, window in enumerate(SHOWN):
        cells = []
        for name in drawn[0]:
            values = np.array([each[name][place] for each in drawn])
            error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
            cells.append(f"{values.mean():.4f} +/- {error:.4f}")
        lines.append(f"| | {window} | {' | '.join(cells)} |")
    return lines


def variances(draws: int) -> list[str]:
    """Measured against predicted variance of remembered sums: windows without rows, so that all of it is noise."""
    setting = dataclasses.replace(SETTINGS[1], n_rows=1)
    lines = ["| memory | band | predicted variance, independent over correlated | measured variance over predicted |"]
    lines += ["| --- | --- | --- | --- |"]
    n_windows, empty = 60, np.zeros((0, setting.n_features))
    stream = [Stream(setting, setting.means(0), n_windows) for _ in range(draws)]
    for index in range(n_windows):
        for place, each in enumerate(stream):
            each.window(empty, key_of("variance", place, index))
    weights, decayed = stream[0].weights, (1.0 - 1.0 / LENGTH) ** np.arange(n_windows)[::-1]
    sums = np.array([np.einsum("n,nkd->kd", decayed, each.memory.sums) for each in stream])
    alone = stream[0].memory.sums_stddevs[0] ** 2
    expected = alone * ((decayed @ mixing(weights, n_windows)) ** 2).sum()
    independent = alone / (sum(each**2 for each in weights) / weights[0] ** 2) * (decayed**2).sum()
    ratio, freedom = float((sums**2).mean() / expected), sums.size
    spread = (2.0 / freedom) ** 0.5
    lines.append(
        f"| {LENGTH} | {BAND} | {independent / expected:.2f} | {ratio:.3f} (chi-squared: 1 +/- {spread:.3f}) |"
    )
    for length, band in ((30, 32), (30, 64), (7, 8)):
        lines.append(f"| {length} | {band} | {predicted(length, band, 365):.2f} | |")
    return lines


def predicted(length: int, band: int, n_windows: int) -> float:
    """Variance of a decayed sum with independent noise over that with correlated noise."""
    weights = coefficients(band, length)
    decayed = (1.0 - 1.0 / length) ** np.arange(n_windows)[::-1]
    correlated = sum(each**2 for each in weights) / weights[0] ** 2
    return float((decayed**2).sum() / (correlated * ((decayed @ mixing(weights, n_windows)) ** 2).sum()))


def walk(seeds: int) -> list[str]:
    """False alarms while nothing moves, and windows until a step of one cluster is detected."""
    setting = dataclasses.replace(SETTINGS[1], n_rows=100_000)
    alarms, scored, delays = 0, 0, []
    for seed in range(seeds):
        means, rng = setting.means(seed), np.random.default_rng([seed, 5])
        moved = means.copy()
        moved[0] += 0.2 / setting.n_features**0.5
        stream = Stream(setting, means, 40)
        told = None
        for index in range(40):
            stream.window(setting.rows(means if index < 30 else moved, rng), key_of("walk", seed, index))
            scores = drift_scores(stream.memory, LENGTH, LENGTH // 6, 0.5, stream.weights)
            if index < 30:
                alarms += int((scores > 3.1).sum())
                scored += int(np.isfinite(scores).sum())
            elif told is None and scores[0] > 3.1:
                told = index - 29
        delays.append(told)
    shown = ", ".join("never" if each is None else str(each) for each in delays)
    return [f"False alarms at 100,000 rows a window: {alarms} of {scored}. Windows until 0.2 is detected: {shown}."]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    with threadpool_limits(limits=1):
        lines = machine.heading("Windows at one epsilon: nights, memory, stream")
        lines += [
            f"Epsilon {EPSILON:g}, delta {DELTA:g}, memory {LENGTH}, band {BAND}; 1 is the cost of true centers.",
            "",
        ]
        for setting in SETTINGS:
            lines += [*costs(setting, arguments.seeds), ""]
        lines += [*variances(20), "", *walk(3)]
    measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
