"""What a sweep writes: a row per cell, and a row per point of its curves. None of it is private."""

import pyarrow as pa

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
    metadata={"private": "false", "label": "evaluation (not private)"},
)
"""`results.parquet`: cost is the mean squared distance of all rows to their nearest center, feature units squared."""

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
    metadata=CELL_SCHEMA.metadata,
)
"""`summary.parquet`: mean over seeds with a 95% interval; `on_front` among the settings of one method; `auc` of the
curve of method and settings, the same in all its points."""
