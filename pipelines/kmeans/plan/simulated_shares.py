"""Budget shares and Lloyd rounds of FedDP-KMeans, chosen by simulation before a private row is read.

A mixture is fitted to the server data. Server data of the same size and rows are drawn from it, so the simulation also
pays for having few server points. Each candidate runs its rounds on them, with the noise of its plan for the public
number of units, and the one with the lowest mean cost wins. All seeds and keys are public and fixed.
"""

import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import StartSpace
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyPlan, PrivacyUnit, ReleasePlan, ReleaseSpec, RoundPlan, RoundSpec
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.sections.feddp_config import LloydConfig
from dapple_dp.schemas.kmeans.sections.privacy_config import Shares
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.core.noise import check_release_noise
from dapple_dp.transforms.kmeans import simulated_fit
from dapple_dp.transforms.numerics.kernel import row_pass
from dapple_dp.transforms.numerics.kmeans.starts import stand_in
from dapple_dp.transforms.numerics.one_thread import one_thread
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

ROWS = 5000
"""Rows of a simulated world, at most; each may stand for many units."""
HALVINGS = ((1, 12), (3, 5), (8, 1))
"""Number of worlds after which candidates are dropped, and number of candidates kept."""
OUTER, WEIGHTS = (0.1, 0.2, 0.35, 0.5), (0.05, 0.15)
FULL_WEIGHTS = (0.03, 0.1, 0.2, 0.35)
COUNTS, FULL_COUNTS = (1.0 / 6.0,), (0.1, 0.2)
"""Share of the counts in the budget for sums and counts."""
LLOYD = ((0, 0.25), (1, 0.25), (1, 0.5), (2, 0.5))
"""Numbers of Lloyd rounds, and their shares of the budget."""
_RESTARTS = 20
_PART_OF_EPSILON = 1.0 - 6e-4
_LABEL = b"dapple simulated shares, a public key"


class World(NamedTuple):
    """Simulated data: public points `server` (q, d), private `rows`, and the number of units per simulated one."""

    server: NDArray[np.float64]
    rows: ClientBlock
    factor: float

    @classmethod
    def of(cls, config: FitConfig, points: NDArray[np.float64], number: int) -> "World":
        """Draws world `number` from a mixture fitted to public points, shape (q, d)."""
        rng, units = np.random.default_rng([number, 9]), config.expected_units or 1
        mixture = stand_in.fitted(points, config.max_clusters, full=config.feddp_kmeans.space is StartSpace.FULL)
        server = mixture.draw(rng, len(points))
        if config.privacy.unit is PrivacyUnit.RECORD:
            simulated = min(units, ROWS)
            return cls(server, ClientBlock(mixture.draw(rng, simulated)), units / simulated)
        client_rows = min(config.clipping.client_rows or 1, ROWS)
        simulated = max(1, min(units, ROWS // client_rows))
        offsets = np.arange(simulated + 1, dtype=np.int64) * client_rows
        return cls(server, ClientBlock(mixture.draw(rng, simulated * client_rows), offsets), units / simulated)


def candidates(config: FitConfig) -> list[FitConfig]:
    """Variants of a job with `privacy.shares: auto`, which differ only in shares and Lloyd rounds.

    Lloyd rounds vary only if `lloyd.steps` is 0; otherwise they are those of the job.
    """
    rounds = [config.lloyd] if config.lloyd.steps else [LloydConfig(steps=steps, share=share) for steps, share in LLOYD]
    return [_with(config, shares, lloyd) for shares, lloyd in itertools.product(_grid(config), rounds)]


def _grid(config: FitConfig) -> list[Shares]:
    """Candidate shares; the outer product has no share in full space, where it isn't used."""
    full = config.feddp_kmeans.space is StartSpace.FULL
    given = itertools.product((1.0,), FULL_WEIGHTS, FULL_COUNTS) if full else itertools.product(OUTER, WEIGHTS, COUNTS)
    result = []
    for outer, weights, counts in given:
        rest = 1.0 - weights - (0.0 if full else outer)
        result.append(Shares(outer_product=outer, weights=weights, sums=rest * (1.0 - counts), counts=rest * counts))
    return result


def _with(config: FitConfig, shares: Shares, lloyd: LloydConfig) -> FitConfig:
    return config.model_copy(update={"privacy": config.privacy.with_shares(shares), "lloyd": lloyd})


def choose_shares(config: FitConfig, server: NDArray[np.float64], protocol: RoundsProtocol) -> FitConfig:
    """Returns the candidate with the lowest mean simulated cost; the worst ones are dropped after some worlds.

    Args:
      config: a job with `privacy.shares: auto` and a resolved space.
      server: shape (q, d), feature units: public points of the job.
      protocol: protocol of the algorithm.

    Raises:
      ConfigError: if the lattice can hold the noise of no candidate.
    """
    left = candidates(config)
    costs: list[list[float]] = [[] for _ in left]
    worlds: list[World] = []
    row_pass.start()
    with one_thread():
        for n_worlds, kept in HALVINGS:
            for number in range(len(worlds), n_worlds):
                worlds.append(World.of(config, server, number))
                for each, found in zip(left, costs, strict=True):
                    found.append(_cost(each, worlds[-1], number, protocol))
            order = np.argsort([np.mean(cost) for cost in costs], kind="stable")[:kept]
            left, costs = [left[each] for each in order], [costs[each] for each in order]
    if not np.isfinite(costs[0]).all():
        raise ConfigError(
            f"at privacy.epsilon {config.privacy.epsilon:g}, no shares give noise that fits the lattice; leave "
            "privacy.shares out, or choose another epsilon."
        )
    return left[0]


def _cost(config: FitConfig, world: World, number: int, protocol: RoundsProtocol) -> float:
    """Mean squared distance of a world's rows to the centers of one run; infinite if the noise is too large."""
    privacy, n_features = config.privacy, world.server.shape[1]
    options = config.feddp_kmeans.model_copy(update={"restarts": _RESTARTS})
    config = config.model_copy(update={"feddp_kmeans": options})
    specs = protocol.round_specs(config, n_features, len(world.server))
    try:
        plan = nearly_calibrated(privacy.unit, specs, privacy.epsilon, privacy.delta)
    except ValueError:
        return float("inf")
    initial = protocol.initial_state(config, world.server, n_features)
    key = hashlib.sha256(_LABEL + b"/%d" % number).digest()
    found = loop.simulate(initial, protocol.rounds(config, plan), [world.rows], key, factor=world.factor)
    return simulated_fit.mean_cost(world.rows.points, found.model().centers)


def nearly_calibrated(unit: PrivacyUnit, rounds: Sequence[RoundSpec], epsilon: float, delta: float) -> PrivacyPlan:
    """Approximates the plan of `calibrate` with allocation `tuned`: omits the slack for discrete noise.

    Gaussian noise composes in closed form, so many plans can be compared without a search for each. The epsilon of the
    plan is infinite, so that it can't be mistaken for a guarantee.

    Raises:
      ValueError: if the noise doesn't fit the lattice.
    """
    from dp_accounting import gaussian_mechanism

    with np.errstate(divide="ignore"):
        level = 1.0 / float(gaussian_mechanism.get_sigma_gaussian(_PART_OF_EPSILON * epsilon, delta))
    total = math.fsum(release.share for spec in rounds for release in spec.releases)

    def planned(spec: ReleaseSpec) -> ReleasePlan:
        plan = ReleasePlan(spec=spec, noise_multiplier=math.sqrt(total / spec.share) / level)
        check_release_noise(plan)
        return plan

    plans = tuple(RoundPlan(path=spec.path, releases=tuple(map(planned, spec.releases))) for spec in rounds)
    return PrivacyPlan(unit=unit, epsilon=math.inf, delta=delta, discretization_slack=0.0, rounds=plans)


def to_json(config: FitConfig) -> dict[str, Any]:
    """The choice, in the form of `privacy.json` and `dapple plan`."""
    given = config.privacy.shares
    full = config.feddp_kmeans.space is StartSpace.FULL
    shares: dict[str, float] = given._asdict() if isinstance(given, Shares) else {}
    names: Sequence[str] = [name for name in shares if not (full and name == "outer_product")]
    return {
        "space": str(config.feddp_kmeans.space),
        "shares": {name: round(shares[name], 6) for name in names},
        "lloyd": config.lloyd.model_dump() if config.lloyd.steps else {"steps": 0},
    }
