"""DP-Lloyd as a list of rounds: Lloyd's algorithm with noise, in the settings of three papers and some of our own.

One implementation: variant `su` adds Laplace noise to absolute sums, `g` Gaussian noise, and `fast` sums differences
to the last centers inside a radius. A private start comes before these rounds under the same budget.
Source: Su, Cao, Li, Bertino, Jin (2016), "Differentially private k-means clustering"; Diaa, Humphries, Kerschbaum
(2025), "FastLloyd".
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.choices import Allocation, LloydStart, LloydVariant
from schemas.client_block import ClientBlock
from schemas.config import FitConfig
from schemas.plan import Geometry, Mechanism, PrivacyPlan, ReleaseSpec, RoundPlan, RoundSpec
from transforms import central_tree, dp_lloyd_server, dp_lloyd_starts, feddp_kmeans, feddp_server, tree_server
from transforms.dp_lloyd_state import LloydSettings, LloydState
from transforms.feddp_state import FedDPState
from transforms.numerics import client_statistics, lattice, lloyd_rules, relative_sums, statistics
from transforms.numerics.assignment import Assigner
from transforms.rounds import Releases, Round
from transforms.tree_state import TreeSettings, TreeState

NAME = "dp_lloyd"
_Statistic = Callable[..., NDArray[np.int64]]
_Step = Callable[..., Any]


def allocation(config: FitConfig) -> Allocation:
    """How shares become noise: weights 1 / multiplier^2 (Gaussian) or, for variant su, nominal epsilons."""
    return Allocation.PAPER if config.lloyd_options.variant is LloydVariant.SU else Allocation.TUNED


def initial_state(
    config: FitConfig, server: NDArray[np.float64], n_features: int
) -> LloydState | FedDPState | TreeState:
    """State before the first round; arguments and errors as of `dp_lloyd_starts` and FedDP-KMeans."""
    start = config.lloyd_options.start
    if start is LloydStart.CENTRAL_TREE:
        frame = dp_lloyd_starts.box_frame(config, n_features)
        return tree_server.start_state(TreeSettings.from_config(config), frame)
    if start is not LloydStart.FEDDP_INIT:
        return dp_lloyd_starts.initial_state(config, server, n_features)
    return feddp_server.initial_state(config, server, n_features)


def round_specs(config: FitConfig, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Every release of a job, before calibration.

    Args:
      config: the job.
      n_features: d.
      n_bins: number of server points, for start `feddp_init`.
    """
    settings = LloydSettings.from_config(config)
    start = settings.options.start
    specs: list[RoundSpec] = []
    if start is LloydStart.FEDDP_INIT:
        specs += _scaled(feddp_kmeans.round_specs(config, n_features, n_bins), settings.options.start_share)
    elif start is LloydStart.CENTRAL_TREE:
        specs += central_tree.start_specs(config, n_features, settings.options.start_share)
    elif start is LloydStart.BEST:
        specs += feddp_kmeans.for_sampled_rows(config, _start_specs(settings, n_features))
    return (*specs, *lloyd_round_specs(config, n_features))


def lloyd_round_specs(config: FitConfig, n_features: int) -> tuple[RoundSpec, ...]:
    """The Lloyd rounds alone; after a start that costs nothing they share the whole budget."""
    return feddp_kmeans.for_sampled_rows(config, _lloyd_specs(LloydSettings.from_config(config), n_features))


def _scaled(specs: tuple[RoundSpec, ...], total: float) -> list[RoundSpec]:
    """The rounds with shares that add up to `total`."""
    scale = total / math.fsum(release.share for each in specs for release in each.releases)
    return [
        dataclasses.replace(
            each, releases=tuple(dataclasses.replace(one, share=one.share * scale) for one in each.releases)
        )
        for each in specs
    ]


def _start_specs(settings: LloydSettings, n_features: int) -> list[RoundSpec]:
    """Rounds of start `best`."""
    shares = dp_lloyd_starts.start_shares(settings, n_features)
    gaussian, cells = Mechanism.DISCRETE_GAUSSIAN, dp_lloyd_starts.grid_cells(settings, n_features)
    triangle = (statistics.triangle_size(n_features),)
    releases = {
        "rows": ("rows", (1,), lattice.SUM_UNITS, Geometry.VECTOR),
        "mean": ("sums", (1, n_features), relative_sums.RELATIVE_UNITS, Geometry.VECTOR),
        "scatter": ("scatter", triangle, statistics.OUTER_SENSITIVITY, Geometry.SYMMETRIC),
        "grid": ("histogram", (cells,), lattice.SUM_UNITS, Geometry.VECTOR),
    }
    specs = []
    for path, share in shares.items():
        name, shape, sensitivity, geometry = releases[path]
        spec = ReleaseSpec(
            name=name, shape=shape, mechanism=gaussian, sensitivity=sensitivity, share=share, geometry=geometry
        )
        specs.append(RoundSpec(path=f"{NAME}/{path}", releases=(spec,)))
    return specs


def _lloyd_specs(settings: LloydSettings, n_features: int) -> list[RoundSpec]:
    """The Lloyd rounds, all with the same noise."""
    variant, n_rounds = settings.options.variant, settings.n_rounds(n_features)
    weight = lloyd_rules.sums_weight(variant, n_features)
    share = settings.rounds_share / n_rounds / (weight + 1.0)
    mechanism = Mechanism.DISCRETE_LAPLACE if variant is LloydVariant.SU else Mechanism.DISCRETE_GAUSSIAN
    sums = ReleaseSpec(
        name="sums",
        shape=(settings.n_clusters, n_features),
        mechanism=mechanism,
        sensitivity=_sums_sensitivity(variant, n_features),
        share=share * weight,
    )
    counts = ReleaseSpec(
        name="counts", shape=(settings.n_clusters,), mechanism=mechanism, sensitivity=lattice.SUM_UNITS, share=share
    )
    return [RoundSpec(path=f"{NAME}/lloyd_{step:02d}", releases=(sums, counts)) for step in range(n_rounds)]


def _sums_sensitivity(variant: LloydVariant, n_features: int) -> int:
    """Lattice units. A row's L2 norm is at most 2**SUM_BITS, so its L1 norm is at most sqrt(d) times as much."""
    if variant is LloydVariant.FAST:
        return relative_sums.RELATIVE_UNITS
    if variant is LloydVariant.G:
        return statistics.SUM_SENSITIVITY
    return math.isqrt(n_features * statistics.SUM_SENSITIVITY**2)


def rounds(config: FitConfig, plan: PrivacyPlan) -> tuple[Round, ...]:
    """The calibrated rounds of a job, in order; `plan` was made from `round_specs` of the same config."""
    settings = LloydSettings.from_config(config)
    of_start = tuple(each for each in plan.rounds if not each.path.startswith(f"{NAME}/"))
    switch: _Step = _switch_step
    if settings.options.start is LloydStart.CENTRAL_TREE and of_start:
        inherited, switch = central_tree.start_rounds(of_start), _leave_tree_step
    else:
        inherited = feddp_kmeans.rounds(config, dataclasses.replace(plan, rounds=of_start))
    last = len(inherited) - 1
    switched = tuple(
        each._replace(step=functools.partial(switch, step=each.step, settings=settings)) if at == last else each
        for at, each in enumerate(inherited)
    )
    own = (each for each in plan.rounds if each.path.startswith(f"{NAME}/"))
    return (*switched, *(_bind(settings, each) for each in own))


def _switch_step(state: FedDPState, releases: Releases, step: _Step, settings: LloydSettings) -> LloydState:
    """The last step of FedDP-Init, and the state of DP-Lloyd made of what it finds."""
    return dp_lloyd_starts.after_feddp(state, step(state, releases), settings)


def _leave_tree_step(state: TreeState, releases: Releases, step: _Step, settings: LloydSettings) -> LloydState:
    """The last step of the tree, and the state of DP-Lloyd made of what it finds."""
    return dp_lloyd_starts.after_tree(step(state, releases), settings)


def _bind(settings: LloydSettings, plan: RoundPlan) -> Round:
    """Joins a round's plan with its statistic and its server step."""
    name = plan.path.rpartition("/")[2]
    starts: dict[str, tuple[_Statistic, _Step]] = {
        "rows": (rows_statistic, dp_lloyd_starts.rows_step),
        "mean": (mean_statistic, dp_lloyd_starts.mean_step),
        "scatter": (scatter_statistic, dp_lloyd_starts.scatter_step),
        "grid": (functools.partial(grid_statistic, size=plan.size), dp_lloyd_starts.grid_step),
    }
    if name in starts:
        return Round(plan, *starts[name])
    if settings.options.variant is LloydVariant.FAST:
        return Round(plan, relative_statistic, dp_lloyd_server.relative_step)
    return Round(plan, absolute_statistic, dp_lloyd_server.absolute_step)


def rows_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Number of rows (clients)."""
    if state.settings.by_client:
        return client_statistics.client_count(block)
    return statistics.row_count(block.points)


def mean_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Sum of rows (of clients' means) around the middle of the domain."""
    all_rows = dp_lloyd_starts.mean_neighborhood(state)
    if state.settings.by_client:
        found = relative_sums.client_relative_sums(block, state.frame, all_rows, all_rows.radius)
    else:
        found = relative_sums.relative_sums(block.points, state.frame, all_rows)
    return found[:-1]


def scatter_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Scatter around the noisy mean (upper triangle)."""
    if state.near is None:
        raise ValueError("scatter_statistic must be given a state with a mean; run the earlier rounds first.")
    if state.settings.by_client:
        return client_statistics.outer_product(block, state.near, dp_lloyd_starts.scatter_bound(state))
    return statistics.outer_product(block.points, state.near)


def grid_statistic(block: ClientBlock, state: LloydState, *, size: int) -> NDArray[np.int64]:
    """Rows (fractions of clients) per cell, zeros for coordinates that the grid does not use."""
    if state.grid is None:
        raise ValueError("grid_statistic must be given a state with a grid; run the earlier rounds first.")
    if state.settings.by_client:
        found = client_statistics.histogram(block, state.frame, state.grid, 1.0, relative=True)
    else:
        found = statistics.histogram(block.points, state.frame, state.grid)
    return np.concatenate([found, np.zeros(size - state.grid.size, dtype=np.int64)])


def relative_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Relative sums per cluster, then counts."""
    if state.settings.by_client:
        return relative_sums.client_relative_sums(block, state.frame, state.neighborhoods, state.client_bound)
    return relative_sums.relative_sums(block.points, state.frame, state.neighborhoods)


def absolute_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Sums per cluster (of clients' means), measured from the middle of the domain, then counts."""
    assigner = Assigner(state.known_centers)
    if state.settings.by_client:
        norm = state.frame.lattice.clipping_norm
        return client_statistics.mean_sums_and_counts(block, state.frame, assigner, norm, 1.0)
    return statistics.sums_and_counts(block.points, state.frame, assigner)
