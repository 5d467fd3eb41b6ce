"""Clients as the server sees them after the first round: Figures 1, 5, 9 (right) and Lemma 4.2 of R-DPCFL.

Source: Malekmohammadi, Taik, Farnadi. Figure 1 is computed from its four losses. The others run the job's own first
round on MNIST (14 x 14 pixels, rotated by cluster, softmax regression) in place of CIFAR10 and ResNet18. Everything
that is shown of updates is private by the clients' own noise; true clusters are known here only.

    python -m benchmarks.papers.first_updates --data FOLDER --out benchmarks/results/first_updates.md
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers.dp_clustered_fl import METHODS, SMALL, federation_of, mean, run, table
from benchmarks.papers.federated_clients import CLUSTER_SIZES, TRUTH, Clients, clients, load
from dapple_dp.schemas.clustered_fl.records import UPDATE_UNIT, Federation
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.round import client_step, initial_state
from dapple_dp.transforms.numerics.clustered_fl.update_clusters import overlap
from tests.scenes.federation import run_rounds

N_ROWS = 1_000
LEMMA_EPSILON = 1.0
FIRST_BATCHES = (50, 100, 200, 400, N_ROWS)
LOCAL_ROWS = (300, N_ROWS)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
BATCHES = (10, 25, 50)
OPTIMA, CURVATURE = np.array([-6.0, -5.0, 5.0, 6.0]), 4.0
"""Figure 1: the clients' losses are curvature (theta - optimum)^2."""
STARTS, LATE = (-11.0, 0.0), (-4.5, 5.5)
"""Figure 1: both models before the first round, and after many."""


class Spread(NamedTuple):
    """Spread of first updates: least distance of two clusters' means over 2 stddevs of a coordinate, and the stddev."""

    separation: float
    stddev: float


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the images")
    parser.add_argument("--images", default="mnist", help="name of their file")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rows", type=int, default=N_ROWS, help="rows of a client")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    arguments = parser.parse_args()
    images = load(arguments.data / f"{arguments.images}.npz", 14)
    lines = heading("R-DPCFL: what the first updates show")
    lines += toy_section()
    with threadpool_limits(limits=1):
        cells = [clients(images, "rotation", arguments.rows, seed) for seed in range(arguments.seeds)]
        lines += lemma_section(cells, arguments.rows)
        sizes = sorted({min(size, arguments.rows) for size in LOCAL_ROWS})
        by_size = {n: [clients(images, "rotation", n, seed) for seed in range(arguments.seeds)] for n in sizes}
        lines += local_section(by_size, arguments.epsilons)
        lines += plane_section(cells[0], arguments.rows)
    measurement.show(lines, arguments.out)


def toy_section() -> list[str]:
    """Figure 1: losses mislead in the first rounds, gradients in the last ones."""
    late = np.concatenate([toy_gradients(LATE[0])[:2], toy_gradients(LATE[1])[2:]])
    apart = np.abs(late[:, None] - late) + np.diag([np.inf] * len(late))
    rows = [
        ["model of least loss, models at -11 and 0", *toy_choices(*STARTS)],
        ["model of least loss, models at -13 and 0", *toy_choices(-13.0, 0.0)],
        ["gradient, models at -4.5 and 5.5", *(f"{value:g}" for value in late)],
        ["clients of the nearest gradients", *(_names(np.flatnonzero(row == row.min())) for row in apart)],
    ]
    lines = ["## Figure 1: four clients with one parameter each", ""]
    lines += [
        "Losses are 4 (t + 6)^2, 4 (t + 5)^2, 4 (t - 5)^2 and 4 (t - 6)^2. The paper says that all clients choose"
    ]
    lines += ["the second model of -11 and 0. Client 1 does so from -12 downwards: its losses are 100 and 144."]
    return [*lines, *table(["client", "1", "2", "3", "4"], rows)]


def toy_choices(first: float, second: float) -> list[int]:
    """The model, 1 or 2, that each client takes."""
    return (1 + (toy_losses(second) < toy_losses(first))).tolist()


def toy_losses(theta: float) -> NDArray[np.float64]:
    """Losses of all clients, shape (4,)."""
    return CURVATURE * (theta - OPTIMA) ** 2


def toy_gradients(theta: float) -> NDArray[np.float64]:
    """Gradients of all clients, shape (4,)."""
    return 2.0 * CURVATURE * (theta - OPTIMA)


def _names(clients: NDArray[np.int64]) -> str:
    return ", ".join(str(client + 1) for client in clients)


def first_updates(federation: Federation, data: Clients, seed: int) -> NDArray[np.float64]:
    """Messages of clients in the first round, shape (n_clients, n_parameters)."""
    stream = KeyStream(seed.to_bytes(32, "little"), encode_label("dp_clustered_fl"))
    state = initial_state(federation)
    sent = [client_step(federation, state, rows, client, stream).values for client, rows in enumerate(data.rows)]
    return np.stack(sent).astype(np.float64) * UPDATE_UNIT


def spread(updates: NDArray[np.float64]) -> Spread:
    """Lemma 4.2's separation of the true clusters, in the plane of the clusters' means."""
    means = np.stack([updates[cluster == TRUTH].mean(axis=0) for cluster in range(len(CLUSTER_SIZES))])
    inside = updates - means[TRUTH]
    free = (len(updates) - len(means)) * updates.shape[1]
    stddev = math.sqrt(float((inside**2).sum()) / free)
    first, second = np.triu_indices(len(means), 1)
    shares = (1.0 / np.bincount(TRUTH))[[first, second]].sum(axis=0)
    squared = ((means[first] - means[second]) ** 2).sum(axis=1) - shares * stddev**2 * updates.shape[1]
    return Spread(math.sqrt(max(float(squared.min()), 0.0)) / (2.0 * stddev), stddev)


def lemma_section(cells: Sequence[Clients], n_rows: int) -> list[str]:
    """Lemma 4.2: separation grows at least with the root of the first batch, up to a small factor."""
    batches = sorted({min(batch, n_rows) for batch in FIRST_BATCHES})
    rows: list[list[object]] = []
    smallest = 0.0
    for batch in batches:
        training = dataclasses.replace(SMALL, first_batch_size=None if batch == n_rows else batch)
        found = []
        for seed, cell in enumerate(cells):
            federation = federation_of(METHODS["R-DPCFL"], training, cell, LEMMA_EPSILON, seed)
            found.append(spread(first_updates(federation, cell, seed)))
        separation = float(np.mean([each.separation for each in found]))
        smallest = smallest or separation
        bound = smallest * math.sqrt(batch / batches[0])
        ratio = f"{bound / separation:.2f}" if separation else "-"
        stddev = float(np.mean([each.stddev for each in found]))
        rows.append([batch, f"{stddev:.4g}", f"{separation:.2f}", f"{overlap(separation):.2g}", f"{bound:.2f}", ratio])
    lines = ["## Lemma 4.2: the overlap of clusters falls with the first batch", ""]
    lines += [
        f"N = {n_rows:,}, epsilon {LEMMA_EPSILON:g}, later batches of {SMALL.batch_size}; {len(cells)} seeds. The"
    ]
    lines += [
        "separation is that of the two nearest true clusters, without what noise adds to their distance. The root"
    ]
    lines += [
        "of the batch size times the first row's separation is the lemma's bound with rho = 1; rho is what it needs."
    ]
    return lines + table(["b1", "stddev", "separation", "overlap", "root law", "rho"], rows)


def local_section(by_size: dict[int, list[Clients]], epsilons: Sequence[float]) -> list[str]:
    """Figure 9, right: MSS over epsilon for two local sizes and later batches; and whether MSS above 2 means truth."""
    rows, pairs = [], []
    for size, cells in by_size.items():
        for batch in BATCHES:
            training = dataclasses.replace(SMALL, batch_size=min(batch, size))
            cell_rows = [_found(cells, training, epsilon) for epsilon in epsilons]
            pairs += [pair for found in cell_rows for pair in found]
            rows.append([f"{size:,}", batch, *(mean(separation for separation, _ in found) for found in cell_rows)])
    lines = ["## Figure 9, right: MSS by epsilon, local rows and later batches", ""]
    lines += table(["N", "b", *(f"epsilon {epsilon:g}" for epsilon in epsilons)], rows)
    sure = [true for separation, true in pairs if separation > 2.0]
    unsure = [true for separation, true in pairs if separation <= 2.0]
    lines += [
        f"True clusters: {sum(sure)} of {len(sure)} runs with an MSS above 2, {sum(unsure)} of {len(unsure)} others."
    ]
    return [*lines, ""]


def _found(cells: Sequence[Clients], training: Any, epsilon: float) -> list[tuple[float, bool]]:
    """MSS, and whether clusters are the true ones, per seed."""
    found = []
    for seed, cell in enumerate(cells):
        outcome = run(federation_of(METHODS["R-DPCFL"], training, cell, epsilon, seed), cell, seed, rounds=1)
        found.append((outcome.separation, outcome.first))
    return found


def plane_section(data: Clients, n_rows: int) -> list[str]:
    """Figure 5: first updates in the plane of their two principal components, small batches beside full ones."""
    rows: list[list[object]] = []
    for batch in (min(SMALL.batch_size, n_rows), None):
        training = dataclasses.replace(SMALL, first_batch_size=batch)
        federation = federation_of(METHODS["R-DPCFL"], training, data, 10.0, 0)
        updates = first_updates(federation, data, 0)
        centered = updates - updates.mean(axis=0)
        plane = centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T
        stream = KeyStream((0).to_bytes(32, "little"), encode_label("dp_clustered_fl"))
        separation = run_rounds(federation, data.rows, stream, rounds=1).separation
        for cluster in range(len(CLUSTER_SIZES)):
            (x, y), spread = plane[cluster == TRUTH].mean(axis=0), plane[cluster == TRUTH].std(axis=0)
            away = f"{math.hypot(*spread):.2g}"
            rows.append([batch or n_rows, f"{separation:.2f}", cluster + 1, f"{x:.2g}", f"{y:.2g}", away])
    lines = ["## Figure 5: first updates of 21 clients at epsilon 10", ""]
    lines += ["The true clusters in the plane of the two principal components: their means, and the root mean square"]
    lines += ["distance of their clients to them."]
    return lines + table(["b1", "MSS", "cluster", "x", "y", "away"], rows)


if __name__ == "__main__":
    main()
