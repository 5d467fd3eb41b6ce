"""Releases as rows of `releases.parquet`."""

import numpy as np
import pyarrow as pa

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Role, meaning_of

RELEASE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("tells", pa.string(), nullable=False),
        pa.field("role", pa.string(), nullable=False),
        pa.field("quantity", pa.string(), nullable=False),
        pa.field("settles", pa.bool_(), nullable=False),
        pa.field("shape", pa.list_(pa.int64()), nullable=False),
        pa.field("mechanism", pa.string(), nullable=False),
        pa.field("geometry", pa.string(), nullable=False),
        pa.field("noise_multiplier", pa.float64(), nullable=False),
        pa.field("sensitivity", pa.float64(), nullable=False),
        pa.field("sensitivity_lattice", pa.int64(), nullable=False),
        pa.field("noise_stddev_lattice", pa.float64(), nullable=False),
        pa.field("lattice_unit", pa.float64(), nullable=False),
        pa.field("values_lattice", pa.list_(pa.int64()), nullable=False),
    ]
)


def releases_to_table(releases: list[Release]) -> pa.Table:
    """Returns the table of `releases.parquet`, in the given order."""
    rows = [
        {
            "path": release.path,
            "tells": meaning_of(release.plan.spec).tells,
            "role": str(meaning_of(release.plan.spec).role),
            "quantity": str(meaning_of(release.plan.spec).quantity),
            "settles": meaning_of(release.plan.spec).settles,
            "shape": list(release.plan.spec.shape),
            "mechanism": str(release.plan.spec.mechanism),
            "geometry": str(release.plan.spec.geometry),
            "noise_multiplier": release.plan.noise_multiplier,
            "sensitivity": release.plan.spec.sensitivity * release.lattice_unit,
            "sensitivity_lattice": release.plan.spec.sensitivity,
            "noise_stddev_lattice": release.plan.noise_stddev,
            "lattice_unit": release.lattice_unit,
            "values_lattice": release.values.ravel(),
        }
        for release in releases
    ]
    return pa.Table.from_pylist(rows, schema=RELEASE_SCHEMA)


def releases_from_table(table: pa.Table) -> tuple[Release, ...]:
    """Inverse of `releases_to_table`.

    `ReleaseSpec.share` (NaN here) and `Meaning.replaced` are not stored.
    """
    releases = []
    for row, listed in zip(table.drop_columns(["values_lattice"]).to_pylist(), table["values_lattice"], strict=True):
        spec = ReleaseSpec(
            name=row["path"].rsplit("/", 1)[-1],
            shape=tuple(row["shape"]),
            mechanism=Mechanism(row["mechanism"]),
            sensitivity=row["sensitivity_lattice"],
            share=float("nan"),
            geometry=Geometry(row["geometry"]),
            meaning=Meaning(
                tells=row["tells"],
                role=Role(row["role"]),
                quantity=Quantity(row["quantity"]),
                settles=row["settles"],
            ),
        )
        values = np.array(listed.values, dtype=np.int64).reshape(spec.shape)
        plan = ReleasePlan(spec=spec, noise_multiplier=row["noise_multiplier"])
        releases.append(Release(path=row["path"], plan=plan, values=values, lattice_unit=row["lattice_unit"]))
    return tuple(releases)
