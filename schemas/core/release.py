"""A noised aggregate: the only type that may be broadcast, published or returned."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import ReleasePlan


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """One noised aggregate as it left the noise stage.

    Attributes:
      path: full release path, round path + "/" + name.
      plan: shape, mechanism, sensitivity and noise multiplier.
      values: int64, shape `plan.spec.shape`, lattice units, noise included.
      lattice_unit: feature units of one lattice step; NaN until the server step that knows it sets it.
    """

    path: str
    plan: ReleasePlan
    values: NDArray[np.int64]
    lattice_unit: float = float("nan")

    def with_unit(self, lattice_unit: float) -> "Release":
        """Returns the same release with the size of one lattice step."""
        return dataclasses.replace(self, lattice_unit=lattice_unit)

    @property
    def decoded(self) -> NDArray[np.float64]:
        """`values` in feature units (or rows, for counts); NaN while the unit is unknown."""
        return self.values.astype(np.float64) * self.lattice_unit

    @property
    def stddev(self) -> float:
        """Noise stddev of one coordinate in feature units (diagonal entries if SYMMETRIC)."""
        return self.plan.noise_stddev * self.lattice_unit
