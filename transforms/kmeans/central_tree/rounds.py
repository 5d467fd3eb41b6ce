"""The central tree as a list of rounds: a private tree over the data, means of its leaves, and k-means of these.

It needs no server data. A first round finds the principal subspace; each round of splits divides the cells of the tree
by a few more half-spaces and keeps those with large enough noisy counts, occupied or not; the last round adds up
the rows of the leaves. Source: Chang, Ghazi, Kumar, Manurangsi (2021), "Locally private k-means in one round"; this is
its tree of SimHash prefixes with a trusted aggregator. The subspace is that of Scott, Lampert, Saulpic (2025).
"""

import functools

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyPlan, ReleaseSpec, RoundPlan, RoundSpec
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, RowLabels
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.kmeans.central_tree import server as tree_server
from dapple_dp.transforms.kmeans.central_tree.state import TreeSettings, TreeState
from dapple_dp.transforms.kmeans.lloyd import rounds as lloyd
from dapple_dp.transforms.kmeans.lloyd.specs import (
    LENGTHS,
    MIDDLE,
    N_UNITS,
    allocation_as_asked,
    for_sampled_rows,
    histogram_of,
    scatter_spec,
    vector_spec,
)
from dapple_dp.transforms.numerics.kmeans import tree
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

NAME = "central_tree"
_LEAF_SUMS = Meaning(tells="where each leaf of the tree lies", quantity=Quantity.LENGTH)
_LEAF_COUNTS = histogram_of("how large each leaf is")
SHAPE_SHARES = {"scatter": 0.20, "sums": 0.01, "rows": 0.01}
"""Shares of the start's budget that find the subspace, the middle and the number of rows."""
CELLS_WEIGHT = 0.1
"""Weight of one round of splits, and of the leaves' counts; the leaves' sums have weight 1."""


def round_specs(config: FitConfig, n_features: int) -> tuple[RoundSpec, ...]:
    """Returns every release of a job with algorithm central_tree, before calibration; `n_features` is d."""
    refining = config.lloyd.share if config.lloyd.steps else 0.0
    quality = config.quality.share if config.quality else 0.0
    start = start_specs(config, n_features, 1.0 - refining - quality)
    return (*start, *lloyd.round_specs(config, n_features, refining))


def start_specs(config: FitConfig, n_features: int, total: float) -> tuple[RoundSpec, ...]:
    """Returns the releases of the tree, whose shares add up to `total`, for any protocol that starts with it."""
    settings = TreeSettings.from_config(config)
    shape = dict(SHAPE_SHARES)
    if config.data.public_rows is not None:
        shape.pop("rows", None)
    n_rounds = len(tree.widths(settings.depth))
    scale = total * (1.0 - sum(shape.values())) / (1.0 + CELLS_WEIGHT * (n_rounds + 1))
    light = CELLS_WEIGHT * scale
    specs = [_round("shape", *_shape_specs(n_features, {name: total * share for name, share in shape.items()}))]
    for step in range(n_rounds):
        specs.append(_round(f"splits_{step:02d}", _cells_spec(settings.n_cells(step), light)))
    leaves = (settings.n_leaves, n_features)
    sums = vector_spec("sums", leaves, scale, meaning=_LEAF_SUMS)
    specs.append(_round("leaves", sums, vector_spec("counts", leaves[:1], light, meaning=_LEAF_COUNTS)))
    return for_sampled_rows(config, specs)


def _shape_specs(n_features: int, shares: dict[str, float]) -> list[ReleaseSpec]:
    """Returns specs for the outer product, the sum and, unless it is public, the number of all rows."""
    specs = [
        scatter_spec(n_features, shares["scatter"], meaning=LENGTHS),
        vector_spec("sums", (1, n_features), shares["sums"], meaning=MIDDLE),
    ]
    return [*specs, vector_spec("rows", (1,), shares["rows"], meaning=N_UNITS)] if "rows" in shares else specs


def _cells_spec(size: int, share: float) -> ReleaseSpec:
    """Returns the spec for the counts of the cells of one round of splits."""
    return vector_spec("cells", (size,), share, meaning=histogram_of("how much data each cell of the tree holds"))


def _round(name: str, *releases: ReleaseSpec) -> RoundSpec:
    """Creates a round of the tree."""
    return RoundSpec(path=f"{NAME}/{name}", releases=releases)


def rounds(config: FitConfig, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of a job, in order; `plan` was made from `round_specs` of the same config."""
    n_start = 1 + [part.path for part in plan.rounds].index(f"{NAME}/leaves")
    return (*start_rounds(plan.rounds[:n_start]), *lloyd.bound(config, plan.rounds[n_start:]))


def start_rounds(plans: tuple[RoundPlan, ...]) -> tuple[Round, ...]:
    """Returns the calibrated rounds of the tree; the last step returns a `MeansState` with centers for Lloyd rounds.

    Args:
      plans: made from `start_specs`.
    """
    of_leaves = plans[-1].releases[0]
    split = functools.partial(tree_server.split_step, of_leaves=of_leaves)
    bound = []
    for plan in plans[:-1]:
        if plan.path.endswith("/shape"):
            counted = len(plan.releases) > 2
            bound.append(Round(plan, functools.partial(shape_statistic, counted=counted), tree_server.shape_step))
        else:
            bound.append(Round(plan, split_statistic, split, lattice.SUM_BITS))
    return (*bound, Round(plans[-1], leaves_statistic, tree_server.leaves_step, lattice.SUM_BITS))


def shape_statistic(block: ClientBlock, state: TreeState, *, counted: bool) -> NDArray[np.int64]:
    """Computes scatter (upper triangle), sum and, if `counted`, number of all rows; for clients, of their means."""
    everything = Assigner(np.zeros((1, block.points.shape[1])))
    bound = state.frame.lattice.clipping_norm**2
    scatter = of_unit(state.privacy_unit).outer_product(block, state.frame, bound, relative=True)
    rest = _sums_and_counts(block, state, everything)
    return np.concatenate([scatter, rest if counted else rest[:-1]])


def split_statistic(block: ClientBlock, state: TreeState) -> NDArray[np.int64]:
    """Counts rows per cell of the open nodes; at client level relative to the client's rows and clipped."""
    return of_unit(state.privacy_unit).histogram(block, state.frame, state.partition, state.bound, relative=True)


def leaves_statistic(block: ClientBlock, state: TreeState) -> NDArray[np.int64]:
    """Computes the sums of the rows of every leaf, then their counts."""
    return _sums_and_counts(block, state, state.partition)


def _sums_and_counts(block: ClientBlock, state: TreeState, partition: RowLabels) -> NDArray[np.int64]:
    """Computes sums and counts; a client's sums are bounded by the bound on its counts times the clipping norm."""
    form, sums_bound = of_unit(state.privacy_unit).mean_sums_and_counts, state.frame.lattice.clipping_norm * state.bound
    return form(block, state.frame, partition, sums_bound, state.bound)


PROTOCOL = RoundsProtocol(
    title="CentralTree",
    sells_cost=True,
    initial_state=tree_server.initial_state,
    round_specs=lambda config, n_features, _: round_specs(config, n_features),
    allocation=allocation_as_asked,
    rounds=rounds,
)
