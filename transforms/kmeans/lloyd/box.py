"""Settings, frame and lattice of Lloyd rounds on a public box, for any protocol."""

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import LloydStart
from dapple_dp.schemas.core.unit import Unit, unit_of
from dapple_dp.schemas.kmeans.lloyd_config import CLIENT_RADIUS, START_SHARE, DPLloydConfig, DPLloydFit
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import MAX_CENTER_NORM
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.numerics.kmeans import lloyd_rules
from dapple_dp.transforms.numerics.kmeans.lloyd_rules import Problem

RADIUS_FACTOR = 0.8
"""The radius in units of that of a cube with 1/k of the domain's volume."""
REFINEMENT = 0.5
"""Radius after a private or warm start, in units of that of the paper: rows lie nearer to such centers."""
CANDIDATE_STEPS = 4
"""Lloyd rounds after start `candidates`."""


@functools.lru_cache(maxsize=64)
def _whole_multiplier(epsilon: float, delta: float) -> float:
    """Returns the noise multiplier of one Gaussian release that spends the whole budget."""
    # Imported here, since it takes a tenth of a second that other algorithms don't need.
    from dp_accounting import gaussian_mechanism

    with np.errstate(divide="ignore"):
        return float(gaussian_mechanism.get_sigma_gaussian(epsilon, delta))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LloydSettings:
    """Public parameters for server steps and statistics, all from the job's config.

    Attributes:
      options: the job's section.
      n_clusters: k.
      unit: the privacy unit.
      public_rows: number of rows (clients) if it is public.
      seed: of public randomness.
      noise_multiplier: of a single Gaussian release with the whole budget.
      warm: True if the run starts from the centers of an earlier one, which costs nothing.
      served: True if there are public server rows.
      norm: feature units: radius of the ball around the middle of the domain to which rows are clipped; infinity
        if only the domain bounds them.
    """

    options: DPLloydConfig
    n_clusters: int
    unit: Unit
    public_rows: int | None
    seed: int
    noise_multiplier: float
    warm: bool = False
    served: bool = False
    norm: float = math.inf

    @classmethod
    def from_config(cls, config: DPLloydFit) -> "LloydSettings":
        """Creates the settings of a job with algorithm dp_lloyd."""
        norm, in_ball = config.clipping.norm, config.dp_lloyd.start is not LloydStart.FEDDP_INIT
        return cls(
            options=config.dp_lloyd,
            n_clusters=config.max_clusters,
            unit=unit_of(config.privacy.unit, config.clipping.client_rows),
            public_rows=config.data.public_rows,
            seed=config.seed or 0,
            noise_multiplier=_whole_multiplier(config.privacy.epsilon, config.privacy.delta),
            warm=config.starts_warm,
            served=config.server_data is not None,
            norm=norm if in_ball and isinstance(norm, float) else math.inf,
        )

    @property
    def box(self) -> Box:
        """Public box of the rows, from the options."""
        return lloyd_rules.box_of(self.options)

    @property
    def unit_radius(self) -> float:
        """The largest norm of a unit's stacked relative sums, divided by its rows, in radii."""
        return self.unit.share(CLIENT_RADIUS)

    @property
    def rounds_share(self) -> float:
        """Share of the budget for the Lloyd rounds."""
        return 1.0 - START_SHARE if self.options.starts_privately and not self.warm else 1.0

    @property
    def starts_near(self) -> bool:
        """True if the first round starts from centers that were found, in this run or an earlier one."""
        return self.warm or self.options.starts_privately

    def multiplier(self, share: float) -> float:
        """Returns the noise multiplier of a Gaussian release with this share of the whole budget."""
        return self.noise_multiplier / math.sqrt(share)

    def n_rounds(self, n_features: int) -> int:
        """Returns the number of Lloyd rounds: given, or by the rule of `lloyd_rules`."""
        options = self.options
        if not isinstance(options.steps, str):
            return options.steps
        if options.start is LloydStart.CANDIDATES and not self.warm:
            return CANDIDATE_STEPS
        problem = Problem(self.public_rows, self.n_clusters, n_features, self.multiplier(self.rounds_share))
        scaled = self.radius(n_features) / self.box.half_side
        fewest = 1 if self.starts_near else lloyd_rules.FEWEST_ROUNDS
        return lloyd_rules.n_rounds(problem, scaled, fewest)

    def radius(self, n_features: int) -> float:
        """Returns the radius of the rounds and longest move of a center, feature units.

        In a ball that is smaller than the domain, the ball's diameter replaces the half diagonal.
        """
        in_box = self.box.half_side * lloyd_rules.radius(self.n_clusters, n_features, RADIUS_FACTOR)
        return min(1.0, 2.0 * self.norm / (self.box.half_side * math.sqrt(n_features))) * in_box

    def first_radius(self, n_features: int) -> float:
        """Returns the radius of the first Lloyd round, feature units."""
        if self.starts_near:
            return (REFINEMENT if self.options.shrinks else 1.0) * self.radius(n_features)
        return self.box.half_side * math.sqrt(n_features)


def box_frame(config: DPLloydFit, n_features: int) -> Frame:
    """Returns the frame of the domain, in the clipping ball if the job has one."""
    norm = config.clipping.norm
    return Frame.of_box(lloyd_rules.box_of(config.dp_lloyd), n_features, norm if isinstance(norm, float) else math.inf)


def rounds_frame(config: DPLloydFit, n_features: int) -> Frame:
    """Returns the frame of the Lloyd rounds for the job's start."""
    if config.dp_lloyd.start is LloydStart.FEDDP_INIT:
        return Frame.of_box(lloyd_rules.box_of(config.dp_lloyd), n_features)
    return box_frame(config, n_features)


def lattice_radius(frame: Frame, radius: float) -> int:
    """Converts a radius from feature to lattice units at SUM_BITS, at least one and at most the ball's diameter."""
    return min(max(1, int(radius / frame.lattice.unit(lattice.SUM_BITS))), 2 * lattice.SUM_UNITS)


def lattice_centers(frame: Frame, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Converts centers, measured from the middle of the domain in feature units, to truncated lattice integers.

    Centers far outside the domain (none with post-processing) are moved inward until arithmetic is exact.
    """
    norms = np.linalg.norm(centers, axis=1, keepdims=True) / frame.lattice.unit(lattice.SUM_BITS)
    nearer = np.minimum(1.0, (MAX_CENTER_NORM - 1.0) / np.maximum(norms, 1.0))
    return np.trunc(centers * nearer / frame.lattice.unit(lattice.SUM_BITS))
