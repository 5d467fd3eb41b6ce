"""What travels between the rounds of DP-Lloyd: public data, releases, and what was computed from them."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from schemas.choices import LloydStart, RadiusRule
from schemas.kmeans.lloyd_config import DPLloydConfig, DPLloydFit
from schemas.kmeans.model import ClusterModel
from schemas.privacy.release import Release
from schemas.privacy.unit import Unit, unit_of
from transforms.numerics.kmeans import lloyd_rules
from transforms.numerics.kmeans.lloyd_rules import Problem
from transforms.numerics.kmeans.noisy_means import last_means
from transforms.numerics.kmeans.starts.grid import Grid
from transforms.numerics.statistics import lattice
from transforms.numerics.statistics.frame import Box, Frame
from transforms.numerics.statistics.relative_sums import MAX_CENTER_NORM, Neighborhoods

REFINEMENT = 0.5
"""Radius after a private or warm start, in units of that of the paper: rows lie nearer to centers that were found."""
CANDIDATE_STEPS = 4
"""Lloyd rounds after start `candidates`."""
KMEANS_RESTARTS = 10
"""Restarts of k-means on the cells of a grid."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LloydSettings:
    """Public parameters that server steps and statistics read; all from the job's config.

    Attributes:
      options: the job's section.
      n_clusters: k.
      unit: the privacy unit.
      public_rows: number of rows (clients) if it is public.
      seed: of public randomness.
      epsilon: of the whole run.
      noise_multiplier: what the whole budget would buy one Gaussian release.
      warm: whether the centers of an earlier run are the start, so that it costs nothing.
      norm: feature units: radius of the ball around the middle of the domain to which rows are clipped; infinite
        where only the domain bounds them.
    """

    options: DPLloydConfig
    n_clusters: int
    unit: Unit
    public_rows: int | None
    seed: int
    epsilon: float
    noise_multiplier: float
    warm: bool = False
    norm: float = math.inf

    @classmethod
    def from_config(cls, config: DPLloydFit) -> "LloydSettings":
        """Settings of a job with algorithm dp_lloyd."""
        # Its import takes half a second, which jobs of other algorithms need not wait for.
        from dp_accounting import gaussian_mechanism

        with np.errstate(divide="ignore"):
            multiplier = gaussian_mechanism.get_sigma_gaussian(config.privacy.epsilon, config.privacy.delta)
        norm, in_ball = config.clipping.norm, config.dp_lloyd.start is not LloydStart.FEDDP_INIT
        return cls(
            options=config.dp_lloyd,
            n_clusters=config.max_clusters,
            unit=unit_of(config.privacy.unit, config.clipping.client_rows),
            public_rows=config.data.public_rows,
            seed=config.seed or 0,
            epsilon=config.privacy.epsilon,
            noise_multiplier=float(multiplier),
            warm=config.starts_warm,
            norm=norm if in_ball and isinstance(norm, float) else math.inf,
        )

    @property
    def box(self) -> Box:
        """The domain."""
        return lloyd_rules.box_of(self.options)

    @property
    def unit_radius(self) -> float:
        """The largest norm of a unit's stacked relative sums, divided by its rows, in radii."""
        return self.unit.share(self.options.client_radius)

    @property
    def rounds_share(self) -> float:
        """Share of the budget for the Lloyd rounds."""
        return 1.0 - self.options.start_share if self.options.starts_privately and not self.warm else 1.0

    @property
    def starts_near(self) -> bool:
        """Whether the first round starts from centers that were found, here or by an earlier run."""
        return self.warm or self.options.starts_privately

    def multiplier(self, share: float) -> float:
        """Noise multiplier of a Gaussian release with this share of the whole budget."""
        return self.noise_multiplier / math.sqrt(share)

    def n_rounds(self, n_features: int) -> int:
        """Lloyd rounds: given, or by the rule of the variant."""
        options = self.options
        if not isinstance(options.steps, str):
            return options.steps
        if options.start is LloydStart.CANDIDATES and not self.warm:
            return CANDIDATE_STEPS
        share = self.rounds_share
        problem = Problem(self.public_rows, self.n_clusters, n_features, self.multiplier(share), self.epsilon * share)
        scaled = self.radius(n_features) / self.box.half_side
        fewest = 1 if self.starts_near else lloyd_rules.FEWEST_ROUNDS
        return lloyd_rules.n_rounds(options.variant, problem, scaled, fewest)

    def radius(self, n_features: int) -> float:
        """Radius of the rounds and longest move of a center, feature units.

        In a ball that is smaller than the domain it is that of the ball's diameter in place of the half diagonal.
        """
        in_box = self.box.half_side * lloyd_rules.radius(self.n_clusters, n_features, self.options.radius_factor)
        return min(1.0, 2.0 * self.norm / (self.box.half_side * math.sqrt(n_features))) * in_box

    def first_radius(self, n_features: int) -> float:
        """Radius of the first Lloyd round, feature units."""
        if self.starts_near:
            return (REFINEMENT if self.options.shrinks else 1.0) * self.radius(n_features)
        if self.options.radius is RadiusRule.STEP:
            return self.box.half_side * math.sqrt(n_features)
        return self.radius(n_features)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LloydState:
    """Everything a round may broadcast: no private number but in `releases` and what follows from them.

    Attributes:
      settings: public parameters.
      frame: public frame of the run; its center is the middle of the domain.
      server: shape (q, d), feature units: public points, where the start uses some.
      centers: integers, shape (k, d), lattice units at SUM_BITS; None before a private start has found them.
      radius: lattice units: radius of the next round of relative sums.
      n_rows: public or noisy number of rows (clients); None before it is known.
      origins: as `centers`: from where the last round measured its sums; None for the middle of the domain.
      sizes: shape (k,): noisy counts, after a Lloyd round.
      mean: integers, shape (d,), lattice units: noisy mean of the rows, after the round that finds it.
      near: frame around that mean in which the scatter is formed.
      grid: cells of the next histogram.
      releases: all so far, in order.
    """

    settings: LloydSettings
    frame: Frame
    server: NDArray[np.float64]
    centers: NDArray[np.float64] | None
    radius: int
    n_rows: float | None = None
    origins: NDArray[np.float64] | None = None
    sizes: NDArray[np.float64] | None = None
    mean: NDArray[np.float64] | None = None
    near: Frame | None = None
    grid: Grid | None = None
    releases: tuple[Release, ...] = ()

    @property
    def privacy_unit(self) -> Unit:
        """What one neighbor adds or removes."""
        return self.settings.unit

    def broadcast(self) -> "LloydState":
        """What statistics read of the state: all but public points and releases."""
        return dataclasses.replace(self, server=self.server[:0], origins=None, releases=())

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.frame.lattice.center)

    @property
    def unit(self) -> float:
        """Feature units of one lattice step at SUM_BITS."""
        return self.frame.lattice.unit(lattice.SUM_BITS)

    @property
    def known_centers(self) -> NDArray[np.float64]:
        """`centers`; raises ValueError before the start has found them."""
        if self.centers is None:
            raise ValueError("centers must be asked for after the start; run its rounds first.")
        return self.centers

    @property
    def positions(self) -> NDArray[np.float64] | None:
        """Centers in feature units, shape (k, d); None before the start has found them."""
        return None if self.centers is None else self.centers * self.unit + self.frame.lattice.center

    @property
    def neighborhoods(self) -> Neighborhoods:
        """Centers and radius of the next round of relative sums."""
        return Neighborhoods(self.known_centers, self.radius, self.settings.options.shrinks)

    @property
    def sums_bound(self) -> int:
        """Lattice units: the largest norm of a unit's stacked relative sums, divided by its rows."""
        return max(1, int(self.settings.unit_radius * self.radius))

    @property
    def count_bound(self) -> float:
        """The largest norm of a unit's stacked counts, divided by its rows, in (0, 1]."""
        return 1.0

    @property
    def subspace(self) -> NDArray[np.float64] | None:
        """Orthonormal basis, shape (d, n_dims), in which centers are taken to move most; None where none is known."""
        return None

    def model(self) -> ClusterModel:
        """The released clustering; asked for after the last round."""
        if self.sizes is None:
            raise ValueError("model must be asked for after a Lloyd round; run that round first.")
        middle, noisy = self.frame.lattice.center, last_means(self.releases, len(self.known_centers))
        origins = middle if self.origins is None else self.origins * self.unit + middle
        return ClusterModel(
            centers=self.known_centers * self.unit + middle,
            noisy_sizes=self.sizes,
            releases=self.releases,
            noisy_means=None if noisy is None else origins + noisy.means,
        )


def lattice_radius(frame: Frame, radius: float) -> int:
    """A radius in feature units as lattice units at SUM_BITS, at least one and at most the diagonal of the ball."""
    return min(max(1, int(radius / frame.lattice.unit(lattice.SUM_BITS))), 2 * lattice.SUM_UNITS)


def lattice_centers(frame: Frame, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centers measured from the middle of the domain, feature units, truncated to lattice integers.

    Centers far outside the domain (there are none with post-processing) are projected to where arithmetic is exact.
    """
    norms = np.linalg.norm(centers, axis=1, keepdims=True) / frame.lattice.unit(lattice.SUM_BITS)
    nearer = np.minimum(1.0, (MAX_CENTER_NORM - 1.0) / np.maximum(norms, 1.0))
    return np.trunc(centers * nearer / frame.lattice.unit(lattice.SUM_BITS))
