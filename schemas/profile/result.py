"""The released description of clusters, one row per number, and what it says of a cluster."""

import enum
from typing import Any, NamedTuple

import pyarrow as pa

from schemas.privacy.statement import PrivacyStatement

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


class Statistic(enum.StrEnum):
    """What a number of a profile is.

    COUNT: rows of the cluster; with a column and a value, rows with that value.
    CLIENTS: clients with a row in the cluster; with a column and a value, clients with that value in the cluster.
    MEAN: of a column, in its unit.
    PERCENTILE: of a column, in its unit; `value` says which.
    """

    COUNT = "count"
    CLIENTS = "clients"
    MEAN = "mean"
    PERCENTILE = "percentile"


class ProfileResult(NamedTuple):
    """What a run releases.

    Attributes:
      profile: of `PROFILE_SCHEMA`.
      privacy: the guarantee.
      fingerprint: HMAC of the input's files under the run key.
    """

    profile: pa.Table
    privacy: PrivacyStatement
    fingerprint: str


def clusters_of(profile: pa.Table) -> list[dict[str, Any]]:
    """A profile by cluster, for reports and notebooks: sizes, means and percentiles by column, counts by value.

    Args:
      profile: of `PROFILE_SCHEMA`.

    Returns:
      One mapping per cluster, in order: `cluster`, `sizes` {statistic: number}, `numeric` {column: {"mean" or "p25":
      number}}, `categorical` {column: {value: number}}, values in descending order of their numbers.
    """
    found: dict[int, dict[str, Any]] = {}
    for row in profile.to_pylist():
        cluster = found.setdefault(
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
    for cluster in found.values():
        for column, counts in cluster["categorical"].items():
            cluster["categorical"][column] = dict(sorted(counts.items(), key=lambda item: -item[1]))
    return [found[index] for index in sorted(found)]
