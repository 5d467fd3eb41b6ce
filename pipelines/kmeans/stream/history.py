"""Released numbers of a stream's windows for its page; never private rows."""

import dataclasses
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.jobs.stream_config import StreamConfig
from dapple_dp.schemas.kmeans.recurring.drift import DRIFT_FILE
from dapple_dp.schemas.kmeans.recurring.remembered import MEMORY_FILE, MEMORY_SCHEMA
from dapple_dp.schemas.settings.format_number import NAME, check_number
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, ModelManifest, Spent
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.numerics.kmeans.recurring.windows import own_noise

LAST = 50
"""Number of most recent windows that are always shown."""
_MOST_OVERALL = 100
"""Largest number of windows drawn for a whole epoch, besides the last one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShownWindow:
    """Released numbers of one window, by cluster number.

    Attributes:
      index: index of the window, 0 for the first of the epoch.
      date: date of the window.
      centers: shape (d,) each, feature units.
      sizes: noisy rows, or noisy weight of clients.
      noise: noise stddev of the remembered mean, feature units; None if unknown.
      scores: drift score; None if unknown.
    """

    index: int
    date: str
    centers: dict[int, NDArray[np.float64]]
    sizes: dict[int, float]
    noise: dict[int, float | None]
    scores: dict[int, float | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """Windows shown on a page.

    Attributes:
      windows: the n >= 1 windows, in order; the last one is the latest complete window.
      every: windows before the last `LAST` are shown if their index is a multiple of this.
      size_stddevs: shape (n,): noise stddev of a size in each window.
      features: names of the d features.
      units: shape (d,): length of a feature's step in the unit of its column; None if features are in column units
        already, or a column became several features.
      unit_words: unit of lengths across features, in words.
      starts: shape (d,): zero of each feature, in the unit of its column.
      first: date of the first window of the epoch.
      days: days between the dates of two windows.
      epsilon: epsilon of the epoch, as stated by the last window.
      delta: delta of the epoch, as stated by the last window.
    """

    windows: tuple[ShownWindow, ...]
    every: int
    size_stddevs: NDArray[np.float64]
    features: tuple[str, ...]
    units: NDArray[np.float64] | None
    unit_words: str
    starts: NDArray[np.float64]
    first: str
    days: int
    epsilon: float
    delta: float

    @property
    def last(self) -> ShownWindow:
        """The last window."""
        return self.windows[-1]

    @property
    def x(self) -> NDArray[np.float64]:
        """Indices of the windows, shape (n,)."""
        return np.array([window.index for window in self.windows], dtype=np.float64)

    def largest(self, most: int) -> list[int]:
        """Numbers of the clusters with the largest noisy sizes in the last window, ascending."""
        sizes = self.last.sizes
        return sorted(sorted(sizes, key=lambda number: (-sizes[number], number))[:most])

    def values(self, field: str, number: int) -> NDArray[np.float64]:
        """Values of a field for one cluster in each window, shape (n,); NaN if unknown."""
        found = [getattr(window, field).get(number) for window in self.windows]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    def path(self, number: int) -> NDArray[np.float64]:
        """Center of a cluster in each window, shape (n, d), feature units; NaN if the window has no such cluster."""
        unknown = np.full(len(self.features), np.nan)
        return np.stack([window.centers.get(number, unknown) for window in self.windows])

    def in_units(self, number: int, feature: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coordinate of a center in each window and its noise stddev, both in the unit of the column.

        The noise of a center is spread evenly over all features.
        """
        unit = 1.0 if self.units is None else float(self.units[feature])
        noise = self.values("noise", number) / np.sqrt(len(self.features))
        return self.starts[feature] + self.path(number)[:, feature] * unit, noise * unit

    @property
    def overall(self) -> "History":
        """The whole epoch so far: every `every`th window and the last one."""
        return self._part([window.index % self.every == 0 or window is self.last for window in self.windows])

    @property
    def recent(self) -> "History | None":
        """The last `LAST` windows; None if all windows are shown anyway."""
        if self.every == 1:
            return None
        return self._part([window.index > self.last.index - LAST for window in self.windows])

    def _part(self, kept: list[bool]) -> "History":
        windows = tuple(itertools.compress(self.windows, kept))
        return dataclasses.replace(self, windows=windows, size_stddevs=self.size_stddevs[kept])

    @property
    def thinning(self) -> str:
        """Sentence on which windows the page shows."""
        if self.every == 1:
            return "The page shows all windows."
        return f"The page shows the last {LAST} windows, and one window in {self.every} of the whole epoch."


def thinned(done: int) -> tuple[list[int], int]:
    """Returns the indices of the windows to show, ascending, and the step among the older ones.

    The step is a power of two, so an older window that one page leaves out stays out of all later pages.

    Args:
      done: number of complete windows, at least 1.
    """
    every = 1
    while -(-done // every) > _MOST_OVERALL:
        every *= 2
    return [index for index in range(done) if index % every == 0 or index >= done - LAST], every


def read_history(config: StreamConfig, output: str, done: int) -> History:
    """Reads the history of a stream from its output folder.

    Args:
      config: the job.
      output: folder of the job.
      done: number of complete windows, at least 1.

    Raises:
      InputError: if a file of a window differs from the released one.
    """
    indices, every = thinned(done)
    folder = join(output, config.calendar.date(done - 1))
    path, refusal = _found(folder, "run.json")
    manifest = untrusted.read_json(path, ModelManifest, refusal)
    features = tuple(manifest.features)
    with refusal.covers():
        starts, units = _units(manifest)
    path, refusal = _found(folder, "privacy.json")
    spent = untrusted.read_json(path, Spent, refusal)
    windows = tuple(
        _window(join(output, config.calendar.date(index)), index, config.calendar.date(index), len(features))
        for index in indices
    )
    return History(
        windows=windows,
        every=every,
        size_stddevs=_size_stddevs(config, folder, done)[indices],
        features=_named(config, features),
        units=units,
        unit_words="feature units" if manifest.encoding is None else "encoded units",
        starts=starts,
        first=config.options.first,
        days=config.options.days,
        epsilon=spent.epsilon,
        delta=spent.delta,
    )


def _units(manifest: ModelManifest) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Zeros and step lengths of features, in the units of their columns."""
    ends = np.array([[0.0], [1.0]]) * np.ones(len(manifest.features))
    found = None if manifest.encoding is None else Encoder.from_json(manifest.encoding).in_units(ends)
    return (ends[0], None) if found is None else (found[0], found[1] - found[0])


def _named(config: StreamConfig, features: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the features on pages."""
    named = config.template.data.feature_names
    return features if named is None or len(named) != len(features) else named


def _found(folder: str, name: str) -> tuple[str, Refusal]:
    path = join(folder, name)
    rule = f"{path} must be the file that the window released"
    return path, Refusal(kind=InputError, rule=rule, remedy="restore it")


def _window(folder: str, index: int, date: str, n_features: int) -> ShownWindow:
    """Reads the window in a folder."""
    path, refusal = _found(folder, CENTERS_FILE)
    table = untrusted.read_table(path, refusal, TableForm.by_size())
    with refusal.covers():
        numbers, sizes, lists = (table.column(name).to_pylist() for name in ("cluster", "noisy_size", "center"))
        centers = np.array(lists, dtype=np.float64).reshape(len(numbers), n_features)
    path, refusal = _found(folder, DRIFT_FILE)
    drift = untrusted.read_json(path, dict[str, Any], refusal)
    with refusal.covers():
        check_number(drift.get(NAME))
        clusters = drift["memory"]["clusters"]
        noise, scores = ({int(each["cluster"]): each[name] for each in clusters} for name in ("noise", "score"))
    return ShownWindow(
        index=index,
        date=date,
        centers=dict(zip(numbers, centers, strict=True)),
        sizes=dict(zip(numbers, sizes, strict=True)),
        noise=noise,
        scores=scores,
    )


def _size_stddevs(config: StreamConfig, folder: str, done: int) -> NDArray[np.float64]:
    """Noise stddev of a size in each window of the epoch so far, shape (done,).

    All windows have the same job, so their releases have the same noise. The noise of a window's own part grows a
    little, since it is computed from the windows before it.
    """
    path, refusal = _found(folder, MEMORY_FILE)
    table = untrusted.read_table(path, refusal, TableForm.by_size(MEMORY_SCHEMA))
    with refusal.covers():
        stddev = float(table.column("count_stddev")[0].as_py())
    return stddev * own_noise(config.template.weights, done)
