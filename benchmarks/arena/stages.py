"""Which stage of Dapple's rounds costs what: the same runs under the same keys, with next to no noise in one stage.

Noise that is not drawn is of the size of a lattice unit: too little to matter, and as much as the one place of noise
draws at least. Nothing else differs: rounds, candidates and cells are those of the epsilon that was asked for.
"""

import dataclasses
from collections.abc import Iterable

from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.transforms.core.noise import MIN_RELEASE_SCALE
from dapple_dp.transforms.core.round import Round

STAGES = {"start": "the start", "fine": "the rounds of many small cells", "lloyd": "the Lloyd rounds"}
"""Words of each stage; a round is of that whose name its own begins with, or else of the start."""
ALL = "all"
DOORS = tuple(f"quiet {each}" for each in (*STAGES, ALL))
_LEAST = 2.0 * MIN_RELEASE_SCALE
"""Lattice units: what a release has at least, in the coordinates of a symmetric one as well."""


def of_path(path: str) -> str:
    """The stage of a round by its path."""
    return next((each for each in STAGES if path.rpartition("/")[2].startswith(f"{each}_")), "start")


def quiet(rounds: Iterable[Round], door: str) -> list[Round]:
    """Rounds of which those of a stage have next to no noise, as a door says; all as they are behind another one."""
    stage = door.removeprefix("quiet ")
    return [
        each._replace(plan=_quiet(each.plan)) if stage in (of_path(each.plan.path), ALL) else each for each in rounds
    ]


def _quiet(plan: RoundPlan) -> RoundPlan:
    releases = (dataclasses.replace(each, noise_multiplier=_LEAST / each.spec.sensitivity) for each in plan.releases)
    return dataclasses.replace(plan, releases=tuple(releases))
