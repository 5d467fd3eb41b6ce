"""State of FedDP-Init: `MeansState` with the space in which it clusters server points."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import assignment
from dapple_dp.transforms.core.statistics.assignment import Projection
from dapple_dp.transforms.kmeans.lloyd.state import MeansState


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FedDPState(MeansState):
    """`MeansState`, whose assigner has the server points as bins, in order, before the centers are known.

    Attributes:
      projection: to the subspace of the clusters, after the outer-product round; None in full space.
      in_full_space: True if the start uses no subspace, and no outer product is released.
    """

    projection: Projection | None = None
    in_full_space: bool = False

    @classmethod
    def of(cls, start: MeansState, *, in_full_space: bool) -> "FedDPState":
        """Creates a start from public data."""
        known = {field.name: getattr(start, field.name) for field in dataclasses.fields(start)}
        return cls(**known, in_full_space=in_full_space)

    def projected_server(self) -> NDArray[np.float64]:
        """Returns server points in the space of the start, integers, shape (q, n_dims); unchanged in full space."""
        if self.in_full_space:
            return self.server_integers()
        if self.projection is None:
            raise ValueError("projected_server depends on the outer products; run that round first.")
        return assignment.project(self.server_integers(), self.projection)
