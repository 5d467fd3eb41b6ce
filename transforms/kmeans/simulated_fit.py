"""Simulates a fit on public or stand-in rows with the noise of its plan; reads no private row.

Rows are drawn with replacement from public ones, at most `MOST_ROWS` of them, and stand for the assumed number: their
exact sums are scaled to that many rows, and then get the noise of the plan. So noise, thresholds and
public counts are those of the real run. The keys of this noise are public and fixed, and serve no other draw.
"""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyUnit, RoundPlan
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.tables.encoding import OneHot
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.core.round import Round, measure
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.numerics.kernel import row_pass
from dapple_dp.transforms.numerics.kmeans import lloyd_rules
from dapple_dp.transforms.numerics.kmeans.starts import seeding
from dapple_dp.transforms.numerics.one_thread import one_thread
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters

MOST_ROWS = 20_000
"""Most rows that one simulation works on; they stand for any number."""
DRAWS = 5
_STAND_IN_CLUSTER = 0.1
"""Stddev of a stand-in cluster in each direction, in units of half a side (of the radius) over sqrt(d)."""
_PROBES = (0.0, 3.0, 30.0)
"""Sizes of random sums, over their noise, that show which noise depends on earlier releases."""
_LABEL = b"dapple simulated fit, a public key"


class SimulatedFit(NamedTuple):
    """Costs of simulated runs.

    Attributes:
      costs: shape (draws,): mean squared distance of the simulated rows to their nearest center, feature units squared.
      without_noise: cost of k-means on the same rows, which a run reaches only by chance.
      model: of the last run; its releases have their noise in feature units.
      seconds: of one core, for the statistics of one run on the simulated rows.
      units: shape (draws, n_releases): lattice units of the releases, in feature units, which determine their noise.
    """

    costs: NDArray[np.float64]
    without_noise: float
    model: ClusterModel
    seconds: float
    units: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Mean cost of a run."""
        return float(self.costs.mean())

    @property
    def spread(self) -> float:
        """Stddev of the cost from run to run; NaN for one draw."""
        return float(self.costs.std(ddof=1)) if len(self.costs) > 1 else float("nan")


def simulate_rounds(
    initial: Any,
    rounds: Sequence[Round],
    rows: ClientBlock,
    n_units: int,
    n_clusters: int,
    *,
    variance: float = 1.0,
    draws: int = DRAWS,
    seed: int = 0,
) -> SimulatedFit:
    """Simulates runs of planned rounds on public rows.

    Args:
      initial: state before the first round.
      rounds: of the plan, in order.
      rows: of `drawn_rows`.
      n_units: assumed number of rows (privacy unit client: of clients) that they stand for, from 1 to 2**31 - 1.
      n_clusters: number of clusters for the cost without noise.
      variance: of the noise that is drawn, over the planned one, >= 1.
      draws: number of runs, >= 1, with independent noise.
      seed: public.
    """
    simulated = len(rows.points) if rows.offsets is None else rows.n_clients
    costs, units, seconds = [], [], list[float]()
    timed = [_timed(each, seconds) for each in rounds]
    row_pass.start()
    with one_thread():
        for draw in range(draws):
            key = hashlib.sha256(_LABEL + b"/%d/%d" % (seed, draw)).digest()
            found = loop.simulate(initial, timed, [rows], key, factor=n_units / simulated, variance=variance)
            model = found.model()
            costs.append(mean_cost(rows.points, model.centers))
            units.append([release.lattice_unit for release in model.releases])
    points = rows.points.astype(np.float64)
    best = seeding.weighted_kmeans(points, np.ones(len(points)), min(n_clusters, len(points)), 1, seed).centers
    return SimulatedFit(np.array(costs), mean_cost(points, best), model, sum(seconds) / draws, np.array(units))


def _timed(round_: Round, seconds: list[float]) -> Round:
    """Returns the round with a statistic that records its time."""

    def statistic(block: ClientBlock, state: Any) -> NDArray[np.int64]:
        start = time.thread_time()
        found = measure(round_, block, state)
        seconds.append(time.thread_time() - start)
        return found

    return round_._replace(statistic=statistic)


def probed_units(initial: Any, rounds: Sequence[Round]) -> NDArray[np.float64]:
    """Returns the lattice units of releases of runs with random sums, shape (runs, n_releases), as in `SimulatedFit`.

    If they differ, the bound of a sum, and so its noise, depends on earlier releases. Bounds of clients are
    medians over pseudo-clients in released clusters, which may be equal by chance. So one run uses other pseudo-clients
    from the second round on: all rows of each are one row.

    Args:
      initial: state before the first round.
      rounds: of the plan, in order.
    """
    found = [_units_of(initial, rounds, scale) for scale in _PROBES]
    samples = getattr(initial, "samples", np.zeros(0))
    if samples.size:
        one_row = np.broadcast_to(samples[:, :1], samples.shape)
        found.append(_units_of(dataclasses.replace(initial, samples=one_row), rounds, _PROBES[-1]))
    return np.array(found)


def _units_of(initial: Any, rounds: Sequence[Round], scale: float) -> list[float]:
    """Returns the lattice units of a run whose sums are random, `scale` times as large as their noise."""
    rng = np.random.default_rng(round(scale))

    def random_sums(_: ClientBlock, state: Any, plan: RoundPlan) -> NDArray[np.int64]:
        noise = np.concatenate([np.full(release.spec.size, release.noise_stddev) for release in plan.releases])
        return np.rint(scale * noise * rng.normal(size=plan.size)).astype(np.int64)

    made = [each._replace(statistic=functools.partial(random_sums, plan=each.plan)) for each in rounds]
    model = loop.simulate(initial, made, [ClientBlock(np.zeros((0, 0)))], hashlib.sha256(_LABEL).digest()).model()
    return [each.lattice_unit for each in model.releases]


def mean_cost(points: NDArray[np.floating], centers: NDArray[np.float64]) -> float:
    """Returns the mean squared distance of rows, shape (n, d), to the nearest of some centers, shape (k, d)."""
    return float(NearestCenters.of(centers).rows(points).squared.mean())


def drawn_rows(config: FitConfig, points: NDArray[np.float64], n_units: int, seed: int) -> ClientBlock:
    """Draws rows with replacement from public points, shape (q, d); clients of `clipping.client_rows` each, if needed.

    Rows of one client are drawn like all others, so clients differ less than private ones may.

    Raises:
      ConfigError: if the number of units is out of range.
    """
    if not 1 <= n_units <= lattice.MAX_ROWS:
        raise ConfigError(f"the assumed number of rows or clients must be from 1 to {lattice.MAX_ROWS}, got {n_units}.")
    rng = np.random.default_rng([seed, 6])
    if config.privacy.unit is PrivacyUnit.RECORD:
        return ClientBlock(points[rng.integers(0, len(points), min(n_units, MOST_ROWS))])
    client_rows = min(config.clipping.client_rows or 1, MOST_ROWS)
    n_clients = max(1, min(n_units, MOST_ROWS // client_rows))
    taken = rng.integers(0, len(points), n_clients * client_rows)
    return ClientBlock(points[taken], np.arange(n_clients + 1, dtype=np.int64) * client_rows)


def stand_in_points(config: FitConfig, n_features: int, seed: int) -> NDArray[np.float64]:
    """Draws a mixture with the job's number of clusters inside its public bounds, shape (MOST_ROWS, d)."""
    rng = np.random.default_rng([seed, 7])
    norm = config.clipping.norm
    ball = norm if isinstance(norm, float) else 1.0
    centers = seeding.points_in_ball(config.max_clusters, n_features, ball, seed)
    width = ball
    if isinstance(config, DPLloydFit):
        box = lloyd_rules.box_of(config.dp_lloyd)
        centers = rng.uniform(box.low, box.high, centers.shape)
        width = box.half_side * np.sqrt(n_features)
    spread = rng.normal(0.0, _STAND_IN_CLUSTER * width / np.sqrt(n_features), (MOST_ROWS, n_features))
    return _with_codes(config, np.asarray(centers[np.arange(MOST_ROWS) % len(centers)] + spread))


def _with_codes(config: FitConfig, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The points with one category in each column that is one_hot, as rows have them: that of its largest feature."""
    place = 0
    for name in () if isinstance(config.data.features, str) else config.data.features:
        encoding, missing = config.encodings.get(name), config.data.missing.get(name)
        if not isinstance(encoding, OneHot):
            place += 2 if missing is not None and missing.indicator else 1
            continue
        part = points[:, place : place + len(encoding.vocabulary)]
        part[:] = np.where(np.arange(part.shape[1]) == part.argmax(axis=1)[:, None], encoding.weight, 0.0)
        place += part.shape[1]
    return points
