"""Plan of a profile: every noised aggregate, its sensitivity and its noise, before data are read."""

import dataclasses
import enum
import math
from typing import Any, NamedTuple

import pyarrow as pa

from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.privacy.statement import PrivacyStatement
from dapple_dp.schemas.profile.config import CategoricalColumn, NumericColumn, ProfileConfig

PROFILE_FILE = "profile.parquet"
PROFILE_SCHEMA = pa.schema(
    [
        pa.field("cluster", pa.int32(), nullable=False),
        pa.field("column", pa.string()),
        pa.field("statistic", pa.string(), nullable=False),
        pa.field("value", pa.string()),
        pa.field("noisy_value", pa.float64(), nullable=False),
        pa.field("noise_stddev", pa.float64()),
    ]
)
UNITS_PER_HALF_RANGE = 1 << 20
"""Half the public range of a numeric column in integer units, in which sums are computed."""
TREE_LEVELS = 4
"""Levels of the tree of noisy counts from which PipelineDP computes a column's percentiles in a cluster."""


class Statistic(enum.StrEnum):
    """Kinds of numbers in a profile.

    COUNT: rows of the cluster; with a column and a value, rows with that value.
    CLIENTS: clients with a row in the cluster; with a column and a value, clients with that value in the cluster.
    MEAN: of a column, in its unit.
    PERCENTILE: of a column, in its unit; `value` is the percentage.
    """

    COUNT = "count"
    CLIENTS = "clients"
    MEAN = "mean"
    PERCENTILE = "percentile"


class ProfileResult(NamedTuple):
    """Results of a run.

    Attributes:
      profile: table with schema `PROFILE_SCHEMA`.
      privacy: the guarantee.
      fingerprint: HMAC of the input's files under the run key.
    """

    profile: pa.Table
    privacy: PrivacyStatement
    fingerprint: str


def clusters_of(profile: pa.Table) -> list[dict[str, Any]]:
    """Groups a profile by cluster for reports and notebooks: sizes, means and percentiles by column, counts by value.

    Args:
      profile: table with schema `PROFILE_SCHEMA`.

    Returns:
      One mapping per cluster, in order: `cluster`, `sizes` {statistic: number}, `numeric` {column: {"mean" or "p25":
      number}}, `categorical` {column: {value: number}}, values in descending order of their numbers.
    """
    clusters: dict[int, dict[str, Any]] = {}
    for row in profile.to_pylist():
        cluster = clusters.setdefault(
            row["cluster"], {"cluster": row["cluster"], "sizes": {}, "numeric": {}, "categorical": {}}
        )
        column, statistic, number = row["column"], row["statistic"], row["noisy_value"]
        if column is None:
            cluster["sizes"][statistic] = number
        elif statistic in (Statistic.MEAN, Statistic.PERCENTILE):
            name = "mean" if statistic == Statistic.MEAN else f"p{row['value']}"
            cluster["numeric"].setdefault(column, {})[name] = number
        else:
            cluster["categorical"].setdefault(column, {})[row["value"]] = number
    for cluster in clusters.values():
        for column, counts in cluster["categorical"].items():
            cluster["categorical"][column] = dict(sorted(counts.items(), key=lambda item: -item[1]))
    return [clusters[index] for index in sorted(clusters)]


class ProfileLaw(enum.StrEnum):
    """Noise distributions of PipelineDP."""

    GAUSSIAN = "pipeline_dp_gaussian"
    LAPLACE = "pipeline_dp_laplace"
    GAUSSIAN_THRESHOLD = "pipeline_dp_gaussian_threshold"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEvent:
    """One mechanism of a profile.

    Attributes:
      path: unique in the run, for example "profile/means/age".
      law: distribution of the noise.
      shape: shape of the noised array; None if the number of values is private.
      sensitivity: largest change by one privacy unit, in L2 (L1 for Laplace noise), in the unit of the sums.
      share: > 0; part of the budget, relative to the other events.
      noise_multiplier: stddev of the noise / sensitivity (scale / sensitivity for Laplace noise); NaN before
        calibration.
      threshold_delta: probability that a value of a single privacy unit passes the threshold; part of delta.
    """

    path: str
    law: ProfileLaw
    shape: tuple[int, ...] | None
    sensitivity: float
    share: float
    noise_multiplier: float = math.nan
    threshold_delta: float = 0.0

    @property
    def noise_stddev(self) -> float:
        """Stddev of the noise of one number, in the unit of the sums."""
        return self.normalized_stddev * self.sensitivity

    @property
    def normalized_stddev(self) -> float:
        """Ratio of the noise stddev to the sensitivity, for either law."""
        return self.noise_multiplier * (math.sqrt(2.0) if self.law is ProfileLaw.LAPLACE else 1.0)

    def to_json(self) -> dict[str, Any]:
        """Returns one row of `privacy.json`."""
        return {
            "path": self.path,
            "mechanism": str(self.law),
            "geometry": "vector",
            "shape": None if self.shape is None else list(self.shape),
            "sensitivity": self.sensitivity,
            "noise_multiplier": self.noise_multiplier,
            "noise_stddev": self.noise_stddev,
            "threshold_delta": self.threshold_delta,
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePlan:
    """A calibrated profile.

    Attributes:
      unit: privacy unit; neighbors add or remove one.
      epsilon: spent by all events together.
      delta: spent by all events together, thresholds included.
      n_clusters: number of clusters in the model.
      unit_rows: largest number of rows of one privacy unit that count.
      rate: public share of units that are sampled for percentiles.
      numeric: columns with means.
      categorical: columns with histograms.
      events: in the order of accounting.
    """

    unit: PrivacyUnit
    epsilon: float
    delta: float
    n_clusters: int
    unit_rows: int
    rate: float
    numeric: dict[str, NumericColumn]
    categorical: dict[str, CategoricalColumn]
    events: tuple[ProfileEvent, ...]

    @property
    def by_client(self) -> bool:
        """True if the privacy unit is the client."""
        return self.unit is PrivacyUnit.CLIENT

    @property
    def sized_by(self) -> Statistic:
        """The statistic that counts privacy units."""
        return Statistic.CLIENTS if self.by_client else Statistic.COUNT

    def event(self, path: str) -> ProfileEvent:
        """Returns the event with that path; raises KeyError."""
        for event in self.events:
            if event.path == path:
                return event
        raise KeyError(path)

    @property
    def sums(self) -> tuple[ProfileEvent, ...]:
        """Events that noise exact sums, in the order of their coordinates in the joint vector."""
        return tuple(event for event in self.events if _is_sum(event))

    @property
    def size(self) -> int:
        """Number of coordinates of all exact sums together."""
        return sum(math.prod(event.shape or ()) for event in self.sums)


COUNT = "profile/sizes/count"
CLIENTS = "profile/sizes/clients"


def mean_path(column: str) -> str:
    """Returns the path of the sums behind the means of a column."""
    return f"profile/means/{column}"


def percentile_path(column: str) -> str:
    """Returns the path of the trees behind the percentiles of a column."""
    return f"profile/percentiles/{column}"


def histogram_path(column: str) -> str:
    """Returns the path of the counts of a column's values."""
    return f"profile/histograms/{column}"


def selection_path(column: str) -> str:
    """Returns the path of the selection of values to release, for a vocabulary that isn't public."""
    return f"profile/selections/{column}"


def _is_sum(event: ProfileEvent) -> bool:
    """Returns whether the event noises exact sums over a public set of cells."""
    return event.shape is not None and not event.path.startswith("profile/percentiles/")


_Mechanism = tuple[str, ProfileLaw, tuple[int, ...] | None, float]
_Group = tuple[float, list[_Mechanism]]
"""Share of the budget, and the mechanisms that split it: path, law, shape, sensitivity."""


def uncalibrated(config: ProfileConfig, n_clusters: int, percentile_law: ProfileLaw) -> ProfilePlan:
    """Returns the plan of a job without noise multipliers.

    One row changes one count by 1, one sum by at most half the range, and on each level of one tree one count by 1.
    So m rows change any of them by at most m in L2 and in L1, times the unit; if they are in several clusters, by less.
    Each value and cluster of a client is counted once, so m rows change such counts by 1 in at most m cells.

    Args:
      config: settings of the job.
      n_clusters: number of clusters in the model.
      percentile_law: noise of the trees, Gaussian or Laplace.
    """
    groups = (
        _sizes(config, n_clusters),
        _means(config, n_clusters),
        _percentiles(config, n_clusters, percentile_law),
        _histograms(config, n_clusters),
    )
    events = [
        ProfileEvent(path=path, law=law, shape=shape, sensitivity=sensitivity, share=share / len(group))
        for share, group in groups
        for path, law, shape, sensitivity in group
    ]
    return ProfilePlan(
        unit=config.privacy.unit,
        epsilon=config.privacy.epsilon,
        delta=config.privacy.delta,
        n_clusters=n_clusters,
        unit_rows=config.unit_rows,
        rate=config.rate,
        numeric=config.profile.numeric,
        categorical=config.profile.categorical,
        events=tuple(events),
    )


def _sizes(config: ProfileConfig, n_clusters: int) -> _Group:
    shape, rows = (n_clusters,), config.unit_rows
    sizes: _Group = config.profile.shares.sizes, [(COUNT, ProfileLaw.GAUSSIAN, shape, float(rows))]
    if config.by_client:
        sizes[1].append((CLIENTS, ProfileLaw.GAUSSIAN, shape, math.sqrt(min(rows, n_clusters))))
    return sizes


def _means(config: ProfileConfig, n_clusters: int) -> _Group:
    moved = float(config.unit_rows * UNITS_PER_HALF_RANGE)
    columns = config.profile.numeric
    return config.profile.shares.means, [
        (mean_path(name), ProfileLaw.GAUSSIAN, (n_clusters,), moved) for name in columns
    ]


def _percentiles(config: ProfileConfig, n_clusters: int, law: ProfileLaw) -> _Group:
    """Returns the trees of noisy counts, for the numeric columns with percentiles."""
    levels = math.sqrt(TREE_LEVELS) if law is ProfileLaw.GAUSSIAN else float(TREE_LEVELS)
    columns = [name for name, column in config.profile.numeric.items() if column.percentiles]
    return config.profile.shares.percentiles, [
        (percentile_path(name), law, (n_clusters,), levels * config.unit_rows) for name in columns
    ]


def _histograms(config: ProfileConfig, n_clusters: int) -> _Group:
    """Returns the counts of values, after the selection of values if the vocabulary isn't public."""
    result: _Group = config.profile.shares.histograms, []
    for name, column in config.profile.categorical.items():
        shape = None if column.values is None else (n_clusters, len(column.values))
        cells = config.unit_rows if shape is None else min(config.unit_rows, math.prod(shape))
        if shape is None:
            result[1].append((selection_path(name), ProfileLaw.GAUSSIAN_THRESHOLD, None, math.sqrt(cells)))
        result[1].append((histogram_path(name), ProfileLaw.GAUSSIAN, shape, math.sqrt(cells)))
    return result
