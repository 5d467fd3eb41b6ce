"""How often a window says that a cluster drifts where nothing does, and how soon it says so where something does.

The target is at most one false alarm in 1,000 windows for each cluster at 100,000 rows a window. Rows are drawn,
counted and clipped as in the job. Only the exact sums of the `band` windows before are kept, which the job computes
again from their rows. A test shows that both give the same bytes.

    python -m benchmarks.drift_alarms --out benchmarks/results/drift_alarms.md
"""

import collections
import dataclasses

import numpy as np
import scipy.stats
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement
from benchmarks.continual import DELTA, EPSILON, SETTINGS, Rows, Setting, key_of
from benchmarks.continual_windows import Contract, Epoch, moving
from schemas.kmeans.recurring.remembered import MEMORY_DRIFT_SCORE
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.lloyd.box import LloydSettings
from transforms.kmeans.windows import rounds as windows
from transforms.kmeans.windows.state import WindowState
from transforms.numerics.kmeans.recurring.memory import drift_scores
from transforms.rounds.protocol import Round

TARGET = 1e-3
BEGINS = 30
"""Windows before the first whose scores count: a memory is full then."""


class CachedEpoch(Epoch):
    """An epoch that keeps the exact sums of windows in place of their rows; for rows of one window each."""

    def __init__(self, setting: Setting, start: Rows, contract: Contract):
        super().__init__(setting, start, contract)
        self.blocks = collections.deque[ClientBlock](maxlen=1)
        self._parts = collections.deque[NDArray[np.int64]](maxlen=contract.band)
        self._radius = LloydSettings.from_config(self.config).radius(setting.n_features)

    def _exact(self, bound: Round, state: WindowState) -> NDArray[np.int64]:
        """What the window adds up; a window's sums are around its own centers, so that they stay what they were."""
        own = bound.statistic(self.blocks[0], windows.state_at(state, f"lake/dt={state.dates[0]}/rows.parquet"))
        self._parts.appendleft(own // self.weights[0])
        products = (weight * part for weight, part in zip(self.weights, self._parts, strict=False))
        return np.asarray(sum(products, np.zeros_like(own)))

    def scores(self) -> Rows:
        """Drift score of each cluster, with the margin for chance among rows that the job takes: their radius."""
        return self.scores_within(self._radius)

    def scores_within(self, spread: float) -> Rows:
        """Drift scores with a margin for chance of rows that lie so far from their center in each direction."""
        return drift_scores(self.memory, self.length, max(1, self.length // 6), spread, self.weights)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alarms:
    """Scores of clusters that do not move, shape (epochs, windows, k)."""

    name: str
    scores: NDArray[np.float64]

    @property
    def line(self) -> str:
        """A row of the table."""
        known = np.isfinite(self.scores)
        n_scores, n_alarms = int(known.sum()), int((self.scores[known] > MEMORY_DRIFT_SCORE).sum())
        together = apart(self.scores)
        independent = max(1, round(n_scores / together))
        found = scipy.stats.binomtest(min(independent, round(n_alarms / together)), independent).proportion_ci(0.95)
        interval = f"{1000 * found.low:.2f} to {1000 * found.high:.2f}"
        top = f"{np.nanmax(self.scores):.2f}"
        spread = f"{np.nanmean(self.scores):.2f}, {np.nanstd(self.scores):.2f}"
        per = f"{1000 * n_alarms / n_scores:.2f}"
        return f"| {self.name} | {n_scores:,} | {n_alarms} | {per} | {interval} | {together:.1f} | {spread} | {top} |"


def apart(scores: NDArray[np.float64]) -> float:
    """How many windows count as one, since scores of neighboring windows share rows and noise, at least 1.

    Args:
      scores: shape (epochs, windows, k).

    Returns:
      One plus twice the sum of their correlations, up to the first below 0.05.
    """
    centered = scores - np.nanmean(scores)
    total, variance = 1.0, float(np.nanmean(centered**2))
    for lag in range(1, scores.shape[1] // 2):
        correlation = float(np.nanmean(centered[:, lag:] * centered[:, :-lag])) / variance
        if correlation < 0.05:
            break
        total += 2.0 * correlation
    return total


def calm(setting: Setting, epochs: int, n_windows: int) -> list[Alarms]:
    """Windows in which nothing moves, scored with the job's margin for chance and with the true spread of rows."""
    found: dict[str, list[Rows]] = {"margin of the job: the radius": [], "margin of the true spread": []}
    for seed in range(epochs):
        means, rng = setting.means(seed), np.random.default_rng([seed, 17])
        epoch = CachedEpoch(setting, means, Contract(BEGINS + n_windows))
        for each in found.values():
            each.append(np.full((n_windows, setting.n_clusters), np.nan))
        for index in range(BEGINS + n_windows):
            epoch.window(setting.rows(means, rng), None, key_of("calm", setting.name, seed, index))
            if index >= BEGINS:
                for each, scores in zip(
                    found.values(), (epoch.scores(), epoch.scores_within(setting.spread)), strict=True
                ):
                    each[-1][index - BEGINS] = scores
    return [Alarms(name=f"{setting.name}, {name}", scores=np.array(each)) for name, each in found.items()]


def table(epochs: int, n_windows: int, n_rows: int) -> list[str]:
    """False alarms of both settings; the wide one has a twentieth of the windows."""
    wide, narrow = (dataclasses.replace(each, n_rows=n_rows) for each in SETTINGS)
    alarms = [*calm(narrow, epochs, n_windows), *calm(wide, max(1, epochs // 4), max(2, n_windows // 5))]
    return [
        f"{n_rows:,} rows a window, 10 clusters, memory 30 (short memory 5), band 16, epsilon {EPSILON:g}, delta "
        f"{DELTA:g}. Target: at most {1000 * TARGET:g} in 1,000 for each cluster. A standard normal number passes the "
        f"threshold {MEMORY_DRIFT_SCORE:g} {1000 * scipy.stats.norm.sf(MEMORY_DRIFT_SCORE):.2f} times in 1,000.",
        "",
        "| data, and margin for chance among rows | scores of a cluster in a window | false alarms | in 1,000 | 95% "
        "interval | windows that count as one | mean, stddev of scores | largest |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(each.line for each in alarms),
        "",
        "Intervals are those of Clopper and Pearson for as many independent scores as the correlation of neighboring "
        "windows leaves.",
    ]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--windows", type=int, default=250, help="of an epoch, after the first 30")
    parser.add_argument("--rows", type=int, default=100_000, help="of a window")
    parser.add_argument("--moving", type=int, default=5, help="draws of clusters that move")
    given = parser.parse_args()
    with threadpool_limits(limits=1):
        lines = machine.heading("False alarms of the drift score, and how soon it detects")
        lines += ["## Nothing moves", "", *table(given.epochs, given.windows, given.rows)]
        lines += ["", "## Clusters that move", "", *moving(given.moving, n_rows=given.rows, kind=CachedEpoch)]
    measurement.show(lines, given.out)


if __name__ == "__main__":
    main()
