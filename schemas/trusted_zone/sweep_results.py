"""Outputs of a sweep: a row per cell, and a row per point of its curves. They are not private."""

import pyarrow as pa

from dapple_dp.schemas.trusted_zone.metrics import NOT_PRIVATE_METADATA

CELL_SCHEMA = pa.schema(
    [
        pa.field("method", pa.string(), nullable=False),
        pa.field("settings", pa.string(), nullable=False),
        pa.field("epsilon", pa.float64()),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("n_clusters", pa.int32(), nullable=False),
        pa.field("cost", pa.float64(), nullable=False),
        pa.field("epsilon_spent", pa.float64()),
        pa.field("delta", pa.float64()),
        pa.field("cell", pa.string(), nullable=False),
    ],
    metadata=NOT_PRIVATE_METADATA,
)
"""`results.parquet`: cost is the mean squared distance to the nearest center, feature units squared, over the rows
that the fits read. Columns on the budget are null for methods without privacy."""

SCORE_COLUMNS = ("silhouette", "calinski_harabasz", "davies_bouldin", "adjusted_rand", "fowlkes_mallows")
"""Further columns of `results.parquet` if `sweep.evaluate` is given; null if a score is undefined."""
SCORED_CELL_SCHEMA = pa.schema(
    [*CELL_SCHEMA, *(pa.field(name, pa.float64()) for name in SCORE_COLUMNS)], metadata=NOT_PRIVATE_METADATA
)

POINT_SCHEMA = pa.schema(
    [
        pa.field("method", pa.string(), nullable=False),
        pa.field("settings", pa.string(), nullable=False),
        pa.field("epsilon", pa.float64()),
        pa.field("n_seeds", pa.int64(), nullable=False),
        pa.field("cost", pa.float64(), nullable=False),
        pa.field("cost_low", pa.float64(), nullable=False),
        pa.field("cost_high", pa.float64(), nullable=False),
        pa.field("on_front", pa.bool_(), nullable=False),
        pa.field("auc", pa.float64()),
        pa.field("auc_low", pa.float64()),
        pa.field("auc_high", pa.float64()),
    ],
    metadata=NOT_PRIVATE_METADATA,
)
"""`summary.parquet`: mean over seeds with a 95% interval; `on_front` among the settings of one method; `auc` of
the curve of method and settings over epsilon, the same for all of its points, null if there is no curve."""


def cell_schema(*, scored: bool) -> pa.Schema:
    """Returns the columns of `results.parquet`; `scored` if `sweep.evaluate` is given."""
    return SCORED_CELL_SCHEMA if scored else CELL_SCHEMA
