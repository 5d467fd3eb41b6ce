"""DP-Lloyd as a list of rounds: Lloyd's algorithm on noisy sums of differences to the last centers inside a radius.

A private start comes before these rounds under the same budget.
Source: Diaa, Humphries, Kerschbaum (2025), "FastLloyd".
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import LloydStart
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyPlan, ReleaseSpec, RoundPlan, RoundSpec
from dapple_dp.schemas.core.unit import Rows
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Replaced, Role
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics import differences, distances, lattice
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.kmeans.dp_lloyd import candidates
from dapple_dp.transforms.kmeans.dp_lloyd import server as dp_lloyd_server
from dapple_dp.transforms.kmeans.dp_lloyd import starts as dp_lloyd_starts
from dapple_dp.transforms.kmeans.dp_lloyd.candidates import CandidateState
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.lloyd import quality
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.kmeans.lloyd.rounds import padded
from dapple_dp.transforms.kmeans.lloyd.specs import (
    COUNTS,
    MIDDLE,
    N_UNITS,
    SPREAD,
    SUMS,
    for_sampled_rows,
    histogram_of,
    scatter_spec,
    vector_spec,
)
from dapple_dp.transforms.numerics.kmeans import lloyd_rules

NAME = "dp_lloyd"
_GRID = histogram_of("how much data lies in each cell of a public grid", Role.CELLS)
_AROUND = dataclasses.replace(SPREAD, role=Role.SCATTER)
_CANDIDATES = histogram_of("how much data lies near each candidate for a center")
_DISTANCES = dataclasses.replace(quality.COST_MEANING, tells="how far rows lie from the candidates")
_GAIN = Meaning(
    tells="how much nearer rows are to the public candidates than to the private ones",
    quantity=Quantity.SQUARE,
    replaced=Replaced.TURNED,
)
_SPLIT = dataclasses.replace(SUMS, tells="where each center lies, and where the data far from it lie", role=Role.OTHER)
_PARTS = histogram_of("how much data lies near each center, and how much far from it")
_Statistic = Callable[..., NDArray[np.int64]]
_Step = Callable[..., Any]


def round_specs(config: DPLloydFit, n_features: int) -> tuple[RoundSpec, ...]:
    """Returns every release of a job with its own start, before calibration; `n_features` is d."""
    settings = LloydSettings.from_config(config)
    specs = {LloydStart.BEST: _start_specs, LloydStart.CANDIDATES: _candidate_specs}.get(settings.options.start)
    start = () if specs is None else for_sampled_rows(config, specs(settings, n_features))
    return (*start, *lloyd_round_specs(config, n_features))


def lloyd_round_specs(config: DPLloydFit, n_features: int) -> tuple[RoundSpec, ...]:
    """Returns the Lloyd rounds alone; after a start that costs nothing they share the whole budget."""
    return for_sampled_rows(config, _lloyd_specs(LloydSettings.from_config(config), n_features))


def _start_specs(settings: LloydSettings, n_features: int) -> list[RoundSpec]:
    """Returns the rounds of start `best`."""
    shares = dp_lloyd_starts.start_shares(settings, n_features)
    mean = vector_spec("sums", (1, n_features), shares.get("mean", 0.0), meaning=MIDDLE)
    cells = (dp_lloyd_starts.grid_cells(settings, n_features),)
    releases = {
        "rows": vector_spec("rows", (1,), shares.get("rows", 0.0), meaning=N_UNITS),
        "mean": dataclasses.replace(mean, sensitivity=differences.RELATIVE_UNITS),
        "scatter": scatter_spec(n_features, shares.get("scatter", 0.0), meaning=_AROUND),
        "grid": vector_spec("histogram", cells, shares["grid"], meaning=_GRID),
    }
    return [RoundSpec(path=f"{NAME}/{path}", releases=(releases[path],)) for path in shares]


def _candidate_specs(settings: LloydSettings, n_features: int) -> list[RoundSpec]:
    """Returns the rounds of start `candidates`."""
    shares = candidates.shares(settings, n_features)
    mean = vector_spec("sums", (1, n_features), shares["mean"], meaning=MIDDLE)
    specs = [("rows", vector_spec("rows", (1,), shares["rows"], meaning=N_UNITS))] if "rows" in shares else []
    specs += [
        ("mean", dataclasses.replace(mean, sensitivity=differences.RELATIVE_UNITS)),
        ("directions", scatter_spec(n_features, shares["scatter"], meaning=_AROUND)),
    ]
    size = (candidates.n_candidates(settings, n_features),)
    histogram = vector_spec("candidates", size, shares["candidates"], meaning=_CANDIDATES)
    specs += [(f"candidates_{step:02d}", histogram) for step in range(candidates.HISTOGRAMS)]
    specs += [("server", _cost_spec(shares["server"], _GAIN))] if "server" in shares else []
    specs += [("spread", _cost_spec(shares["spread"], _DISTANCES))] if "spread" in shares else []
    return [RoundSpec(path=f"{NAME}/{path}", releases=(release,)) for path, release in specs]


def _cost_spec(share: float, meaning: Meaning) -> ReleaseSpec:
    cost = vector_spec("cost", (1,), share, meaning=meaning)
    return dataclasses.replace(cost, sensitivity=distances.SENSITIVITY)


def _lloyd_specs(settings: LloydSettings, n_features: int) -> list[RoundSpec]:
    """Returns the Lloyd rounds, all with the same noise."""
    n_rounds, weight = settings.n_rounds(n_features), lloyd_rules.sums_weight(n_features)
    share = settings.rounds_share / n_rounds / (weight + 1.0)

    def releases(n_centers: int, *, moved: bool = False) -> tuple[ReleaseSpec, ...]:
        meaning = dataclasses.replace(SUMS, settles=moved)
        sums = vector_spec("sums", (n_centers, n_features), share * weight, meaning=meaning)
        return (
            dataclasses.replace(sums, sensitivity=differences.RELATIVE_UNITS),
            vector_spec("counts", (n_centers,), share, meaning=COUNTS),
        )

    fine, cells = candidates.fine_rounds(settings, n_features), releases(candidates.fine_cells(settings, n_features))
    if candidates.splits(settings, n_features):
        cells = tuple(
            dataclasses.replace(one, meaning=other) for one, other in zip(cells, (_SPLIT, _PARTS), strict=True)
        )
    specs = [RoundSpec(path=f"{NAME}/fine_{step:02d}", releases=cells) for step in range(fine)]
    return specs + [
        RoundSpec(path=f"{NAME}/lloyd_{step:02d}", releases=releases(settings.n_clusters, moved=step > 0))
        for step in range(n_rounds - fine)
    ]


def rounds(config: DPLloydFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of a plan that belong to DP-Lloyd, in order."""
    own = [each for each in plan.rounds if each.path.startswith(f"{NAME}/")]
    last_fine = next((each for each in reversed(own) if "/fine_" in each.path), None)
    return tuple(_bind(each, last_fine) for each in own)


def _bind(plan: RoundPlan, last_fine: RoundPlan | None) -> Round:
    """Joins a round's plan with its statistic and its server step."""
    name = plan.path.rpartition("/")[2]
    starts: dict[str, tuple[_Statistic, _Step, int | None]] = {
        # It needs no row, but then the next round need not read them once more.
        "rows": (rows_statistic, dp_lloyd_starts.rows_step, lattice.SUM_BITS),
        "mean": (mean_statistic, dp_lloyd_starts.mean_step, lattice.SUM_BITS),
        # Its rows are measured from the noisy mean, so they are integers of another frame.
        "scatter": (scatter_statistic, dp_lloyd_starts.scatter_step, None),
        # As for the scatter.
        "directions": (directions_statistic, candidates.scatter_step, None),
        "candidates": (
            functools.partial(candidates_statistic, size=plan.size),
            candidates.candidates_step,
            lattice.SUM_BITS,
        ),
        "server": (server_statistic, candidates.server_step, lattice.SUM_BITS),
        "spread": (spread_statistic, candidates.spread_step, lattice.SUM_BITS),
        "grid": (functools.partial(grid_statistic, size=plan.size), dp_lloyd_starts.grid_step, lattice.SUM_BITS),
    }
    kind = "candidates" if name.startswith("candidates_") else name
    if kind in starts:
        return Round(plan, *starts[kind])
    if name.startswith("fine_"):
        step = functools.partial(candidates.fine_step, last=plan is last_fine)
        statistic = functools.partial(fine_statistic, n_cells=plan.releases[-1].spec.size)
        return Round(plan, statistic, step, lattice.SUM_BITS)
    return Round(plan, relative_statistic, dp_lloyd_server.relative_step, lattice.SUM_BITS)


def rows_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Counts rows (clients)."""
    return of_unit(state.privacy_unit).count(block)


def mean_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Adds up rows (clients' means) around the middle of the domain."""
    all_rows = dp_lloyd_starts.mean_neighborhood(state)
    return of_unit(state.privacy_unit).relative_sums(block, state.frame, all_rows, all_rows.radius)[:-1]


def scatter_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Computes the scatter around the noisy mean (upper triangle)."""
    bound, near = dp_lloyd_starts.scatter_bound(state), dp_lloyd_starts.near(state)
    return of_unit(state.privacy_unit).outer_product(block, near, bound, relative=False)


def directions_statistic(block: ClientBlock, state: CandidateState) -> NDArray[np.int64]:
    """Computes the scatter around the noisy mean (upper triangle); at client level of the means of outer products."""
    bound, near = candidates.scatter_bound(state), dp_lloyd_starts.near(state)
    return of_unit(state.privacy_unit).outer_product(block, near, bound, relative=True)


def candidates_statistic(block: ClientBlock, state: CandidateState, *, size: int) -> NDArray[np.int64]:
    """Counts rows per nearest candidate, then zeros; at client level as fractions of the client's rows, clipped."""
    bound = candidates.histogram_bound(state)
    found = of_unit(state.privacy_unit).histogram(block, state.frame, state.known_candidates, bound, relative=True)
    return np.concatenate([found, np.zeros(size - len(found), dtype=np.int64)])


def grid_statistic(block: ClientBlock, state: LloydState, *, size: int) -> NDArray[np.int64]:
    """Counts rows (fractions of clients) per cell, with zeros for coordinates that the grid does not use."""
    if state.grid is None:
        raise ValueError("grid_statistic needs a state with a grid; run the earlier rounds first.")
    found = of_unit(state.privacy_unit).histogram(block, state.frame, state.grid, 1.0, relative=True)
    return np.concatenate([found, np.zeros(size - state.grid.size, dtype=np.int64)])


def relative_statistic(block: ClientBlock, state: LloydState) -> NDArray[np.int64]:
    """Computes relative sums per cluster, then counts."""
    form = of_unit(state.privacy_unit).relative_sums
    return form(block, state.frame, state.neighborhoods, state.sums_bound, state.count_bound)


def server_statistic(block: ClientBlock, state: CandidateState) -> NDArray[np.int64]:
    """Adds up how much closer rows are to server rows' centers than to the candidates', squared and capped."""
    if state.alternatives is None:
        return np.zeros(1, dtype=np.int64)
    found, of_server = np.split(state.alternatives, 2)
    return of_unit(state.privacy_unit).gain(block, state.frame, found, of_server, candidates.gain_bound(state))


def spread_statistic(block: ClientBlock, state: CandidateState) -> NDArray[np.int64]:
    """Adds up the capped squared distances of rows from their nearest center."""
    form, bound = of_unit(state.privacy_unit).quality, candidates.spread_bound(state)
    return form(block, state.frame, state.known_centers, bound)[:1]


def fine_statistic(block: ClientBlock, state: CandidateState, *, n_cells: int) -> NDArray[np.int64]:
    """Computes relative sums per cell, then counts, with zeros for unused cells; inner cells come first."""
    if state.inner is None:
        return padded(relative_statistic(block, state), len(state.known_centers), n_cells)
    if not isinstance(state.privacy_unit, Rows):
        raise ValueError("cells must be split at privacy unit record only, since a client can have rows in several.")
    found = differences.row_split_sums(block, state.frame, state.known_centers, state.inner, state.outer)
    return padded(found, 2 * len(state.known_centers), n_cells)
