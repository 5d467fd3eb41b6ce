"""FastLloyd with other radii, without clipped moves, or with centers that aren't folded: what no job has.

The rounds of `fit` with other settings and steps, for start sphere_packing and moves that aren't shrunken.

Source: Diaa, Humphries, Kerschbaum (2025), Section 5.3 and Appendix B.
"""

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.choices import LloydVariant
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.kmeans.dp_lloyd.server import relative_unit
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings, lattice_centers, lattice_radius
from dapple_dp.transforms.numerics.kmeans import folding, lloyd_rules, moves

DEFAULTS: dict[str, Any] = {"radius": "step", "radius_factor": 0.8, "post_process": "fold", "clip_moves": True}
Rows = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings(LloydSettings):
    """Settings with `given` ones of `DEFAULTS`: radius is step or constant, post_process fold, truncate or none."""

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


def released_centers(rows: Rows, job: dict[str, Any], given: dict[str, Any], key: bytes) -> Rows:
    """Centers of one run; `job` is one of `fit`, with other options `given`, and `key` is public."""
    config = validated(job)
    settings = Settings.of(LloydSettings.from_config(config), given)
    # The number of rounds follows from the radius.
    steps = config.dp_lloyd.model_copy(update={"steps": settings.n_rounds(rows.shape[1])})
    fit = plan_files(config.model_copy(update={"dp_lloyd": steps}))
    start: Any = fit.initial
    first = lattice_radius(start.frame, settings.first_radius(rows.shape[1]))
    initial = dataclasses.replace(start, settings=settings, radius=first)
    step = _relative_step if settings.options.variant is LloydVariant.FAST else _absolute_step
    rounds = [each._replace(step=functools.partial(step, settings=settings)) for each in fit.rounds]
    found: Rows = loop.simulate(initial, rounds, [ClientBlock(rows)], key).model().centers
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
