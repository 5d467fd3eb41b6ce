"""What FedDP-Init knows besides: which server points take part, and the subspace of the clusters."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from transforms.kmeans.lloyd.state import MeansState
from transforms.numerics.statistics import assignment
from transforms.numerics.statistics.assignment import Projection


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FedDPState(MeansState):
    """`MeansState`, whose assigner has the active server points as bins, in order, before the centers are known.

    Attributes:
      active: shape (q,): server points that still take part.
      frozen: shape (q,): server points frozen by thinning.
      projection: to the subspace of the clusters, after the outer-product round.
    """

    active: NDArray[np.bool_]
    frozen: NDArray[np.bool_]
    projection: Projection | None = None

    @classmethod
    def of(cls, start: MeansState) -> "FedDPState":
        """A start in which every server point takes part."""
        known = {field.name: getattr(start, field.name) for field in dataclasses.fields(start)}
        everything = np.ones(len(start.server), dtype=np.bool_)
        return cls(**known, active=everything, frozen=~everything)

    def projected_server(self) -> NDArray[np.float64]:
        """Server points in the projected space, integers, shape (q, n_dims)."""
        if self.projection is None:
            raise ValueError("projected_server must be asked for after the outer-product round; run that round first.")
        return assignment.project(self.server_integers(), self.projection)
