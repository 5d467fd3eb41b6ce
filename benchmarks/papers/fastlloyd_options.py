"""FastLloyd with other radii, without clipped moves, or with centers that aren't folded, and on absolute sums.

What no job has: the rounds of `fit` with other settings and steps, for start sphere_packing and moves that aren't
shrunken; and those of `fit` after this start with moves that are.

Source: Diaa, Humphries, Kerschbaum (2025), Section 5.3 and Appendix B.
"""

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers import absolute_lloyd
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydConfig
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.core.round import Releases, Round
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.kmeans.dp_lloyd import starts
from dapple_dp.transforms.kmeans.dp_lloyd.server import relative_unit
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings, lattice_centers, lattice_radius
from dapple_dp.transforms.numerics.kmeans import folding, lloyd_rules, moves

DEFAULTS: dict[str, Any] = {"radius": "step", "radius_factor": 0.8, "post_process": "fold", "clip_moves": True}
DEFAULTS |= {"variant": "fast"}
Rows = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings(LloydSettings):
    """Settings with `given` ones of `DEFAULTS`: radius is step or constant, post_process fold, truncate or none.

    `variant` is fast, or one of `absolute_lloyd`.
    """

    given: dict[str, Any]

    @classmethod
    def of(cls, settings: LloydSettings, given: dict[str, Any]) -> "Settings":
        """Returns the settings of a job, with changes."""
        known = {field.name: getattr(settings, field.name) for field in dataclasses.fields(LloydSettings)}
        return cls(**known, given=DEFAULTS | given)

    def radius(self, n_features: int) -> float:
        """Radius of the rounds and longest move of a center."""
        return self.box.half_side * lloyd_rules.radius(self.n_clusters, n_features, self.given["radius_factor"])

    def first_radius(self, n_features: int) -> float:
        """Radius of the first round."""
        if self.given["radius"] == "constant":
            return self.radius(n_features)
        return LloydSettings.first_radius(self, n_features)


class ShrunkenMoves(DPLloydConfig):
    """Options whose moves are shrunken by their noise after any start."""

    @property
    def shrinks(self) -> bool:
        """True: a job shrinks after private starts alone."""
        return True


def released_centers(rows: Rows, job: dict[str, Any], given: dict[str, Any], key: bytes) -> Rows:
    """Centers of one run; `job` is one of `fit`, with other options `given`, and `key` is public."""
    config, n_features, blocks = validated(job), rows.shape[1], [ClientBlock(rows)]
    settings = Settings.of(LloydSettings.from_config(config), given)
    start = starts.initial_state(config, np.zeros((0, n_features)), n_features)
    first, variant = lattice_radius(start.frame, settings.first_radius(n_features)), settings.given["variant"]
    initial = dataclasses.replace(start, settings=settings, radius=first)
    if variant == "lloyd":
        return absolute_lloyd.without_noise(initial, blocks[0])
    if variant == "fast":
        # The number of rounds follows from the radius.
        steps = config.dp_lloyd.model_copy(update={"steps": settings.n_rounds(n_features)})
        planned = plan_files(config.model_copy(update={"dp_lloyd": steps})).rounds
        step = functools.partial(_relative_step, settings=settings)
        rounds = [each._replace(step=step) for each in planned]
    else:
        plan = absolute_lloyd.planned(variant, config, n_features)
        step = functools.partial(_absolute_step, settings=settings)
        rounds = [Round(each, absolute_lloyd.statistic, step) for each in plan.rounds]
    found: Rows = loop.simulate(initial, rounds, blocks, key).model().centers
    return found


def _relative_step(state: LloydState, releases: Releases, settings: Settings) -> LloydState:
    radius = settings.radius(state.n_features)
    sums = releases[0].with_unit(relative_unit(state, state.sums_bound))
    counts = releases[1].with_unit(state.count_bound / lattice.SUM_UNITS)
    found = moves.divided(sums.decoded, counts.decoded)
    if settings.given["clip_moves"]:
        found = folding.clip_moves(found, radius)
    moved = state.known_centers * state.unit + found
    following = dataclasses.replace(state, radius=lattice_radius(state.frame, radius), origins=state.centers)
    return _moved_to(following, moved, (sums, counts), settings)


def _absolute_step(state: LloydState, releases: Releases, settings: Settings) -> LloydState:
    sums, counts = releases[0].with_unit(state.unit), releases[1].with_unit(1.0 / lattice.SUM_UNITS)
    return _moved_to(state, moves.divided(sums.decoded, counts.decoded), (sums, counts), settings)


def _moved_to(state: LloydState, centers: Rows, releases: Releases, settings: Settings) -> LloydState:
    side = settings.box.half_side
    rules: dict[str, Any] = {"fold": folding.fold, "truncate": lambda found, side: np.clip(found, -side, side)}
    if (rule := rules.get(settings.given["post_process"])) is not None:
        centers = rule(centers, side)
    found, sizes = lattice_centers(state.frame, centers), releases[1].decoded
    return dataclasses.replace(state, centers=found, sizes=sizes, releases=(*state.releases, *releases))
