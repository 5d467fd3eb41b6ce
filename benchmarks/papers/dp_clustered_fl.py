"""R-DPCFL and its baselines on MNIST: accuracy against epsilon, detected clusters, effects of batch sizes.

21 clients in clusters of 3, 6, 6 and 6; images are turned by quarters or labels are shifted. Clients of a cluster hold
disjoint rows; every figure is a mean over clients on test rows of their cluster, and over seeds. Everything runs in
this process, as plain rounds. The folder of the data holds mnist.npz, or NAME.npz for `--images NAME`, with the arrays
x_train, y_train, x_test and y_test: images of 28 x 28 (or 14 x 14) bytes, and labels.

    python -m benchmarks.papers.dp_clustered_fl --data FOLDER --shift rotation --out FILE
    python -m benchmarks.papers.dp_clustered_fl --data FOLDER --shift rotation --size paper --seeds 1 --out FILE
"""

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.machine import heading, write
from benchmarks.papers import federated_baselines
from benchmarks.papers.federated_clients import CLUSTER_SIZES, SHIFTS, TRUTH, Clients, Images, clients, load
from dapple_dp.schemas.choices import Adjacency, ModelKind, SiloAccountant, WhenScarce
from dapple_dp.schemas.clustered_fl.plan import SiloBudget
from dapple_dp.schemas.clustered_fl.records import (
    GIVEN_SEPARATION,
    SEARCHED_SEPARATION,
    ClusteringParams,
    FederatedState,
    Federation,
    ModelShape,
    Silo,
    TrainingParams,
)
from dapple_dp.transforms.clustered_fl.scarce_rows import begin
from dapple_dp.transforms.clustered_fl.silo_accounting import SELECTION_SHARE, selection_rounds, silo_plan
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import model_of
from tests.scenes.federation import run_rounds

EPSILONS = (1.0, 2.0, 4.0, 10.0)
MIDDLE = 4.0
DELTA = 1e-4
SMALL = TrainingParams(rounds=40, local_epochs=1, batch_size=50, learning_rate=0.4, clipping_norm=1.0)
SMALL_ROWS, PAPER_ROWS, TOY_ROWS = 1000, 6600, 50
PULLS = (0.002, 0.01)
FIRST_BATCHES = (50, 100, 250, 500, None)
BATCHES = (25, 50, 100, 250)


SOFTMAX = functools.partial(ModelShape, kind=ModelKind.SOFTMAX)


class Method(NamedTuple):
    """R-DPCFL or a baseline; `when` is None for the paper, which believes every separation."""

    algorithm: str = "r_dpcfl"
    random: bool = False
    pull: float = 0.0
    ratio: float = 1.0
    when: WhenScarce | None = None

    def selections(self, rounds: int, share: float = SELECTION_SHARE) -> int:
        """Rounds in which clients select a model."""
        return selection_rounds(rounds, share) if self.algorithm in ("r_dpcfl", "ifca") else 0


METHODS = {
    "oracle": Method("oracle"),
    "R-DPCFL": Method(),
    "R-DPCFL, the job's defaults": Method(when=WhenScarce.AUTO),
    "R-DPCFL, first noise x 2": Method(ratio=2.0),
    "IFCA, identical start": Method("ifca"),
    "IFCA, random start": Method("ifca", random=True),
    **{f"MR-MTL, pull {pull:g}": Method("mr_mtl", pull=pull) for pull in PULLS},
    "Local": Method("local"),
    "Global": Method("global"),
}
FEW = ("oracle", "R-DPCFL", "IFCA, identical start", "Local")
CLUSTERING = [name for name, method in METHODS.items() if method.algorithm in ("r_dpcfl", "ifca")]


class Outcome(NamedTuple):
    """One run.

    Attributes:
      accuracy: mean over clients, in percent.
      minority: the same over clients of the smallest cluster.
      first: whether clusters after the first round are the true ones.
      last: whether clusters at the end are.
      alone: whether the minority is one cluster of its own at the end.
      separation: MSS.
      iterations: of EM.
      seconds: CPU time.
    """

    accuracy: float
    minority: float
    first: bool
    last: bool
    alone: bool
    separation: float
    iterations: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the images")
    parser.add_argument("--images", default="mnist", help="name of their file, such as fashion_mnist")
    parser.add_argument("--shift", choices=SHIFTS, required=True, help="how clusters differ")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument(
        "--size",
        choices=tuple(SIZES),
        default="small",
        help="14 x 14 or 28 x 28 pixels; replaced is paper with the neighbors of Definition 3.1",
    )
    parser.add_argument("--few", action="store_true", help=f"at full size, {', '.join(FEW)} alone")
    parser.add_argument("--out", type=Path, help="Markdown file for the results")
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    with threadpool_limits(limits=1):
        lines = heading(f"R-DPCFL and baselines on {arguments.images}, {arguments.shift}")
        images = load(arguments.data / f"{arguments.images}.npz", 28 if arguments.size in ("paper", "replaced") else 14)
        sections = functools.partial(SIZES[arguments.size], **({"methods": FEW} if arguments.few else {}))
        for section in sections(images, arguments.shift, seeds):
            lines += section
            print("\n".join(section), flush=True)
            if arguments.out:
                write(lines, arguments.out)


def small_sections(images: Images, shift: str, seeds: range) -> Iterator[list[str]]:
    """All questions on small clients, one after the other."""
    cells = [clients(images, shift, SMALL_ROWS, seed) for seed in seeds]
    yield accuracy_section(shift, cells)
    yield view_section(cells)
    yield search_section(cells)
    yield first_batch_section(cells)
    yield batch_section(cells)


def federation_of(
    method: Method,
    training: TrainingParams,
    data: Clients,
    epsilon: float,
    seed: int,
    search: bool = False,
    shape: Callable[..., ModelShape] = SOFTMAX,
    truth: np.ndarray = TRUTH,
    n_classes: int = 10,
    neighbors: Adjacency = Adjacency.ADD_REMOVE,
    **options: Any,
) -> Federation:
    """Public settings of a run, calibrated; the number of rows is declared. `options` are more of the clustering."""
    budget = SiloBudget(
        epsilon=epsilon,
        delta=DELTA,
        adjacency=neighbors,
        accountant=SiloAccountant.RDP if neighbors is Adjacency.ADD_REMOVE else SiloAccountant.PLD,
        first_round_noise_ratio=method.ratio,
    )
    settings: dict[str, Any] = {
        "n_clusters": 8 if search else len(CLUSTER_SIZES),
        "search": search,
        "selection_rounds": method.selections(training.rounds),
        "min_separation": 0.0 if method.when is None else SEARCHED_SEPARATION if search else GIVEN_SEPARATION,
        "when_scarce": method.when or WhenScarce.CLUSTER,
    }
    clustering = ClusteringParams(**settings | options)
    n_rows, n_features = data.rows[0].features.shape
    found = shape(n_features=n_features, n_classes=n_classes)
    public_seed = seed.to_bytes(32, "big")
    sizes = (n_rows,) * len(truth)
    is_baseline, choice = method.algorithm != "r_dpcfl", 0.0
    if is_baseline:
        noise = first = federated_baselines.multiplier(n_rows, training, clustering.selection_rounds, budget)
    else:
        training, clustering, _ = begin(training, clustering, budget, sizes, found.n_parameters, public_seed)
        plan = silo_plan(n_rows, training, clustering, budget)
        noise, first, choice = plan.noise_multiplier, plan.first_round_multiplier, plan.choice_multiplier
    silos = tuple(
        Silo(
            client_id=f"client-{index}",
            n_rows=n_rows,
            noise_multiplier=noise,
            first_round_multiplier=first,
            select_epsilon=budget.select_share * budget.epsilon,
            choice_stddev=choice,
        )
        for index in range(len(truth))
    )
    public = {"shape": found, "training": training, "clustering": clustering, "silos": silos}
    if not is_baseline:
        return Federation(**public, public_seed=public_seed)
    own = {"algorithm": method.algorithm, "truth": tuple(truth.tolist()), "random": method.random, "pull": method.pull}
    return federated_baselines.Baseline(**public, **own, public_seed=public_seed)


def run(federation: Federation, data: Clients, seed: int, rounds: int | None = None) -> Outcome:
    """All rounds, or the first ones."""
    stream, go = stream_of(seed), run_rounds
    if isinstance(federation, federated_baselines.Baseline):
        go = federated_baselines.run_rounds
    start = time.process_time()
    early = go(federation, data.rows, stream, rounds=1)
    final = early if rounds == 1 else go(federation, data.rows, stream, early)
    seconds = time.process_time() - start
    accuracies = np.array([_accuracy(federation, final, data, client) for client in range(len(TRUTH))])
    ending = final.assignments
    return Outcome(
        accuracy=100.0 * float(accuracies.mean()),
        minority=100.0 * float(accuracies[TRUTH == 0].mean()),
        first=same(early.responsibilities.argmax(axis=1)),
        last=same(ending),
        alone=set(ending[TRUTH == 0]).isdisjoint(ending[TRUTH != 0]) and len(set(ending[TRUTH == 0])) == 1,
        separation=final.separation,
        iterations=final.em_iterations,
        seconds=seconds,
    )


def stream_of(seed: int) -> KeyStream:
    """The stream of a run."""
    return KeyStream(seed.to_bytes(32, "little"), encode_label("dp_clustered_fl"))


def same(assignments: np.ndarray) -> bool:
    """True if clusters are the true ones, under any names."""
    pairs = set(zip(assignments.tolist(), TRUTH.tolist(), strict=True))
    return len(pairs) == len(CLUSTER_SIZES) == len(set(assignments.tolist()))


def _accuracy(federation: Federation, state: FederatedState, data: Clients, client: int) -> float:
    """Accuracy of a client's model on test rows of its cluster."""
    test = data.tests[TRUTH[client]]
    predicted = model_of(federation.shape).predictions(state.models[state.assignments[client]], test.features)
    return float((predicted == test.labels).mean())


def runs(
    method: Method, cells: Sequence[Clients], epsilon: float, training: TrainingParams = SMALL, **settings: Any
) -> list[Outcome]:
    """One run per seed; `settings` go to `federation_of`."""
    federations = [federation_of(method, training, cell, epsilon, seed, **settings) for seed, cell in enumerate(cells)]
    return [run(federation, cell, seed) for seed, (federation, cell) in enumerate(zip(federations, cells, strict=True))]


def mean(values: Iterable[float]) -> str:
    """Mean and spread."""
    found = np.array(list(values))
    return f"{found.mean():.1f}" + (f" ± {found.std(ddof=1):.1f}" if len(found) > 1 else "")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table in Markdown."""
    return [
        "",
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
        *("| " + " | ".join(map(str, row)) + " |" for row in rows),
        "",
    ]


def accuracy_section(shift: str, cells: Sequence[Clients]) -> list[str]:
    """Accuracy of all methods, and detections."""
    found = {name: [runs(method, cells, epsilon) for epsilon in EPSILONS] for name, method in METHODS.items()}
    head = ["", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]
    cpu = np.mean([outcome.seconds for per in found.values() for each in per for outcome in each])
    n_seeds = len(cells)
    print(f"{shift}: {cpu:.2f} CPU s per run", flush=True)
    lines = [f"## MNIST, {shift}, 14 x 14, N = {SMALL_ROWS:,}, E = {SMALL.rounds}, b = {SMALL.batch_size}", ""]
    lines += [f"Softmax regression, learning rate 0.4, clipping norm 1, delta 1e-4; mean ± stddev of {n_seeds} seeds."]
    lines += [f"A run takes {cpu:.2f} CPU s. The pull of MR-MTL may be chosen by these figures at no cost.", ""]
    lines += ["Accuracy over all clients, in percent (evaluation, not private):"]
    lines += table(head, ([name, *(mean(o.accuracy for o in per) for per in rows)] for name, rows in found.items()))
    lines += ["Accuracy over clients of the minority:"]
    lines += table(head, ([name, *(mean(o.minority for o in per) for per in rows)] for name, rows in found.items()))
    lines += [f"Runs of {n_seeds} with the true clusters after the first round / at the end / a minority of its own:"]
    return lines + table(
        head, ([name, *(_detected(per) for per in found[name])] for name in METHODS if name in CLUSTERING)
    )


def _detected(per: Sequence[Outcome]) -> str:
    """Counts of detections."""
    return f"{sum(o.first for o in per)} / {sum(o.last for o in per)} / {sum(o.alone for o in per)}"


def first_rounds(
    method: Method, training: TrainingParams, cells: Sequence[Clients], epsilon: float, search: bool = False
) -> list[Outcome]:
    """The first round only, one per seed."""
    return [
        run(federation_of(method, training, cell, epsilon, seed, search), cell, seed, rounds=1)
        for seed, cell in enumerate(cells)
    ]


def view_section(cells: Sequence[Clients]) -> list[str]:
    """True clusters after the first round by what is clustered."""
    rows = []
    for view in federated_baselines.VIEWS:
        found = [[_first_view(cell, epsilon, seed, view) for seed, cell in enumerate(cells)] for epsilon in EPSILONS]
        rows.append([view, *(f"{sum(true for true, _ in per)}, {mean(mss for _, mss in per)}" for per in found)])
    lines = [f"What of the updates is clustered: true clusters after the first round of {len(cells)} runs, and MSS."]
    return lines + table(["", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)], rows)


def _first_view(cell: Clients, epsilon: float, seed: int, view: str) -> tuple[bool, float]:
    """Whether the first updates show the true clusters, and MSS."""
    federation = federation_of(METHODS["R-DPCFL"], SMALL, cell, epsilon, seed)
    found = federated_baselines.first_clusters(federation, cell.rows, stream_of(seed), view)
    return same(found.responsibilities.argmax(axis=1)), found.separation


def search_section(cells: Sequence[Clients]) -> list[str]:
    """The number of clusters, searched from 2 to 8."""
    rows = []
    for epsilon in EPSILONS:
        found = first_rounds(METHODS["R-DPCFL"], SMALL, cells, epsilon, search=True)
        rows.append([f"{epsilon:g}", sum(o.first for o in found), mean(o.separation for o in found)])
    lines = ["Number of clusters unknown, 2 to 8 tried: runs with the true clusters, and MSS."]
    return lines + table(["epsilon", "true", "MSS"], rows)


def first_batch_section(cells: Sequence[Clients]) -> list[str]:
    """Effect of the first round's batch size on MSS and EM."""
    rows = []
    for epsilon in (1.0, MIDDLE):
        for size in FIRST_BATCHES:
            training = dataclasses.replace(SMALL, first_batch_size=size)
            found = first_rounds(METHODS["R-DPCFL"], training, cells, epsilon)
            shown = f"{size or SMALL_ROWS:,}"
            rows.append([f"{epsilon:g}", shown, *_clustering(found)])
    lines = ["Batch size of the first round; the noise of all rounds is recalibrated."]
    return lines + table(["epsilon", "b1", "true", "MSS", "EM iterations"], rows)


def batch_section(cells: Sequence[Clients]) -> list[str]:
    """Effect of later batch sizes."""
    rows = []
    for size in BATCHES:
        training = dataclasses.replace(SMALL, batch_size=size)
        found = runs(METHODS["R-DPCFL"], cells, MIDDLE, training)
        early = first_rounds(METHODS["R-DPCFL"], training, cells, 1.0)
        rows.append([size, *_clustering(early), *_clustering(found), mean(o.accuracy for o in found)])
    lines = ["Batch size after the first round, which is full; at epsilon 1 (first round only) and 4:"]
    clustering = ("true", "MSS", "EM iterations")
    return lines + table(["b", *(f"{each}, 1" for each in clustering), *clustering, "accuracy"], rows)


def _clustering(found: Sequence[Outcome]) -> list[str]:
    """True clusters, MSS and iterations."""
    return [
        f"{sum(o.first for o in found)} of {len(found)}",
        mean(o.separation for o in found),
        mean(float(o.iterations) for o in found),
    ]


def paper_sections(
    images: Images,
    shift: str,
    seeds: range,
    neighbors: Adjacency = Adjacency.ADD_REMOVE,
    methods: Sequence[str] = tuple(METHODS),
) -> Iterator[list[str]]:
    """Few runs of the paper's size, a line each."""
    yield [
        f"## Paper-sized: {shift}, N = {PAPER_ROWS:,}, 28 x 28, E = {SMALL.rounds}, b = {SMALL.batch_size}, epsilon 4",
        "",
        f"Neighbors: {neighbors}.",
        f"Runs per method: {len(seeds)}. Detected: runs with the true clusters after the first round / at the end / a",
        "minority of its own. Accuracy in percent (evaluation, not private).",
        "",
        "| | accuracy | minority | detected | CPU s per run |",
        "| --- | --- | --- | --- | --- |",
    ]
    cells = [clients(images, shift, PAPER_ROWS, seed) for seed in seeds]
    for name in methods:
        found = runs(METHODS[name], cells, MIDDLE, neighbors=neighbors)
        detected = _detected(found) if name in CLUSTERING else ""
        figures = (mean(o.accuracy for o in found), mean(o.minority for o in found), detected)
        yield [f"| {name} | {' | '.join(figures)} | {np.mean([o.seconds for o in found]):.0f} |"]


def toy_sections(images: Images, shift: str, seeds: range) -> Iterator[list[str]]:
    """Two rounds of few rows: whether all of it still runs, and nothing else."""
    training = dataclasses.replace(SMALL, rounds=2, batch_size=20)
    cells = [clients(images, shift, TOY_ROWS, seed) for seed in seeds]
    rows = (
        [name, mean(each.accuracy for each in runs(method, cells, MIDDLE, training))]
        for name, method in METHODS.items()
        if name in ("R-DPCFL", "IFCA, identical start", "Local")
    )
    yield [f"## Toy: {shift}, N = {TOY_ROWS}, E = 2", *table(["", f"epsilon {MIDDLE:g}"], rows)]


SIZES = {
    "small": small_sections,
    "paper": paper_sections,
    "replaced": functools.partial(paper_sections, neighbors=Adjacency.REPLACE_ONE),
    "toy": toy_sections,
}

if __name__ == "__main__":
    main()
