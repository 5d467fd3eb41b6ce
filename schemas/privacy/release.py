"""The only type that may be broadcast, published or returned."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.privacy.plan import Geometry, Meaning, Mechanism, Quantity, ReleasePlan, ReleaseSpec, Role

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """One noised aggregate as it left the noise stage.

    Attributes:
      path: full release path, round path + "/" + name.
      plan: what was promised: shape, mechanism, sensitivity, noise multiplier.
      values: int64, shape `plan.spec.shape`, lattice units, noise included.
      lattice_unit: feature units of one lattice step; NaN until the server step that knows it sets it.
    """

    path: str
    plan: ReleasePlan
    values: NDArray[np.int64]
    lattice_unit: float = float("nan")

    def with_unit(self, lattice_unit: float) -> "Release":
        """The same release with the meaning of one lattice step."""
        return dataclasses.replace(self, lattice_unit=lattice_unit)

    @property
    def meaning(self) -> Meaning:
        """What it says."""
        return self.plan.spec.meaning

    @property
    def decoded(self) -> NDArray[np.float64]:
        """`values` in feature units (or rows, for counts); NaN while the unit is not known."""
        return self.values.astype(np.float64) * self.lattice_unit

    @property
    def stddev(self) -> float:
        """Noise stddev of one coordinate in feature units (diagonal entries if SYMMETRIC)."""
        return self.plan.noise_stddev * self.lattice_unit


def releases_to_table(releases: list[Release]) -> pa.Table:
    """Rows of `releases.parquet`, in the given order."""
    rows = [
        {
            "path": release.path,
            "tells": release.meaning.tells,
            "role": str(release.meaning.role),
            "quantity": str(release.meaning.quantity),
            "settles": release.meaning.settles,
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
    """Inverse of `releases_to_table`; shares of the budget are not recorded and come back as NaN.

    Nor is what sensitivities were made from: `Meaning.replaced` does not come back.
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


class MaskedSum(NamedTuple):
    """The sum of masked messages; uniform on Z_2^64 to anyone without the masks.

    Attributes:
      values: int64, shape (size,), wrapping.
      senders: pseudonyms of those who were present.
      tags: of their messages, in the same order.
    """

    values: NDArray[np.int64]
    senders: tuple[bytes, ...]
    tags: tuple[bytes, ...]


class MaskedReleases(NamedTuple):
    """The noised masked sum: nothing to read before the masks of those present are subtracted.

    Attributes:
      releases: of one round; `values` are masked.
      senders: pseudonyms of those who were present, the final set of the round.
      tags: of their messages, in the same order.
    """

    releases: tuple[Release, ...]
    senders: tuple[bytes, ...]
    tags: tuple[bytes, ...]
