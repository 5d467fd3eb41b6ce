"""How often the widest gap of the tree of centers finds the number of clusters, beside the elbow.

Ten sets of shapes that users meet, with one and a half times and twice as many centers as clusters. The tree is that of
a `dp_lloyd` fit in the box [-1, 1]. The elbow is that of `central_tree` with `choose: elbow` and as many centers at
most. Rows and noise are those of a fit, by its pure functions on arrays.

    python -m benchmarks.center_tree --out benchmarks/results/center_tree.md
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine, measurement
from pipelines.kmeans.plan.replay import replay
from schemas.kmeans.fit_config import validated
from schemas.kmeans.model import ClusterModel
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.protocols import PROTOCOLS
from transforms.kmeans.simulated_fit import run_once
from transforms.numerics.kmeans.center_tree import CenterTree
from transforms.numerics.one_thread import one_thread
from transforms.privacy import accounting

Rows = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0)


def blobs(rng: np.random.Generator, k: int, d: int, n: int, width: float, apart: float = 6.0, sizes: Any = 1.0) -> Rows:
    """Gaussian clusters whose means lie at least `apart` stddevs from each other."""
    while True:
        means = rng.uniform(-0.8, 0.8, (k, d))
        squared = ((means[:, None] - means) ** 2).sum(axis=2)
        if squared[~np.eye(k, dtype=bool)].min() > (apart * width) ** 2:
            break
    shares = np.broadcast_to(sizes, k) / np.broadcast_to(sizes, k).sum()
    return means[rng.choice(k, n, p=shares)] + rng.normal(0.0, width, (n, d))


def sets(seed: int) -> Iterator[tuple[str, Rows, int]]:
    """Name, rows and true number of clusters."""
    rng = np.random.default_rng(seed)
    yield "5 clusters, d = 2", blobs(rng, 5, 2, 20_000, 0.06), 5
    yield "10 clusters, d = 4", blobs(rng, 10, 4, 50_000, 0.06), 10
    yield "8 clusters, d = 20", blobs(rng, 8, 20, 50_000, 0.1), 8
    yield "Zipf sizes, 8 clusters, d = 4", blobs(rng, 8, 4, 50_000, 0.06, sizes=1.0 / np.arange(1, 9)), 8
    yield "overlap, 6 clusters 3 stddevs apart, d = 3", blobs(rng, 6, 3, 50_000, 0.12, apart=3.0), 6
    yield "3 clusters, d = 10", blobs(rng, 3, 10, 10_000, 0.1), 3
    rows = blobs(rng, 6, 4, 50_000, 0.06)
    rows[:500] = rng.uniform(-1.0, 1.0, (500, 4))
    yield "1% of rows anywhere, 6 clusters, d = 4", rows, 6
    yield "elongated, 5 clusters, d = 5", blobs(rng, 5, 5, 40_000, 0.05) * [1.0, 0.3, 1.0, 1.0, 0.3], 5
    yield "12 clusters, d = 6", blobs(rng, 12, 6, 50_000, 0.05), 12
    yield "4 clusters, d = 2, 5,000 rows", blobs(rng, 4, 2, 5_000, 0.08), 4


def fitted(
    rows: Rows, settings: dict[str, Any], epsilon: float, label: str
) -> tuple[ClusterModel, NDArray[np.float64]]:
    """The model of one run, and the noise variance of a coordinate of each center."""
    (n_rows, d), privacy = rows.shape, {"unit": "record", "epsilon": epsilon, "delta": 1e-6}
    data = {"path": "rows", "features": [f"x{index}" for index in range(d)], "public_rows": n_rows}
    config = validated({"data": data, "privacy": privacy} | settings)
    protocol = PROTOCOLS[config.algorithm]
    plan = accounting.calibrate(
        config.privacy.unit, protocol.round_specs(config, d, 0), epsilon, 1e-6, protocol.allocation(config)
    )
    initial, rounds = protocol.initial_state(config, np.zeros((0, d)), d), protocol.rounds(config, plan)
    key = hashlib.sha256(label.encode()).digest()
    with one_thread():
        model, _ = run_once(initial, rounds, ClientBlock(rows), 1.0, key)
    moves = replay(initial, rounds, model.releases).movements
    noise = moves[-1].noise if moves and len(moves[-1].noise) == model.n_clusters else np.full(model.n_clusters, np.nan)
    return model, noise**2 / d


def by_tree(rows: Rows, n_centers: int, epsilon: float, label: str) -> int:
    """The number of clusters at the widest gap; that of all centers where none stands out."""
    settings = {"algorithm": "dp_lloyd", "n_clusters": n_centers, "dp_lloyd": {"domain": [-1.0, 1.0]}}
    model, variances = fitted(rows, settings, epsilon, label)
    return CenterTree.of(model.centers, model.noisy_sizes, variances).widest_gap() or n_centers


def by_elbow(rows: Rows, most: int, epsilon: float, label: str) -> int:
    """The number of clusters that the elbow chooses."""
    settings = {
        "algorithm": "central_tree",
        "n_clusters": {"max": most, "choose": "elbow"},
        "clipping": {"norm": float(np.sqrt(rows.shape[1])), "center": "none"},
        "tree": {"radius": float(np.sqrt(rows.shape[1]))},
    }
    return fitted(rows, settings, epsilon, label)[0].n_clusters


def report(draws: int) -> list[str]:
    """Markdown lines: in how many draws the true number was found, and which numbers were."""
    lines = ["| set | epsilon | centers | tree | elbow | tree said | elbow said |", "|" + " --- |" * 7]
    right = {"tree": 0, "elbow": 0}
    for index in range(10):
        drawn = [next(each for at, each in enumerate(sets(seed)) if at == index) for seed in range(draws)]
        for epsilon in EPSILONS:
            for factor in (1.5, 2.0):
                name, _, true = drawn[0]
                n_centers = round(factor * true)
                given = [
                    (np.clip(rows, -1.0, 1.0), n_centers, epsilon, f"{name}/{at}")
                    for at, (_, rows, _) in enumerate(drawn)
                ]
                found = {"tree": [by_tree(*each) for each in given], "elbow": [by_elbow(*each) for each in given]}
                hits = {how: sum(number == true for number in numbers) for how, numbers in found.items()}
                right = {how: right[how] + hits[how] for how in right}
                said = [" ".join(map(str, sorted(numbers))) for numbers in found.values()]
                cells = (name, epsilon, n_centers, *(f"{each} of {draws}" for each in hits.values()), *said)
                lines.append(f"| {' | '.join(map(str, cells))} |")
                print(lines[-1], flush=True)
    total = 10 * len(EPSILONS) * 2 * draws
    return [
        *lines,
        "",
        f"In all: the tree finds the number in {right['tree']} of {total} runs, the elbow in {right['elbow']}.",
    ]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=5)
    arguments = parser.parse_args()
    lines = machine.heading("The tree of centers and the elbow: which finds the number of clusters?")
    measurement.show(lines + report(arguments.draws), arguments.out)


if __name__ == "__main__":
    main()
