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
from schemas.kmeans.lloyd_config import DPLloydFit
from schemas.privacy.plan import Mechanism, PrivacyPlan, ReleaseSpec, RoundPlan, RoundSpec
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.dp_lloyd import candidates
from transforms.kmeans.dp_lloyd import server as dp_lloyd_server
from transforms.kmeans.dp_lloyd import starts as dp_lloyd_starts
from transforms.kmeans.dp_lloyd.candidates import CandidateState
from transforms.kmeans.dp_lloyd.state import LloydState
from transforms.kmeans.lloyd.box import LloydSettings
from transforms.kmeans.lloyd.specs import for_sampled_rows, scatter_spec, vector_spec
from transforms.numerics.kmeans import lloyd_rules
from transforms.numerics.statistics import lattice, relative_sums, rows
from transforms.numerics.statistics.assignment import Assigner
from transforms.numerics.statistics.by_unit import of_unit
from transforms.rounds.protocol import Round

NAME = "dp_lloyd"
_Statistic = Callable[..., NDArray[np.int64]]
_Step = Callable[..., Any]


def allocation(config: DPLloydFit) -> Allocation:
    """How shares become noise: weights 1 / multiplier^2 (Gaussian) or, for variant su, nominal epsilons."""
    return Allocation.PAPER if config.dp_lloyd.variant is LloydVariant.SU else Allocation.TUNED


def round_specs(config: DPLloydFit, n_features: int) -> tuple[RoundSpec, ...]:
    """Every release of a job that starts by itself, before calibration; `n_features` is d."""
    settings = LloydSettings.from_config(config)
    specs = {LloydStart.BEST: _start_specs, LloydStart.CANDIDATES: _candidate_specs}.get(settings.options.start)
    start = () if specs is None else for_sampled_rows(config, specs(settings, n_features))
    return (*start, *lloyd_round_specs(config, n_features))


def lloyd_round_specs(config: DPLloydFit, n_features: int) -> tuple[RoundSpec, ...]:
    """The Lloyd rounds alone; after a start that costs nothing they share the whole budget."""
    return for_sampled_rows(config, _lloyd_specs(LloydSettings.from_config(config), n_features))


def _start_specs(settings: LloydSettings, n_features: int) -> list[RoundSpec]:
    """Rounds of start `best`."""
    shares = dp_lloyd_starts.start_shares(settings, n_features)
    mean = vector_spec("sums", (1, n_features), shares.get("mean", 0.0))
    releases = {
        "rows": vector_spec("rows", (1,), shares.get("rows", 0.0)),
        "mean": dataclasses.replace(mean, sensitivity=relative_sums.RELATIVE_UNITS),
        "scatter": scatter_spec(n_features, shares.get("scatter", 0.0)),
        "grid": vector_spec("histogram", (dp_lloyd_starts.grid_cells(settings, n_features),), shares["grid"]),
    }
    return [RoundSpec(path=f"{NAME}/{path}", releases=(releases[path],)) for path in shares]


def _candidate_specs(settings: LloydSettings, n_features: int) -> list[RoundSpec]:
    """Rounds of start `candidates`."""
    shares = candidates.shares(settings)
    mean = vector_spec("sums", (1, n_features), shares["mean"])
    specs = [("rows", vector_spec("rows", (1,), shares["rows"]))] if "rows" in shares else []
    specs += [
        ("mean", dataclasses.replace(mean, sensitivity=relative_sums.RELATIVE_UNITS)),
        ("directions", scatter_spec(n_features, shares["scatter"])),
    ]
    histogram = vector_spec("candidates", (candidates.n_candidates(settings),), shares["candidates"])
    specs += [(f"candidates_{step:02d}", histogram) for step in range(candidates.HISTOGRAMS)]
    return [RoundSpec(path=f"{NAME}/{path}", releases=(release,)) for path, release in specs]


def _lloyd_specs(settings: LloydSettings, n_features: int) -> list[RoundSpec]:
    """The Lloyd rounds, all with the same noise."""
    variant, n_rounds = settings.options.variant, settings.n_rounds(n_features)
    weight = lloyd_rules.sums_weight(variant, n_features)
    share = settings.rounds_share / n_rounds / (weight + 1.0)
    mechanism = Mechanism.DISCRETE_LAPLACE if variant is LloydVariant.SU else Mechanism.DISCRETE_GAUSSIAN

    def releases(n_centers: int) -> tuple[ReleaseSpec, ...]:
        sensitivity = _sums_sensitivity(variant, n_features)
        shape = (n_centers, n_features)
        return (
            ReleaseSpec(name="sums", shape=shape, mechanism=mechanism, sensitivity=sensitivity, share=share * weight),
            ReleaseSpec(
                name="counts", shape=shape[:1], mechanism=mechanism, sensitivity=lattice.SUM_UNITS, share=share
            ),
        )

    fine = candidates.fine_rounds(settings, n_rounds)
    found = [
        RoundSpec(path=f"{NAME}/fine_{step:02d}", releases=releases(candidates.n_fine(settings)))
        for step in range(fine)
    ]
    rest = releases(settings.n_clusters)
    return found + [RoundSpec(path=f"{NAME}/lloyd_{step:02d}", releases=rest) for step in range(n_rounds - fine)]


def _sums_sensitivity(variant: LloydVariant, n_features: int) -> int:
    """Lattice units. A row's L2 norm is at most 2**SUM_BITS, so its L1 norm is at most sqrt(d) times as much."""
    if variant is LloydVariant.FAST:
        return relative_sums.RELATIVE_UNITS
    if variant is LloydVariant.G:
        return rows.SUM_SENSITIVITY
    return math.isqrt(n_features * rows.SUM_SENSITIVITY**2)


def rounds(config: DPLloydFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """The calibrated rounds of a plan that are DP-Lloyd's own, in order."""
    settings = LloydSettings.from_config(config)
    own = [each for each in plan.rounds if each.path.startswith(f"{NAME}/")]
    last_fine = next((each for each in reversed(own) if "/fine_" in each.path), None)
    return tuple(_bind(settings, each, last_fine) for each in own)


def _bind(settings: LloydSettings, plan: RoundPlan, last_fine: RoundPlan | None) -> Round:
    """Joins a round's plan with its statistic and its server step."""
    name = plan.path.rpartition("/")[2]
    starts: dict[str, tuple[_Statistic, _Step, int | None]] = {
        "rows": (rows_statistic, dp_lloyd_starts.rows_step, None),
        "mean": (mean_statistic, dp_lloyd_starts.mean_step, lattice.SUM_BITS),
        # Its rows are measured from the noisy mean, so they are integers of another frame.
        "scatter": (scatter_statistic, dp_lloyd_starts.scatter_step, None),
        # As of the scatter.
        "directions": (directions_statistic, candidates.scatter_step, None),
        "candidates": (candidates_statistic, candidates.candidates_step, lattice.SUM_BITS),
        "grid": (functools.partial(grid_statistic, size=plan.size), dp_lloyd_starts.grid_step, lattice.SUM_BITS),
    }
    kind = "candidates" if name.startswith("candidates_") else name
    if kind in starts:
        return Round(plan, *starts[kind])
    if name.startswith("fine_"):
        step = functools.partial(candidates.fine_step, last=plan is last_fine)
        return Round(plan, relative_statistic, step, lattice.SUM_BITS)
    if settings.options.variant is LloydVariant.FAST:
        return Round(plan, relative_statistic, dp_lloyd_server.relative_step, lattice.SUM_BITS)
    return Round(plan, absolute_statistic, dp_lloyd_server.absolute_step, lattice.SUM_BITS)


def rows_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Number of rows (clients)."""
    return of_unit(state.privacy_unit).count(block)


def mean_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Sum of rows (of clients' means) around the middle of the domain."""
    all_rows = dp_lloyd_starts.mean_neighborhood(state)
    return of_unit(state.privacy_unit).relative_sums(block, state.frame, all_rows, all_rows.radius)[:-1]


def scatter_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Scatter around the noisy mean (upper triangle)."""
    bound, near = dp_lloyd_starts.scatter_bound(state), dp_lloyd_starts.near(state)
    return of_unit(state.privacy_unit).outer_product(block, near, bound, relative=False)


def directions_statistic(block: ClientBlock, state: CandidateState) -> NDArray[np.int64]:
    """Scatter around the noisy mean (upper triangle); at client level of the means of outer products."""
    bound, near = candidates.scatter_bound(state), dp_lloyd_starts.near(state)
    return of_unit(state.privacy_unit).outer_product(block, near, bound, relative=True)


def candidates_statistic(block: ClientBlock, state: CandidateState) -> NDArray[np.int64]:
    """Rows per nearest candidate; at client level as fractions of the client's rows, clipped."""
    bound = candidates.histogram_bound(state)
    return of_unit(state.privacy_unit).histogram(block, state.frame, state.known_candidates, bound, relative=True)


def grid_statistic(block: ClientBlock, state: LloydState, *, size: int) -> NDArray[np.int64]:
    """Rows (fractions of clients) per cell, zeros for coordinates that the grid does not use."""
    if state.grid is None:
        raise ValueError("grid_statistic must be given a state with a grid; run the earlier rounds first.")
    found = of_unit(state.privacy_unit).histogram(block, state.frame, state.grid, 1.0, relative=True)
    return np.concatenate([found, np.zeros(size - state.grid.size, dtype=np.int64)])


def relative_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Relative sums per cluster, then counts."""
    form = of_unit(state.privacy_unit).relative_sums
    return form(block, state.frame, state.neighborhoods, state.sums_bound, state.count_bound)


def absolute_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Sums per cluster (of clients' means), measured from the middle of the domain, then counts."""
    assigner = Assigner(state.known_centers)
    form, norm = of_unit(state.privacy_unit).mean_sums_and_counts, state.frame.lattice.clipping_norm
    return form(block, state.frame, assigner, norm, 1.0)
