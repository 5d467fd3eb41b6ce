"""Neighboring inputs for the audit: rounds as jobs bind them, the states they meet, and units that move them most."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyPlan, PrivacyUnit, ReleasePlan, RoundPlan, RoundSpec
from dapple_dp.schemas.kmeans.fit_config import FitConfig, of_kind, validated
from dapple_dp.schemas.kmeans.sections.privacy_config import Shares
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.transforms.core import accounting, loop
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.kmeans.windows import rounds as window_rounds
from dapple_dp.transforms.kmeans.windows import server as window_server
from dapple_dp.transforms.kmeans.windows.state import WindowState
from dapple_dp.transforms.numerics.tables import row_sampling
from tests.scenes import audit
from tests.scenes.lake import MEANS, mixture

SERVER = mixture(24, seed=99)
FAR = 10.0
"""How far beyond the clipping ball a canary is, in clipping norms."""
CLIENT_ROWS = 10
EVERY_ROUND = {"lloyd": {"steps": 2}}
_SAMPLING_KEY = bytes(range(32))


class Neighbors(NamedTuple):
    """Two inputs that differ by one privacy unit."""

    without: ClientBlock
    with_canary: ClientBlock


class Audited(NamedTuple):
    """Rounds that run together, the state each of them meets, and the epsilon they claim at `audit.DELTA`."""

    rounds: tuple[Round, ...]
    states: tuple[Any, ...]
    claim: float

    @property
    def plans(self) -> list[RoundPlan]:
        return [each.plan for each in self.rounds]

    @property
    def releases(self) -> list[ReleasePlan]:
        return [release for plan in self.plans for release in plan.releases]

    def sums(self, block: ClientBlock) -> list[NDArray[np.int64]]:
        """Exact sum of each round."""
        return [each.statistic(block, state) for each, state in zip(self.rounds, self.states, strict=True)]


def config(unit: str = "record", allocation: str = "tuned", shares: Shares | None = None, **sections: Any) -> FitConfig:
    """A job on four features; files are named, but not read."""
    base: dict[str, Any] = {
        "experimental": True,
        "algorithm": "feddp_kmeans",
        "data": {"path": "lake", "features": "x", "client_id": "who"},
        "server_data": {"path": "server"},
        "n_clusters": 3,
        "privacy": {"unit": unit, "epsilon": audit.EPSILON, "delta": audit.DELTA, "allocation": allocation},
        "clipping": {"norm": "server_radius", "client_rows": CLIENT_ROWS},
    }
    for name, values in sections.items():
        base[name] = base.get(name, {}) | values
    job = validated(base)
    return job if shares is None else job.model_copy(update={"privacy": job.privacy.with_shares(shares)})


def tree_config(unit: str = "record") -> FitConfig:
    """A job with algorithm central_tree on the same features."""
    settings = {
        "experimental": True,
        "algorithm": "central_tree",
        "data": {"path": "lake", "features": "x", "client_id": "who"},
        "n_clusters": 3,
        "privacy": {"unit": unit, "epsilon": audit.EPSILON, "delta": audit.DELTA},
        "tree": {"radius": 7.0, "depth": 7},
        "clipping": {"client_rows": CLIENT_ROWS},
        "feddp_kmeans": {"restarts": 20},
    }
    return validated(settings)


def lloyd_config(
    unit: str = "record",
    public_rows: int | None = None,
    algorithm: str = "dp_lloyd",
    served: bool = False,
    **options: Any,
) -> FitConfig:
    """A job of algorithm dp_lloyd, or of another with its section, on the same features, in a box around its rows."""
    settings = {
        "experimental": True,
        "algorithm": algorithm,
        "data": {"path": "lake", "features": "x", "client_id": "who", "public_rows": public_rows},
        "n_clusters": 3,
        "privacy": {"unit": unit, "epsilon": audit.EPSILON, "delta": audit.DELTA},
        "dp_lloyd": {"domain": [-7, 7], "steps": 1} | options,
    }
    settings |= {"server_data": {"path": "server"}} if served else {}
    return validated(settings | ({"clipping": {"client_rows": CLIENT_ROWS}} if unit == "client" else {}))


def sphere_config(unit: str = "record") -> FitConfig:
    """A job of algorithm spherical on the same features, with few rounds."""
    settings = {
        "experimental": True,
        "algorithm": "spherical",
        "data": {"path": "lake", "features": "x", "client_id": "who"},
        "n_clusters": 3,
        "privacy": {"unit": unit, "epsilon": audit.EPSILON, "delta": audit.DELTA},
        "spherical": {"steps": 2},
        "clipping": {"norm": 7.0, "client_rows": CLIENT_ROWS},
        "justification": {"privacy.unit": "made for tests"},
    }
    return validated(settings)


def prototypes_config(unit: str = "record") -> FitConfig:
    """A job of algorithm k_prototypes: a number, and two columns of codes, of which a row always has one each."""
    settings = {
        "experimental": True,
        "algorithm": "k_prototypes",
        "data": {"path": "lake", "features": ["a", "b", "c"], "client_id": "who"},
        "n_clusters": 3,
        "privacy": {"unit": unit, "epsilon": audit.EPSILON, "delta": audit.DELTA},
        "k_prototypes": {"domain": {"a": [-1, 1]}},
        "encode": {name: {"kind": "one_hot", "vocabulary": codes} for name, codes in (("b", ["x"]), ("c", ["x", "y"]))},
        "clipping": {"client_rows": CLIENT_ROWS},
    }
    return validated(settings)


def epoch_audited(unit: str = "record") -> Audited:
    """All releases of an epoch in which one unit takes part, calibrated to spend `audit.EPSILON`.

    A row is in the first window. A client has the same rows in windows 0 and 1, whose weights meet in two releases.
    """
    calendar: dict[str, Any] = {"name": "e", "column": "dt", "first": "2026-01-01", "windows": 4, "band": 3}
    contract = {"once": "made for tests"} if unit == "record" else {"max_windows": 2, "min_separation": 1}
    epoch = calendar | contract | {"window": "2026-01-01"}
    named = {"path": "lake", "features": "x", "name": "days"} | ({} if unit == "record" else {"client_id": "who"})
    settings = {"experimental": True, "algorithm": "windows", "data": named, "ledger": "none.sqlite", "epoch": epoch}
    settings |= {"recurring": {"previous": "none", "memory": 4}}
    job = of_kind(WindowsFit, lloyd_config(unit).model_dump(mode="json", exclude_none=True) | settings)
    plan = accounting.calibrate(
        job.privacy.unit,
        window_rounds.round_specs(job, SERVER.shape[1]),
        audit.EPSILON,
        audit.DELTA,
        protocol_of(job.algorithm).allocation(job),
    )
    (found,) = window_rounds.rounds(job, plan)
    state = window_server.initial_state(job, MEANS + 0.2)
    column = window_rounds.column_of(job)
    ages = range(len(column))
    anchors = np.repeat(state.anchors, len(ages), axis=0)
    statistic = functools.partial(window_rounds.window_statistic, weights=column)
    return Audited(
        tuple(Round(dataclasses.replace(found.plan, path=f"windows/age_{age}"), statistic, found.step) for age in ages),
        tuple(dataclasses.replace(state, anchors=anchors, age=age) for age in ages),
        plan.epsilon,
    )


def audited(job: FitConfig, *names: str) -> Audited:
    """Rounds of a job, calibrated to spend `audit.EPSILON` on their own, in the states of a run on ordinary rows."""
    specs = _specs(job)
    rounds_of_job = bound(job)
    states = _states(job, rounds_of_job)
    chosen = tuple(each for name in names for each in specs if each.path.endswith("/" + name))
    allocation = protocol_of(job.algorithm).allocation(job)
    plan = accounting.calibrate(job.privacy.unit, chosen, audit.EPSILON, audit.DELTA, allocation)
    rounds = tuple(rounds_of_job[each.path]._replace(plan=each) for each in plan.rounds)
    return Audited(rounds, tuple(states[each.path] for each in chosen), plan.epsilon)


def _specs(job: FitConfig) -> tuple[RoundSpec, ...]:
    """All rounds of a job before calibration."""
    return protocol_of(job.algorithm).round_specs(job, SERVER.shape[1], len(SERVER))


def bound(job: FitConfig) -> dict[str, Round]:
    """Each round as the job binds it, by path, with some noise."""
    plans = tuple(
        RoundPlan(path=each.path, releases=tuple(ReleasePlan(spec=one, noise_multiplier=0.5) for one in each.releases))
        for each in _specs(job)
    )
    plan = PrivacyPlan(unit=job.privacy.unit, epsilon=1.0, delta=0.5, discretization_slack=0.0, rounds=plans)
    return {each.plan.path: each for each in protocol_of(job.algorithm).rounds(job, plan)}


def _states(job: FitConfig, rounds: dict[str, Round]) -> dict[str, Any]:
    """The state before each round in one run."""
    initial = protocol_of(job.algorithm).initial_state(job, SERVER, SERVER.shape[1])
    found = loop.simulate(initial, list(rounds.values()), [ordinary(job)], audit.key_of(0))
    return dict(zip(rounds, found.states, strict=False))


def ordinary(job: FitConfig, n_rows: int = 90) -> ClientBlock:
    """Rows that are there in any case; clients of `CLIENT_ROWS` rows at client level."""
    by_client = job.privacy.unit is PrivacyUnit.CLIENT
    return ClientBlock(mixture(n_rows), np.arange(0, n_rows + 1, CLIENT_ROWS) if by_client else None)


def directions() -> NDArray[np.float64]:
    """Unit vectors: axes, means of clusters, anything, all of them both ways."""
    anything = np.random.default_rng(5).normal(size=(20, SERVER.shape[1]))
    found = np.concatenate([np.eye(SERVER.shape[1]), MEANS, anything])
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return np.concatenate([found, -found])


def worst_neighbors(target: Audited, candidates: Iterator[Neighbors]) -> Neighbors:
    """The candidates that the planned noise distinguishes best."""

    def distance(pair: Neighbors) -> float:
        without, with_canary = (np.concatenate(target.sums(block)) for block in pair)
        return float(audit.scores(target.releases, with_canary[None], without, with_canary)[0, 0])

    return max(candidates, key=distance)


def record_candidates(job: FitConfig, state: Any) -> Iterator[Neighbors]:
    """One more row, far away."""
    base = ordinary(job).points
    for row in _rows(state, FAR):
        yield Neighbors(ClientBlock(base), ClientBlock(np.concatenate([base, row[None]])))


def client_candidates(job: FitConfig, state: Any) -> Iterator[Neighbors]:
    """One more client: rows in one place near and far, few and many, and rows all over the server data."""
    base = ordinary(job)
    spread = [SERVER, SERVER * FAR]
    heaps = [np.tile(row, (n, 1)) for n in (1, 30) for reach in (0.1, 0.3, FAR) for row in _rows(state, reach)]
    for rows in [*heaps, *spread, np.tile(_rows(state, FAR)[:1], (3000, 1))]:
        points = np.concatenate([base.points, rows])
        yield Neighbors(base, ClientBlock(points, np.append(base.client_offsets, len(points))))


def sampled_candidates(job: FitConfig, state: Any) -> Iterator[Neighbors]:
    """One more row of a client that may keep one: the sample loses a row and gains another."""
    base = ordinary(job).points
    rows = _rows(state, FAR)
    for index, first in enumerate(rows):
        for second in (rows[index - len(rows) // 2], *rows[::7]):
            yield Neighbors(_sampled(base, first[None]), _sampled(base, np.stack([first, second])))


def _sampled(base: NDArray[np.float64], rows: NDArray[np.float64]) -> ClientBlock:
    """Ordinary rows with a client each, and one client whose rows are sampled."""
    points = np.concatenate([base, rows])
    clients = np.minimum(np.arange(len(points)), len(base))
    digests = np.arange(len(base) + 1, dtype=np.uint64)
    return ClientBlock(points[row_sampling.sample_rows(points, clients, digests, 1, _SAMPLING_KEY)])


def _rows(state: Any, reach: float) -> NDArray[np.float64]:
    """A row in every direction, `reach` clipping norms away from the center, and what moves sums in a domain."""
    rows = state.frame.lattice.center + directions() * (reach * state.frame.lattice.clipping_norm)
    in_domain = isinstance(state, LloydState | WindowState)
    rows = np.concatenate([rows, _domain_rows(state, reach)]) if in_domain else rows
    alternatives = getattr(state, "alternatives", None)
    return (
        rows if alternatives is None else np.concatenate([rows, state.frame.lattice.center + alternatives * state.unit])
    )


def _domain_rows(state: LloydState | WindowState, reach: float) -> NDArray[np.float64]:
    """A row towards every corner of the domain, and rows just inside the radius of every center."""
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=state.n_features)))
    rows = state.frame.lattice.center + corners * (reach * state.frame.lattice.clipping_norm)
    if state.positions is None or reach < 1.0:
        return rows
    around = state.positions[:, None, :] + directions() * (0.999 * state.radius * state.unit)
    return np.concatenate([rows, around.reshape(-1, state.n_features)])


CANDIDATES: dict[str, Callable[[FitConfig, Any], Iterator[Neighbors]]] = {
    "record": record_candidates,
    "client": client_candidates,
    "sampled": sampled_candidates,
}


def neighbors_of(kind: str, job: FitConfig, target: Audited) -> Neighbors:
    """The worst neighbors of one kind; clipping is that of the last state."""
    return worst_neighbors(target, CANDIDATES[kind](job, target.states[-1]))


def lower_bounds(target: Audited, pair: Neighbors, n_runs: int = audit.RUNS) -> audit.Bounds:
    """Audited epsilons of real draws of the rounds on the two inputs, `n_runs` of each."""
    sums = [target.sums(block) for block in pair]
    exact = [np.concatenate(each) for each in sums]
    found = [
        audit.scores(target.releases, audit.draws(target.plans, each, n_runs, 1 + side * n_runs), *exact)
        for side, each in enumerate(sums)
    ]
    return audit.both_bounds(*found)


def with_sensitivity(target: Audited, factor: float) -> Audited:
    """The same rounds with noise for another sensitivity than they claim."""

    def scaled(plan: ReleasePlan) -> ReleasePlan:
        spec = dataclasses.replace(plan.spec, sensitivity=int(plan.spec.sensitivity * factor))
        return dataclasses.replace(plan, spec=spec)

    rounds = tuple(
        each._replace(plan=dataclasses.replace(each.plan, releases=tuple(map(scaled, each.plan.releases))))
        for each in target.rounds
    )
    return target._replace(rounds=rounds)
