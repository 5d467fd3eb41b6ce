"""Jobs whose statements `benchmarks.coverage` counts, one run at a time, each with its truths."""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import dapple_dp
from benchmarks import continual
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from dapple_dp.pipelines.kmeans.plan.public_facts import learned_encoder
from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
from dapple_dp.pipelines.kmeans.plan.replay import replayed
from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.kmeans.fit_config import FITS, FitConfig, validated
from dapple_dp.schemas.kmeans.model import ClusterModel, ClusterNames
from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.schemas.privacy.meaning import Role
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.core.round import measure
from dapple_dp.transforms.kmeans.central_tree import server as tree_server
from dapple_dp.transforms.kmeans.protocols import warm_protocol
from dapple_dp.transforms.kmeans.spherical.names import cluster_names
from dapple_dp.transforms.kmeans.spherical.server import KEPT
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans, last_means, released_as
from dapple_dp.transforms.numerics.kmeans.recurring.memory import memory_of, most_runs, recalled
from dapple_dp.transforms.numerics.one_thread import one_thread

Rows = NDArray[np.float64]
Found = dict[str, tuple[int, int]]
"""Of each claim, how many were right, or false, and how many were made."""
N_FEATURES, N_CLUSTERS, N_ROWS = 6, 4, 4_000
CLIENT_ROWS, N_CLIENTS = 10, 1_500
MEANS = np.full((N_CLUSTERS, N_FEATURES), 0.5)
MEANS[:, :3] = [[0.25, 0.3, 0.5], [0.75, 0.3, 0.6], [0.25, 0.75, 0.4], [0.7, 0.7, 0.5]]
"""Clusters differ in three features, and are alike in three others."""
SPREAD = 0.06
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])


def key_of(*words: object) -> bytes:
    """A public key of one draw."""
    return hashlib.sha256(repr(words).encode()).digest()


def mixture(seed: int, n_rows: int = N_ROWS) -> Rows:
    """Rows around `MEANS`, shape (n, d)."""
    rng = np.random.default_rng([seed, 1])
    labels = rng.choice(N_CLUSTERS, n_rows, p=WEIGHTS)
    return np.clip(MEANS[labels] + rng.normal(0.0, SPREAD, (n_rows, N_FEATURES)), 0.0, 1.0)


def settings(algorithm: str, **more: Any) -> FitConfig:
    """A job; no file of it is read."""
    found: dict[str, Any] = {
        "experimental": True,
        "algorithm": algorithm,
        "data": {"path": "none", "features": [f"x{index}" for index in range(N_FEATURES)]},
        "n_clusters": N_CLUSTERS,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
    }
    if FITS[algorithm].has_domain:
        found["dp_lloyd"] = {"domain": [0.0, 1.0]}
    return validated({**found, **more})


@functools.cache
def server_rows() -> Rows:
    """Public rows like the private ones."""
    return mixture(10_000_019, 400)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A job ready to run on arrays.

    Attributes:
      config: the job.
      fit: its rounds.
      encoder: of its columns, if it encodes some.
    """

    config: FitConfig
    fit: PublicFit
    encoder: Encoder | None = None

    @classmethod
    def of(cls, config: FitConfig, centers: Rows | None = None) -> "Job":
        """A job, from the centers of an earlier run if there are some."""
        protocol = None if centers is None else warm_protocol(config, centers)
        encoder = learned_encoder(config.data, config.encodings, None)
        width = len(config.data.features) if encoder is None else encoder.n_features
        server = server_rows() if config.server_data is not None else np.zeros((0, width))
        return cls(config=config, fit=PublicFit.of(config, server, protocol), encoder=encoder)

    def run(self, block: ClientBlock, key: bytes) -> tuple[Any, ClusterModel, NDArray[np.int64]]:
        """The state before the last round, what is released, and the exact sum of the last round."""
        *_, (before, after, exact) = self.steps(block, key)
        return before, after.model(), exact

    def steps(self, block: ClientBlock, key: bytes) -> list[tuple[Any, Any, NDArray[np.int64]]]:
        """The states before and after each round, and its exact sum."""
        with one_thread():
            states = loop.simulate(self.fit.initial, self.fit.rounds, [block], key).states
            pairs = zip(self.fit.rounds, itertools.pairwise(states), strict=True)
            return [(before, after, measure(each, block, before.broadcast())) for each, (before, after) in pairs]

    def view(self, model: ClusterModel) -> FitView:
        """Returns the view from which the page of a run is written."""
        config, fit = self.config, self.fit
        by_client = config.privacy.unit is PrivacyUnit.CLIENT
        width = None if self.encoder else model.centers.shape[1]
        contract = TableContract.from_config(config.data, n_features=width, by_client=by_client, encoder=self.encoder)
        planned = PlannedFit(
            config=config,
            source=None,  # type: ignore[arg-type]
            contract=contract,
            initial=fit.initial,
            plan=fit.plan,
            rounds=fit.rounds,
        )
        return FitView.of(planned, FitResult(model, planned.statement, ""))


def nearest(rows: Rows, centers: Rows) -> NDArray[np.int64]:
    """Which center each row is nearest to."""
    return ((centers**2).sum(axis=1) - 2.0 * rows @ centers.T).argmin(axis=1).astype(np.int64)


def within(model: ClusterModel, sizes: NDArray[np.float64], means: Rows, stddevs: float = 2.0) -> Found:
    """Counts intervals of nonempty clusters that hold their truths; none if the noise is unknown."""
    there = model.noisy_sizes >= 2.0 * model.size_stddevs
    right = np.abs(model.noisy_sizes - sizes) <= stddevs * model.size_stddevs
    known, plain = np.isfinite(model.center_stddevs), model.centers if model.noisy_means is None else model.noisy_means
    known &= there[:, None]
    close = known & (np.abs(plain - means) <= stddevs * model.center_stddevs)
    return {"sizes": (int(right[there].sum()), int(there.sum())), "centers": (int(close.sum()), int(known.sum()))}


def truth_of(before: Any, rows: Rows) -> tuple[NDArray[np.float64], Rows]:
    """Sizes and means of the rows nearest to each center; a row farther off than the round's radius is shortened."""
    start = before.positions
    labels, radius = nearest(rows, start), getattr(before, "radius", math.inf)
    moved = rows - start[labels]
    if math.isfinite(radius):
        moved *= np.minimum(1.0, radius * before.unit / np.maximum(np.linalg.norm(moved, axis=1), 1e-300))[:, None]
    sizes = np.bincount(labels, minlength=len(start)).astype(np.float64)
    sums = np.stack([np.bincount(labels, column, len(start)) for column in moved.T], axis=1)
    return sizes, start + sums / np.maximum(sizes, 1.0)[:, None]


def of_rows(job: Job, rows: Rows, key: bytes) -> tuple[Found, ClusterModel]:
    """A run at record level."""
    before, model, _ = job.run(ClientBlock(rows), key)
    return within(model, *truth_of(before, rows)), model


def outstanding_of(view: FitView, rows: Rows) -> Found:
    """Counts features by which a page says that clusters stand out, but on the other side of the mean."""
    labels, there, centers = nearest(rows, view.result.model.centers), view.summary.found, view.summary.centers
    own = [rows[labels == index] for index in range(len(there))]
    truth = np.stack([part.mean(axis=0) if len(part) else center for part, center in zip(own, centers, strict=True)])
    offsets = truth - truth[there].mean(axis=0)
    named = [(index, *each) for index in np.flatnonzero(there) for each in view.summary.outstanding(int(index), 3)]
    false = sum(offsets[index, feature] * sign <= 0.0 for index, feature, sign in named)
    return {"false features": (int(false), len(named))}


def fitted(algorithm: str, seed: int, /, **more: Any) -> Found:
    """A fit at record level: its intervals, and what its page says."""
    job, rows = job_of(algorithm, **more), mixture(seed)
    found, model = of_rows(job, rows, key_of("record", algorithm, seed))
    return found | outstanding_of(job.view(model), rows)


_JOBS: dict[str, Job] = {}


def job_of(algorithm: str, **more: Any) -> Job:
    """A job that is planned once."""
    name = repr((algorithm, more))
    if name not in _JOBS:
        _JOBS[name] = Job.of(settings(algorithm, **more))
    return _JOBS[name]


SERVER: dict[str, Any] = {"server_data": {"path": "server"}, "clipping": {"norm": "server_radius"}}


def of_fit(algorithm: str, more: dict[str, Any], unit: str, seed: int) -> Found:
    """A fit whose last round sums rows, or directions to rows, by their nearest center."""
    return (fitted if unit == "record" else of_clients)(algorithm, seed, **more)


def by_client(n_features: int = N_FEATURES, /, **more: Any) -> dict[str, Any]:
    """Settings of a job at client level."""
    return more | {
        "privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6},
        "data": {"path": "none", "features": [f"x{index}" for index in range(n_features)], "client_id": "client"},
        "clipping": dict(more.get("clipping", {})) | {"client_rows": CLIENT_ROWS},
    }


def of_unit(unit: str, seed: int) -> ClientBlock:
    """Rows around `MEANS`, of as many clients as there are thousands, or of none."""
    if unit == "record":
        return ClientBlock(mixture(seed))
    offsets = np.arange(N_CLIENTS + 1, dtype=np.int64) * CLIENT_ROWS
    return ClientBlock(mixture(seed, N_CLIENTS * CLIENT_ROWS), offsets)


def of_clients(algorithm: str, seed: int, /, **more: Any) -> Found:
    """A fit at client level: a size is the weight that clients have within their bounds, so the exact sum is true."""
    job, block = job_of(algorithm, **by_client(**more)), of_unit("client", seed)
    _, model, exact = job.run(block, key_of("client", algorithm, seed))
    sums, counts = model.releases[-2:]
    k = model.n_clusters
    sizes = exact[sums.values.size :][:k] * counts.lattice_unit
    means = np.full_like(model.centers, np.nan)
    if model.noisy_means is not None:
        moved = exact[: sums.values.size].reshape(sums.values.shape)[:k] * sums.lattice_unit
        middle = model.noisy_means - sums.decoded[:k] / np.maximum(model.noisy_sizes, counts.stddev)[:, None]
        means = middle + moved / np.maximum(sizes, 1e-9)[:, None]
    return within(model, sizes, means) | outstanding_of(job.view(model), block.points)


TREE: dict[str, Any] = {"tree": {"radius": 1.0, "center": [0.5] * N_FEATURES}}


def of_trees(unit: str, seed: int) -> Found:
    """A fit whose clusters are leaves of a tree: truths are the rows in the leaves of each."""
    job, block = job_of("central_tree", **(by_client(**TREE) if unit == "client" else TREE)), of_unit(unit, seed)
    before, model, exact = job.run(block, key_of("tree", unit, seed))
    sums, counts = model.releases[-2:]
    leaves = tree_server.noisy_leaves(before, (sums, counts))
    labels = tree_server.clustered_leaves(before, leaves).clustering.labels[: len(leaves.counts)]
    parts = exact[: sums.values.size].reshape(sums.values.shape)[: len(labels)] * sums.lattice_unit
    weights = exact[sums.values.size :][: len(labels)] * counts.lattice_unit
    members = (labels[:, None] == np.arange(model.n_clusters)).T.astype(np.float64)
    sizes = members @ weights
    means = members @ parts / np.maximum(sizes, 1e-9)[:, None] + job.fit.initial.frame.lattice.center
    return within(model, sizes, means) | outstanding_of(job.view(model), block.points)


CODES = {"ward": 3, "sex": 2}
"""Codes that are listed in each column; rows have one more."""


def of_prototypes(unit: str, seed: int) -> Found:
    """A fit of rows with codes: truths are the very sums and cells of its last round."""
    names = [f"x{index}" for index in range(3)]
    record: dict[str, Any] = {"data": {"path": "none"}, "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}}
    more = by_client() if unit == "client" else record
    job = _prototypes_job(more | {"data": more["data"] | {"features": [*names, *CODES]}})
    block = of_unit(unit, seed)
    block = block._replace(points=_with_codes(job, block.points, seed))
    before, model, exact = job.run(block, key_of("prototypes", unit, seed))
    sums, cells = model.releases[-2:]
    moved, counted = np.split(exact, [sums.values.size])
    counted = counted.reshape(cells.values.shape) * cells.lattice_unit
    sizes, columns = before.weighed(counted), before.settings.columns
    means = before.positions + moved.reshape(sums.values.shape) * sums.lattice_unit / np.maximum(sizes, 1e-9)[:, None]
    for (first, size), part in zip(columns.codes, columns.by_column(counted), strict=True):
        means[:, first : first + size] = columns.length * part[:, :size] / np.maximum(sizes, 1e-9)[:, None]
    return within(model, sizes, means) | outstanding_of(job.view(model), block.points)


def _prototypes_job(more: dict[str, Any]) -> Job:
    """A job that is planned once."""
    if (name := repr(more)) not in _JOBS:
        lists = {each: {"kind": "one_hot", "vocabulary": list(range(size))} for each, size in CODES.items()}
        own = {"domain": {f"x{index}": [0.0, 1.0] for index in range(3)}}
        found = {"experimental": True, "algorithm": "k_prototypes", "n_clusters": N_CLUSTERS}
        _JOBS[name] = Job.of(validated(found | {"k_prototypes": own, "encode": lists} | more))
    return _JOBS[name]


def _with_codes(job: Job, rows: Rows, seed: int) -> Rows:
    """Features of rows: three numbers, and codes that are as frequent as their cluster has it."""
    rng, labels = np.random.default_rng([seed, 13]), nearest(rows, MEANS)
    columns: dict[str, Any] = {f"x{index}": rows[:, index] for index in range(3)}
    for name, size in CODES.items():
        often = rng.random(len(rows)) < 0.7
        columns[name] = np.where(often, labels % (size + 1), rng.integers(0, size + 1, len(rows)))
    assert job.encoder is not None
    return job.encoder.encode(pa.table(columns), "a benchmark")


WIDE = 24
"""Features of rows with directions."""
TERMS, MOST_TERMS = 20, 12
NAMED: dict[str, Any] = {"names": {"column": "tags", "words": [f"w{index}" for index in range(TERMS)]}}


def of_directions(unit: str, seed: int, *, topics: bool = False) -> Found:
    """A spherical fit: truths are the very sums of its rounds without their noise, made as long as a center."""
    names = [f"x{index}" for index in range(WIDE)]
    record = {"data": {"path": "none", "features": names}, "justification": {"privacy.unit": "rows of a benchmark"}}
    more = (by_client(WIDE) if unit == "client" else record) | (NAMED if topics else {})
    job, (block, codes) = job_of("spherical", **more), _directions(unit, seed)
    rows, given = block.points, block._replace(points=np.hstack([block.points, codes])) if topics else block
    totals, sizes, state = np.zeros((0, WIDE)), np.zeros(0), job.fit.initial
    for before, state, exact in job.steps(given, key_of("topics" if topics else "directions", unit, seed)):
        if state.step == before.step:
            counts = released_as(state.releases, Role.CLUSTER_COUNTS)
            sizes = exact[: state.sizes.size] * counts.lattice_unit
            continue
        sums = state.releases[-1]
        earlier = totals if len(totals) else np.zeros(sums.values.shape)
        totals = KEPT * earlier + exact.reshape(sums.values.shape) * sums.lattice_unit
        # Centers that were merged, or start over, forget what was summed.
        kept = state.totals.any(axis=1)[:, None]
        totals = np.where(kept, totals if len(totals) == len(kept) else 0.0, 0.0)
    lengths, model = np.maximum(np.linalg.norm(totals, axis=1, keepdims=True), 1e-300), state.model()
    found = within(model, sizes, totals / lengths * state.frame.lattice.clipping_norm)
    if topics:
        false = _false_names(cluster_names(job.config, model.releases), (rows @ state.centers.T).argmax(axis=1), codes)
        found |= {"runs with a false name": (int(false > 0), 1)}
    return found


def _directions(unit: str, seed: int) -> tuple[ClientBlock, Rows]:
    """Rows of length 1 in four directions, and the terms of each, -1 for none, shape (n, `MOST_TERMS`).

    Of three seeds one has terms that are alike in all clusters, one a term in half of two clusters of which one has
    long lists, and one a term of each cluster's own.
    """
    rng, n_rows = np.random.default_rng([seed, 12]), N_ROWS if unit == "record" else N_CLIENTS * CLIENT_ROWS
    means = np.random.default_rng(12).normal(size=(N_CLUSTERS, WIDE))
    labels = rng.choice(N_CLUSTERS, n_rows, p=WEIGHTS)
    rows = means[labels] + rng.normal(0.0, 0.5, (n_rows, WIDE))
    offsets = np.arange(N_CLIENTS + 1, dtype=np.int64) * CLIENT_ROWS if unit == "client" else None
    alike = np.where(rng.random((n_rows, MOST_TERMS)) < 0.3, np.arange(float(MOST_TERMS)), -1.0)
    if seed % 3 == 1:
        alike[:, 0] = np.where((labels < 2) & (rng.random(n_rows) < 0.5), 0.0, -1.0)
        alike[labels == 0, 1:] = -1.0
    if seed % 3 == 2:
        alike[:, 0] = np.where(rng.random(n_rows) < 0.6, MOST_TERMS + labels, -1.0)
    return ClientBlock(rows / np.linalg.norm(rows, axis=1, keepdims=True), offsets), alike


def _false_names(found: ClusterNames | None, labels: NDArray[np.int64], codes: Rows) -> int:
    """Counts names of terms that are no more frequent in their cluster than in all rows.

    All clients have the same number of rows, so that rows weigh alike at both units.
    """
    if found is None:
        raise ValueError("the job must name clusters; check its settings.")
    has = np.stack([(codes == term).any(axis=1) for term in range(TERMS)], axis=1)
    near = labels[:, None] == np.arange(N_CLUSTERS)
    false = near.T.astype(float) @ has <= near.mean(axis=0)[:, None] * has.sum(axis=0)
    return sum(bool(false[cluster, int(term[1:])]) for cluster, term in zip(found.clusters, found.terms, strict=True))


NIGHTS = 4
LENGTH = 4


def of_nights(seed: int) -> Found:
    """The last of some nights, each from the centers of the one before, and the means that all of them remember."""
    more = {"recurring": {"previous": "none", "memory": LENGTH}, "dp_lloyd": {"domain": [0.0, 1.0], "steps": 1}}
    config, centers, memory, exact = settings("dp_lloyd", **more), MEANS, None, None
    found: Found = {}
    for night in range(NIGHTS):
        job, rows = Job.of(config, centers), mixture(1000 * seed + night)
        found, model = of_rows(job, rows, key_of("night", seed, night))
        noisy = last_means(model.releases, model.n_clusters)
        own, truth = memory_of(noisy, model.noisy_means), _true_night(job, rows)
        memory = own if memory is None else memory.then(own, most_runs(LENGTH))
        exact = truth if exact is None else exact.then(truth, most_runs(LENGTH))
        recall = recalled(memory, LENGTH)
        centers = np.where(recall.known[:, None], recall.means, model.centers)
    noise = np.sqrt(recall.variances(memory) / N_FEATURES)[:, None]
    close = (np.abs(recall.means - recalled(exact, LENGTH).means) <= 2.0 * noise)[recall.known]
    return found | {"remembered": (int(close.sum()), int(close.size))}


def _true_night(job: Job, rows: Rows) -> Memory:
    """Returns what a night would remember without noise."""
    start = job.fit.initial.positions
    counts, means = truth_of(job.fit.initial, rows)
    return memory_of(NoisyMeans((means - start) * counts[:, None], counts, 1e-12, 1e-12), means)


def of_windows(seed: int, stddevs: float = 2.0, unit: str = "record") -> Found:
    """The last window of an epoch, whose own part is solved from releases that hold earlier windows, too."""
    setting = continual.Setting(
        name="coverage", n_features=N_FEATURES, n_clusters=N_CLUSTERS, n_rows=0, spread=0.0, domain=(0.0, 1.0)
    )
    epoch = {"once": None, "max_windows": 1, "min_separation": 1}
    more = by_client(epoch=epoch) if unit == "client" else {}
    if more:
        more["data"] |= {"name": "windows"}
    stream = continual.Stream(setting, MEANS, 12, **more)
    for window in range(NIGHTS):
        block = of_unit(unit, 1000 * seed + window)
        stream.window(block, key_of("window", seed, window))
    model, start = stream.state.model(), stream.state.positions
    if unit == "record":
        return within(model, *truth_of(stream.state, block.points), stddevs)
    sums, counts = stream.state.releases[-2:]
    own = stream.own_exact / stream.weights[0]
    sizes = own[sums.values.size :] * counts.lattice_unit
    moved = own[: sums.values.size].reshape(sums.values.shape) * sums.lattice_unit
    return within(model, sizes, start + moved / np.maximum(sizes, 1e-9)[:, None], stddevs)


SHARDS = 8


def of_masks(noise_by: str, seed: int) -> Found:
    """A masked fit as users run it, on files: what noise a release has follows from who sent."""
    rows = mixture(seed)
    masked: dict[str, Any] = {"threshold": SHARDS // 2 if noise_by == "clients" else 1, "noise_by": noise_by}
    masked |= {"corrupt": 0} if noise_by == "clients" else {}
    box = {"domain": [0.0, 1.0], "init": "sphere_packing", "steps": 3}
    with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        _write(folder, rows)
        config = settings(
            "dp_lloyd", data=_data(folder), trust="masked", masked=masked, dp_lloyd=box, clipping={"norm": "domain"}
        )
        model = dapple_dp.fit(config).model
    job = Job.of(config)
    *_, before, _ = replayed(job.fit.initial, job.fit.rounds, model.releases)
    sizes, means = truth_of(before, rows)
    return within(model, sizes, means)


def _data(folder: str) -> dict[str, Any]:
    return {"path": folder, "features": [f"x{index}" for index in range(N_FEATURES)]}


def _write(folder: str, rows: Rows, **more: Any) -> None:
    """A file for each party."""
    table = pa.table({f"x{index}": column for index, column in enumerate(rows.T)} | more)
    size = -(-len(rows) // SHARDS)
    for part in range(SHARDS):
        pq.write_table(table.slice(part * size, size), f"{folder}/part-{part}.parquet")


WORDS = np.array(["clerk", "smith", "farmer"])


@functools.cache
def _model() -> str:
    """The folder of a released model, for profiles; it stays until the command ends."""
    folder = tempfile.mkdtemp(prefix="dapple-coverage-")
    rows = pathlib.Path(folder, "rows")
    rows.mkdir()
    _write(str(rows), mixture(7))
    job = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": _data(str(rows)),
        "n_clusters": N_CLUSTERS,
        "clipping": {"norm": "domain"},
    }
    job |= {"privacy": {"unit": "record", "epsilon": 4.0, "delta": 1e-6}, "dp_lloyd": {"domain": [0.0, 1.0]}}
    pathlib.Path(folder, "job.yaml").write_text(json.dumps(job))
    words = ["fit", "--config", f"{folder}/job.yaml", "--output", f"{folder}/fit"]
    subprocess.run([sys.executable, "-m", "dapple_dp", *words], check=True, capture_output=True)
    return f"{folder}/fit"


def of_profile(seed: int) -> Found:
    """A profile as users run it: sizes, and means and counts of values by cluster, each with the noise it states."""
    rng, rows = np.random.default_rng([seed, 3]), mixture(seed)
    centers = np.array(pq.read_table(f"{_model()}/centers.parquet")["center"].to_pylist())
    labels = nearest(rows, centers)
    age = np.clip(rng.normal(40.0 + 5.0 * labels, 10.0), 0.0, 100.0)
    work = WORDS[(labels + rng.integers(0, 2, len(rows))) % 3]
    with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        _write(folder, rows, age=age, work=work)
        found = dapple_dp.profile(_profile_job(folder)).profile.to_pylist()
    tallies: dict[str, list[bool]] = {"sizes": [], "values": []}
    for row in found:
        if row["noise_stddev"] is None:
            continue
        there = labels == row["cluster"]
        truth = {
            None: float(there.sum()),
            "age": float(age[there].mean()),
            "work": float((work[there] == row["value"]).sum()),
        }[row["column"]]
        kind = "sizes" if row["column"] is None else "values"
        tallies[kind].append(abs(row["noisy_value"] - truth) <= 2.0 * row["noise_stddev"])
    return {name: (sum(each), len(each)) for name, each in tallies.items()}


def _profile_job(folder: str) -> ProfileConfig:
    return ProfileConfig.model_validate(
        {
            "model": _model(),
            "data": _data(folder),
            "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
            "profile": {
                "numeric": {"age": {"lower": 0, "upper": 100}},
                "categorical": {"work": {"values": WORDS.tolist()}},
            },
        }
    )
