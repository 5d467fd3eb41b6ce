"""Epochs of windows: clusters that move, clients that come daily or seldom, and ten thousand windows in a row.

Rounds, statistics, rolls, noise and server steps are those of the job `stream`, run in this process on arrays.

    python -m benchmarks.continual_windows --out benchmarks/results/continual_windows.md
    python -m benchmarks.continual_windows --soak 10000 --out benchmarks/results/continual_soak.md
"""

import collections
import dataclasses
import resource
import time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement
from benchmarks.continual import DELTA, EPSILON, SETTINGS, Rows, Setting, cost_of, key_of
from schemas.kmeans.recurring.remembered import MEMORY_DRIFT_SCORE, Memory
from schemas.privacy.plan import PrivacyUnit
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.protocols import PROTOCOLS
from transforms.kmeans.windows import rounds as windows
from transforms.kmeans.windows import server as server
from transforms.kmeans.windows.state import WindowState
from transforms.numerics.kmeans.recurring.memory import drift_scores, memory_of, most_runs, recalled
from transforms.numerics.privacy.noise import draw_release
from transforms.numerics.tables.participation import Counted, Rule
from transforms.privacy import accounting
from transforms.rounds.protocol import Round
from transforms.tables.counted_clients import Roll, salted_digests

SALT = bytes(range(32))
SEPARATED = SETTINGS[1]


class Contract(NamedTuple):
    """An epoch: its memory and band, and at client level how often a client counts; 0 times at record level."""

    n_windows: int
    memory: int = 30
    band: int = 16
    times: int = 0
    separation: int = 0


class Epoch:
    """Windows of one epoch; of rows it holds those of the last `band` windows."""

    def __init__(self, setting: Setting, start: Rows, contract: Contract):
        epoch: dict[str, Any] = {"name": "e", "column": "dt", "first": "2026-01-01", "window": "2026-01-01"}
        epoch |= {"windows": contract.n_windows, "band": contract.band}
        more: dict[str, Any] = {}
        if contract.times:
            epoch |= {"max_windows": contract.times, "min_separation": contract.separation}
            names = [f"x{index}" for index in range(setting.n_features)]
            more = {"privacy": {"unit": "client", "epsilon": EPSILON, "delta": DELTA}, "clipping": {"client_rows": 1}}
            more |= {"data": {"path": "none", "features": names, "name": "windows", "client_id": "who"}}
        else:
            epoch |= {"once": "made so"}
        more |= {"epoch": epoch, "recurring": {"previous": "none", "memory": contract.memory}}
        self.config = setting.config(algorithm="windows", **more)
        self.by_client = bool(contract.times)
        self.weights, self.length = self.config.weights, contract.memory
        unit = PrivacyUnit.CLIENT if self.by_client else PrivacyUnit.RECORD
        specs = windows.round_specs(self.config, setting.n_features)
        allocation = PROTOCOLS[self.config.algorithm].allocation(self.config)
        self.plan = accounting.calibrate(unit, specs, EPSILON, DELTA, allocation)
        self.centers, self.index, self.n_counted = start, 0, 0
        self.blocks: collections.deque[ClientBlock] = collections.deque(maxlen=contract.band)
        times, separation = self.config.epoch.times, self.config.epoch.separation
        self.rule = Rule(times, separation, contract.band, times < -(-contract.n_windows // separation))
        self.roll = Roll(facts={}, salt=SALT, kind="integers", counted=Counted.nobody())
        self.memory: Memory | None = None

    def window(self, rows: Rows, clients: NDArray[np.int64] | None, key: bytes) -> None:
        """Releases one window more; clients have a row each."""
        self.blocks.appendleft(self._block(rows, clients))
        state = server.initial_state(self.config.at(self.index), self.centers, self.memory)
        (bound,) = windows.rounds(self.config, self.plan)
        after = bound.step(state, draw_release(key, bound.plan, self._exact(bound, state)))
        one = memory_of(after.noisy, state.positions + after.noisy.means)
        self.memory = one if self.memory is None else self.memory.then(one, most_runs(self.length))
        found = recalled(self.memory, self.length, self.weights)
        self.noise = np.sqrt(found.variances(self.memory))
        self.centers = np.where(found.known[:, None], found.means, state.positions)
        self.index += 1

    def _exact(self, bound: Round, state: WindowState) -> NDArray[np.int64]:
        """What the window adds up, from rows that are read again as the job does it."""
        exact = np.zeros(bound.plan.size, dtype=np.int64)
        for block, date in zip(self.blocks, state.dates, strict=False):
            exact += bound.statistic(block, windows.state_at(state, f"lake/dt={date}/rows.parquet"))
        return exact

    def _block(self, rows: Rows, clients: NDArray[np.int64] | None) -> ClientBlock:
        """The rows that count."""
        if clients is None:
            self.n_counted += len(rows)
            return ClientBlock(rows)
        digests = salted_digests(pa.array(clients), SALT)
        counted = self.roll.counted.with_window(digests, self.index, self.rule)
        self.roll = dataclasses.replace(self.roll, counted=counted)
        kept = rows[np.isin(digests, counted.of(self.index))]
        self.n_counted += len(kept)
        return ClientBlock(kept, np.arange(len(kept) + 1))

    def scores(self) -> Rows:
        """Drift score of each cluster."""
        return drift_scores(self.memory, self.length, max(1, self.length // 6), 0.5, self.weights)

    @property
    def state_bytes(self) -> tuple[int, int]:
        """Bytes of what a window leaves to the next: its memory, and its roll as a file."""
        names = [field.name for field in dataclasses.fields(Memory)]
        released = sum(getattr(self.memory, name).nbytes for name in names)
        return released, len(self.roll.to_bytes()) if self.by_client else 0


def moving_means(means: Rows, later: int) -> Rows:
    """Means this many windows after they began to move: 0 walks, 1 splits at once, 2 dies and its rows go to 3."""
    found = means.copy()
    found[0] += 0.01 * later / means.shape[1] ** 0.5
    found[2] = found[3]
    split = means[1] + 0.3 / means.shape[1] ** 0.5
    return np.vstack([found, split])


def moving(seeds: int, before: int = 40, after: int = 30, n_rows: int = 20_000, kind: type[Epoch] = Epoch) -> list[str]:
    """One cluster walks by 0.01 a window, one splits, one dies."""
    setting = dataclasses.replace(SEPARATED, n_rows=n_rows)
    told: dict[str, list[str]] = {"walks": [], "splits": [], "dies": []}
    alarms, scored, lags, shares = 0, 0, [], []
    for seed in range(seeds):
        means, rng = setting.means(seed), np.random.default_rng([seed, 7])
        epoch, first = kind(setting, means, Contract(before + after)), dict[str, int]()
        for index in range(before + after):
            later = index - before + 1
            now = means if later <= 0 else moving_means(means, later)
            labels = rng.integers(0, len(means), setting.n_rows)
            if later > 0:
                labels = np.where((labels == 1) & (rng.random(len(labels)) < 0.5), len(means), labels)
            rows = now[labels] + rng.normal(0.0, setting.spread, (len(labels), setting.n_features))
            epoch.window(rows, None, key_of("moving", seed, index))
            scores = epoch.scores()
            if later <= 0:
                alarms += int((scores > MEMORY_DRIFT_SCORE).sum())
                scored += int(np.isfinite(scores).sum())
                continue
            for place, name in enumerate(told):
                is_told = scores[place] > MEMORY_DRIFT_SCORE if place < 2 else _halved(epoch, place)
                if is_told:
                    first.setdefault(name, later)
        lags.append(float(np.linalg.norm(epoch.centers[0] - now[0])))
        middle = 0.5 * (now[1] + now[-1])
        shares.append(float(np.linalg.norm(epoch.centers[1] - middle) / np.linalg.norm(middle - means[1])))
        for name, found in told.items():
            found.append(str(first.get(name, "never")))
    return [
        f"{setting.n_rows:,} rows a window, memory 30, band 16, {seeds} draws; all begins at window {before}.",
        "",
        "| what happens | detected after windows |",
        "| --- | --- |",
        f"| a cluster walks by 0.01 a window: drift score | {', '.join(told['walks'])} |",
        f"| a cluster splits, half of it by 0.3: drift score | {', '.join(told['splits'])} |",
        f"| a cluster dies: its own noisy count is below half of the remembered one | {', '.join(told['dies'])} |",
        "",
        f"False alarms before: {alarms} of {scored} scores (target: 1 of 1,000).",
        f"After {after} windows of {0.01:g} each the walking center is {np.mean(lags):.3f} behind; the center of the "
        f"split cluster has {1.0 - np.mean(shares):.0%} of its way to the middle of both halves behind it.",
    ]


def _halved(epoch: Epoch, place: int) -> bool:
    """Whether the last window has less than half of what windows have of a cluster on average in the memory."""
    counts = epoch.memory.counts[:, place]
    return bool(counts[-1] < 0.5 * counts[:-1].mean())


HABITS = {"every day": 2_000, "every 7th day": 14_000}
"""How many clients there are, of which 2,000 come a day."""


def clients(seeds: int, n_windows: int = 56) -> list[str]:
    """Clients of one row a day, at one epsilon for the epoch, which covers all rows of a client."""
    ways = {
        "every day": {
            "memory alone, all count": Contract(n_windows, band=1, times=n_windows, separation=1),
            "stream, 7 apart": Contract(n_windows, band=7, times=8, separation=7),
        },
        "every 7th day": {
            "memory alone, all count": Contract(n_windows, band=1, times=8, separation=7),
            "stream, 7 apart": Contract(n_windows, band=7, times=8, separation=7),
        },
    }
    lines = [
        "| 2,000 clients a day, each | way | rows that count | noise of a center | cost |",
        "| --- | --- | --- | --- | --- |",
    ]
    for habit, contracts in ways.items():
        for name, contract in contracts.items():
            found = np.array([_client_epoch(habit, contract, seed, name) for seed in range(seeds)])
            counted, noise, cost = found.mean(axis=0)
            error = found[:, 2].std(ddof=1) / seeds**0.5 if seeds > 1 else float("nan")
            lines.append(f"| {habit} | {name} | {counted:.0%} | {noise:.3f} | {cost:.4f} +/- {error:.4f} |")
    return lines


def _client_epoch(habit: str, contract: Contract, seed: int, name: str) -> tuple[float, float, float]:
    """Share of the rows that count, noise of a remembered mean, and cost over that of the true means."""
    setting, population = SEPARATED, HABITS[habit]
    means, rng = setting.means(seed), np.random.default_rng([seed, 8])
    start = means + np.random.default_rng([seed, 9]).normal(0.0, 0.03, means.shape)
    epoch, homes = Epoch(setting, start, contract), rng.integers(0, len(means), population)
    for index in range(contract.n_windows):
        who = np.flatnonzero(np.arange(population) % (population // 2_000) == index % (population // 2_000))
        rows = means[homes[who]] + rng.normal(0.0, setting.spread, (len(who), setting.n_features))
        epoch.window(rows, who, key_of("clients", seed, habit, name, index))
    share = epoch.n_counted / (contract.n_windows * 2_000)
    return share, float(np.mean(epoch.noise)), cost_of(setting, means, seed)(epoch.centers)


def soak(n_windows: int) -> list[str]:
    """Windows in a row of 500 clients, 200 of whom come a day: memory of the process and size of the state."""
    setting = dataclasses.replace(SEPARATED, n_features=4, n_clusters=4)
    means, rng = setting.means(0), np.random.default_rng(1)
    contract = Contract(n_windows, memory=7, band=7, times=n_windows // 8, separation=7)
    epoch = Epoch(setting, means, contract)
    lines = ["| window | peak memory of the process | released memory | roll | rows held | seconds |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    shown = {100, 1_000, n_windows} | {2_000, 5_000}
    begun = time.monotonic()
    for index in range(n_windows):
        who = np.sort(rng.choice(500, 200, replace=False))
        rows = means[who % 4] + rng.normal(0.0, setting.spread, (len(who), setting.n_features))
        epoch.window(rows, who, key_of("soak", index))
        if index + 1 in shown:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            released, roll = epoch.state_bytes
            held = sum(len(each.points) for each in epoch.blocks)
            seconds = time.monotonic() - begun
            lines.append(f"| {index + 1:,} | {peak:.1f} MiB | {released:,} B | {roll:,} B | {held} | {seconds:.0f} |")
    return lines


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--soak", type=int, default=0)
    arguments = parser.parse_args()
    with threadpool_limits(limits=1):
        if arguments.soak:
            lines = machine.heading(f"{arguments.soak:,} windows in a row")
            lines += [soak.__doc__ or "", "", *soak(arguments.soak)]
        else:
            lines = machine.heading("Epochs of windows: clusters that move, and clients")
            lines += [f"Epsilon {EPSILON:g}, delta {DELTA:g}.", "", "## Clusters that move", ""]
            lines += [*moving(arguments.seeds), "", "## Clients", "", *clients(arguments.seeds)]
    measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
