"""Rounds of a fit and their privacy cost, computed from settings and public points; reads no private file."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import Algorithm, Auto, Trust
from dapple_dp.schemas.core.plan import PrivacyPlan
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.privacy.meaning import meaning_of
from dapple_dp.schemas.privacy.noise_shares import ZEROED_OUT
from dapple_dp.schemas.privacy.statement import NEIGHBORING_RELATION, PrivacyStatement, describe
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.privacy import plan_cache
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

if TYPE_CHECKING:
    from dapple_dp.transforms.kmeans.simulated_fit import SimulatedFit


def statement_of(config: FitConfig, plan: PrivacyPlan, chosen: dict[str, Any] | None) -> PrivacyStatement:
    """The guarantee of a fit, shown by `plan` and stated by every output; `chosen` as in `PublicFit`."""
    masked: dict[str, Any] | None = None
    if config.trust is Trust.MASKED:
        from dapple_dp.pipelines.kmeans.plan.masked_fit import masked_statement

        masked = masked_statement(config.masked, plan)
    return PrivacyStatement.from_plan(
        plan,
        describe(plan),
        trust=config.trust,
        masked=masked,
        epoch=config.covers,
        neighboring_relation=NEIGHBORING_RELATION if config.masked.shares is None else ZEROED_OUT,
        chosen=chosen,
    )


class PublicFit(NamedTuple):
    """The public part of a planned fit.

    Attributes:
      initial: state before the first round.
      plan: planned privacy spending.
      rounds: statistics, plans and server steps.
      chosen: resolved value of `privacy.shares: auto`; None if the job gives its shares or uses the defaults.
    """

    initial: Any
    plan: PrivacyPlan
    rounds: tuple[Round, ...]
    chosen: dict[str, Any] | None = None

    @classmethod
    def of(cls, config: FitConfig, server: NDArray[np.float64], protocol: RoundsProtocol | None = None) -> "PublicFit":
        """Calibrates the rounds of a job.

        Args:
          config: the job.
          server: shape (q, d), feature units: public points, or stand-ins for them.
          protocol: replaces the protocol of the algorithm, as for a warm start.

        Raises:
          ConfigError: if the settings don't fit the points, or no noise meets the budget.
        """
        asked = config
        if protocol is None:
            protocol, config = protocol_of(config.algorithm), resolve_settings(config, server)
        privacy, n_features = config.privacy, server.shape[1]
        initial = protocol.initial_state(config, server, n_features)
        specs = protocol.round_specs(config, n_features, len(server))
        allocation = protocol.allocation(config)
        plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, allocation, plan_cache)
        check_meanings(plan)
        if config.masked.shares is not None:
            from dapple_dp.pipelines.kmeans.plan.masked_fit import with_shares

            plan = with_shares(plan, privacy.epsilon)
        return cls(initial, plan, protocol.rounds(config, plan), _chosen(config, asked))

    def simulated(
        self,
        config: FitConfig,
        server: NDArray[np.float64],
        n_units: int,
        *,
        draws: int | None = None,
        seed: int = 0,
    ) -> "SimulatedFit":
        """Simulates runs of the job on its server data, or on a mixture inside its public bounds.

        Args:
          config: the job.
          server: the points given to `of`; without server data only their width matters.
          n_units: assumed number of rows (of clients for privacy unit client), from 1 to 2**31 - 1.
          draws: number of runs, >= 1, each with fresh noise; None for `simulated_fit.DRAWS`.
          seed: public seed.

        Raises:
          ConfigError: if the number of units is out of range.
        """
        from dapple_dp.transforms.kmeans import simulated_fit

        draws = simulated_fit.DRAWS if draws is None else draws
        given = config.server_data is not None
        points = server if given else simulated_fit.stand_in_points(config, server.shape[1], seed)
        rows = simulated_fit.drawn_rows(config, points, n_units, seed)
        variance = config.masked.drawn_variance
        return simulated_fit.simulate_rounds(
            self.initial, self.rounds, rows, n_units, config.max_clusters, variance=variance, draws=draws, seed=seed
        )


def check_meanings(plan: PrivacyPlan) -> None:
    """Refuses a plan with a release that has no meaning, which pages and files could not describe.

    Raises:
      PrivacyFlowError: with the name of the release.
    """
    for each in plan.rounds:
        for release in each.releases:
            if not meaning_of(release.spec).tells:
                raise PrivacyFlowError(
                    f"{each.path}/{release.spec.name} must say what it means, got nothing; give its spec a meaning."
                )


def resolve_settings(config: FitConfig, server: NDArray[np.float64]) -> FitConfig:
    """Returns the job with its automatic settings resolved on public data: the start's space, then the shares.

    Args:
      config: the job.
      server: shape (q, d), feature units: public points of the job.

    Raises:
      ConfigError: if no simulated choice meets the budget.
    """
    if config.algorithm is not Algorithm.FEDDP_KMEANS:
        return config
    from dapple_dp.transforms.kmeans.feddp_kmeans.server import with_space

    config = with_space(config, server)
    if config.privacy.shares is not Auto.AUTO:
        return config
    from dapple_dp.pipelines.kmeans.plan import simulated_shares

    return simulated_shares.choose_shares(config, server, protocol_of(config.algorithm))


def _chosen(config: FitConfig, asked: FitConfig) -> dict[str, Any] | None:
    """Resolved value of `privacy.shares: auto`; None if the job gave these shares."""
    if config.privacy.shares == asked.privacy.shares:
        return None
    from dapple_dp.pipelines.kmeans.plan import simulated_shares

    return simulated_shares.to_json(config)


def frame_json(frame: Frame) -> dict[str, Any]:
    """A public frame in the form of `run.json`."""
    return {
        "clipping_norm": frame.lattice.clipping_norm,
        "domain": None if frame.box is None else [frame.box.low, frame.box.high],
        "center": frame.lattice.center.tolist(),
    }
