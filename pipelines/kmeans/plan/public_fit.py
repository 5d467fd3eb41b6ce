"""The rounds of a fit as settings and public points decide them, and what they would cost; reads no private file."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.kmeans.plan import simulated_shares
from schemas.choices import Algorithm, Auto, Trust
from schemas.errors import ConfigError, PrivacyFlowError
from schemas.kmeans.fit_config import FitConfig
from schemas.masked.coalitions import coalitions
from schemas.privacy.noise_shares import ZEROED_OUT
from schemas.privacy.plan import PrivacyPlan
from schemas.privacy.statement import NEIGHBORING_RELATION, PrivacyStatement
from transforms.kmeans import simulated_fit
from transforms.kmeans.feddp_kmeans import space as feddp_space
from transforms.kmeans.protocols import PROTOCOLS
from transforms.kmeans.simulated_fit import SimulatedFit
from transforms.numerics.masked.shared_masks import message_bytes
from transforms.numerics.privacy.noise_shares import check_divisible, closeness_epsilon
from transforms.privacy import accounting
from transforms.rounds.protocol import Round, RoundsProtocol

_LEFT_OUT = "one unit is left out of its sender's statistic; who sends is public, and the same in both"


def statement_of(config: FitConfig, plan: PrivacyPlan, chosen: dict[str, Any] | None) -> PrivacyStatement:
    """The guarantee of a fit, which `plan` states and every output repeats; `chosen` as of `PublicFit`."""
    masked: dict[str, Any] | None = None
    shares = config.masked.shares
    if config.trust is Trust.MASKED:
        masked = {
            "scheme": str(config.masked.scheme),
            "noise_by": str(config.masked.noise_by),
            "message_bytes": {each.path: message_bytes(each.size) for each in plan.rounds},
            "roles": "simulated in one job",
            "coalitions": coalitions(config.masked),
        }
    if masked is not None and shares is not None:
        masked["shares"] = dataclasses.asdict(shares) | {"closeness_epsilon": closeness_epsilon(plan.rounds)}
        masked["neighbors"] = _LEFT_OUT
    return PrivacyStatement.from_plan(
        plan,
        accounting.describe(plan),
        trust=config.trust,
        masked=masked,
        epoch=config.covers,
        neighboring_relation=NEIGHBORING_RELATION if shares is None else ZEROED_OUT,
        chosen=chosen,
    )


class PublicFit(NamedTuple):
    """The public part of a planned fit.

    Attributes:
      initial: state before the first round.
      plan: what will be spent.
      rounds: statistics, plans and server steps.
      chosen: what `privacy.shares: auto` became; None where the job gives its shares or leaves them to defaults.
    """

    initial: Any
    plan: PrivacyPlan
    rounds: tuple[Round, ...]
    chosen: dict[str, Any] | None = None

    @classmethod
    def of(cls, config: FitConfig, server: NDArray[np.float64], protocol: RoundsProtocol | None = None) -> "PublicFit":
        """The rounds of a job, calibrated.

        Args:
          config: the job.
          server: shape (q, d), feature units: public points, or those that stand in for them.
          protocol: if another one than that of its algorithm, such as a warm start.

        Raises:
          ConfigError: if the settings do not fit the points, or no noise meets the budget.
        """
        asked = config
        if protocol is None:
            protocol, config = PROTOCOLS[config.algorithm], resolve_settings(config, server)
        privacy, n_features = config.privacy, server.shape[1]
        initial = protocol.initial_state(config, server, n_features)
        specs = protocol.round_specs(config, n_features, len(server))
        plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, protocol.allocation(config))
        check_meanings(plan)
        if config.masked.shares is not None:
            plan = _with_shares(plan, privacy.epsilon)
        chosen = None if config.privacy.shares == asked.privacy.shares else simulated_shares.to_json(config)
        return cls(initial, plan, protocol.rounds(config, plan), chosen)

    def simulated(
        self,
        config: FitConfig,
        server: NDArray[np.float64],
        n_units: int,
        *,
        draws: int = simulated_fit.DRAWS,
        seed: int = 0,
    ) -> SimulatedFit:
        """Runs of the job on its server data, or on a mixture inside its public bounds if it has none.

        Args:
          config: the job.
          server: the points of `of`; without server data their width alone matters here.
          n_units: assumed number of rows (privacy unit client: of clients), from 1 to 2**31 - 1.
          draws: runs, >= 1, each with noise of its own.
          seed: public.

        Raises:
          ConfigError: if the number of units is out of range.
        """
        given = config.server_data is not None
        points = server if given else simulated_fit.stand_in_points(config, server.shape[1], seed)
        rows = simulated_fit.drawn_rows(config, points, n_units, seed)
        variance = config.masked.drawn_variance
        return simulated_fit.simulate_rounds(
            self.initial, self.rounds, rows, n_units, config.max_clusters, variance=variance, draws=draws, seed=seed
        )


def check_meanings(plan: PrivacyPlan) -> None:
    """Refuses a plan of which a release does not say what it means: pages and files would have no word for it.

    Raises:
      PrivacyFlowError: naming the release.
    """
    for each in plan.rounds:
        for release in each.releases:
            if not release.spec.meaning.tells:
                raise PrivacyFlowError(
                    f"{each.path}/{release.spec.name} must say what it means, got nothing; give its spec a meaning."
                )


def resolve_settings(config: FitConfig, server: NDArray[np.float64]) -> FitConfig:
    """The job with what it leaves to public data decided: the space of its start, then its shares.

    Args:
      config: the job.
      server: shape (q, d), feature units: its public points.

    Raises:
      ConfigError: if no simulated choice meets the budget.
    """
    if config.algorithm is not Algorithm.FEDDP_KMEANS:
        return config
    config = feddp_space.decided(config, server)
    if config.privacy.shares is not Auto.AUTO:
        return config
    return simulated_shares.choose_shares(config, server, PROTOCOLS[config.algorithm])


def _with_shares(plan: PrivacyPlan, target: float) -> PrivacyPlan:
    """The plan where senders split its noise: how close sums of shares are to the noise is paid from epsilon.

    Raises:
      ConfigError: if a release has noise that cannot be split, or nothing of the target is left to pay with.
    """
    check_divisible(plan.rounds)
    epsilon = accounting.with_shares(plan.epsilon, plan.rounds)
    if epsilon > target:
        raise ConfigError(
            f"privacy.epsilon must be more than sums of noise shares cost, got {target:g}; raise it, or release less."
        )
    return dataclasses.replace(plan, epsilon=epsilon)
