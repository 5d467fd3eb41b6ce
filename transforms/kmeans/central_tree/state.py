"""State between the rounds of the central tree: public parameters, releases, and what was computed from them."""

import dataclasses
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import Unit
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.tree_config import AUTO_DEPTH
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.lloyd.state import MeansSettings
from dapple_dp.transforms.numerics.kmeans import tree
from dapple_dp.transforms.numerics.kmeans.tree import Tree

MAX_OPEN = 256
"""Most nodes that one round divides."""
MAX_LEAVES = 512
"""Most leaves whose rows are summed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TreeSettings:
    """Public parameters for server steps and statistics, all from the job's config.

    Attributes:
      means: parameters that rounds of sums and counts read, too.
      depth: number of half-spaces.
    """

    means: MeansSettings
    depth: int

    @classmethod
    def from_config(cls, config: FitConfig) -> "TreeSettings":
        """Creates the settings of a job; without a `tree` section, the defaults of one."""
        options = config.tree if config.algorithm is Algorithm.CENTRAL_TREE else None
        return cls(
            means=MeansSettings.from_config(config),
            depth=AUTO_DEPTH if options is None else options.n_levels,
        )

    @property
    def n_leaves(self) -> int:
        """Public number of leaves whose rows are summed."""
        return min(MAX_LEAVES, 1 << self.depth)

    def n_open(self, step: int) -> int:
        """Public number of nodes that a round of splits divides; 0 after the last one."""
        widths = tree.widths(self.depth)
        return 0 if step >= len(widths) else min(MAX_OPEN, 1 << sum(widths[:step]))

    def n_cells(self, step: int) -> int:
        """Public number of cells of a round of splits."""
        return self.n_open(step) << tree.widths(self.depth)[step]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeState:
    """State that a round may broadcast; it depends on private rows only through `releases`.

    Attributes:
      settings: public parameters.
      frame: public frame of the run.
      n_rows: public or noisy number of rows (clients); None before it is known.
      bound: L2 norm of a unit's relative histogram over the next cells or leaves.
      server: shape (0, d): there are no server points.
      basis: shape (d, n_dims): the subspace in which leaves are compared; all of space without a first round.
      tree: divided so far; None before the half-spaces are known.
      open_counts: shape (n_open,): noisy counts of the nodes that the next round divides.
      leaf_counts: shape (n_leaves,): noisy counts of the leaves so far.
      releases: all so far, in order.
    """

    settings: TreeSettings
    frame: Frame
    server: NDArray[np.float64]
    basis: NDArray[np.float64]
    n_rows: float | None = None
    bound: float = 1.0
    tree: Tree | None = None
    open_counts: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.ones(1))
    leaf_counts: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    releases: tuple[Release, ...] = ()

    @property
    def centers(self) -> None:
        """None before the last round."""

    @property
    def positions(self) -> None:
        """None before the last round."""

    @property
    def move_stddevs(self) -> None:
        """None before the last round, since there are no centers."""

    @property
    def privacy_unit(self) -> Unit:
        """Unit that one neighbor adds or removes."""
        return self.settings.means.unit

    @property
    def cells(self) -> None:
        """None, since no histogram is released over cells of a grid."""

    def broadcast(self) -> "TreeState":
        """Returns the part of the state that statistics read: all but the releases."""
        return dataclasses.replace(self, releases=())

    @property
    def partition(self) -> Tree:
        """Cells or leaves of the next round."""
        if self.tree is None:
            raise ValueError(
                "the partition is unknown until the half-spaces are released; run the earlier rounds first."
            )
        return self.tree

    @property
    def unit(self) -> float:
        """Feature units of one lattice step in sums of rows, without the bound of clients."""
        return self.frame.lattice.unit(lattice.SUM_BITS)

    def model(self) -> NoReturn:
        """Raises ValueError: there is no clustering before the last round, whose step returns another state."""
        raise ValueError("the model is unknown until the leaf sums are released; run that round first.")
