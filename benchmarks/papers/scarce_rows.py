"""R-DPCFL where rows are scarce: ways to begin, each with the whole budget, for 21 clients of 300 images of MNIST.

Every method runs with batches of 50 and the other settings of `dp_clustered_fl`. "The job's defaults" decides in public
how to begin, before anything is spent. "Until now" is what the job did before it could: one model for all below MSS 2.

    python -m benchmarks.papers.scarce_rows --data FOLDER --draws 10 --out benchmarks/results/scarce_rows.md
"""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers.dp_clustered_fl import METHODS, SMALL, Method, Outcome, federation_of, mean, runs, table
from benchmarks.papers.federated_clients import SHIFTS, TRUTH, Clients, clients, load
from schemas.choices import FederatedAlgorithm, WhenScarce

EPSILONS = (1.0, 2.0, 4.0)
N_ROWS = 300
WAYS = {
    "until now: one model below MSS 2": Method(FederatedAlgorithm.R_DPCFL, when=WhenScarce.ONE_MODEL),
    "the paper: every MSS believed": METHODS["R-DPCFL"],
    "Local": METHODS["Local"],
    "the job's defaults": METHODS["R-DPCFL, the job's defaults"],
    "when_scarce: cluster": Method(FederatedAlgorithm.R_DPCFL, when=WhenScarce.CLUSTER),
    "oracle": METHODS["oracle"],
}
BEFORE = tuple(WAYS)[:3]
DEFAULTS = "the job's defaults"


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds mnist.npz")
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    with threadpool_limits(limits=1):
        images = load(arguments.data / "mnist.npz", 14)
        found = {}
        for shift in SHIFTS:
            cells = [clients(images, shift, N_ROWS, seed) for seed in range(arguments.draws)]
            for epsilon in EPSILONS:
                found[shift, epsilon] = cell(cells, epsilon)
                print(
                    shift, epsilon, {name: mean(o.accuracy for o in per) for name, per in found[shift, epsilon].items()}
                )
        beginnings = [beginning(cells[0], epsilon) for epsilon in EPSILONS]
    measurement.show(report(found, beginnings, arguments.draws), arguments.out)


def cell(cells: Sequence[Clients], epsilon: float) -> dict[str, list[Outcome]]:
    """All ways at one epsilon, one run per draw."""
    return {name: runs(way, cells, epsilon) for name, way in WAYS.items()}


def beginning(data: Clients, epsilon: float) -> list[object]:
    """What the job decides in public, and the seconds that this takes; the same for any rows."""
    start = time.process_time()
    federation = federation_of(WAYS[DEFAULTS], SMALL, data, epsilon, 10**6)
    seconds = time.process_time() - start
    return [f"{epsilon:g}", str(federation.clustering.when_scarce), f"{seconds:.1f}"]


def report(
    found: dict[tuple[str, float], dict[str, list[Outcome]]], beginnings: list[list[object]], draws: int
) -> list[str]:
    """Markdown lines."""
    seconds = np.mean([outcome.seconds for per in found.values() for each in per.values() for outcome in each])
    head = ["", *(f"{shift}, {epsilon:g}" for shift, epsilon in found)]
    lines = heading("R-DPCFL with scarce rows")
    lines += [
        f"{len(TRUTH)} clients of {N_ROWS} rows, E = {SMALL.rounds}, b = {SMALL.batch_size}, softmax regression, delta",
        f"1e-4. Accuracy over all clients in percent (evaluation, not private), mean ± stddev of {draws} draws. A run",
        f"takes {seconds:.2f} CPU s.",
    ]
    lines += table(head, ([name, *(mean(o.accuracy for o in per[name]) for per in found.values())] for name in WAYS))
    lines += ["The job's defaults beside the best of the first three:"]
    best = [max(_accuracy(per[name]) for name in BEFORE) for per in found.values()]
    now = [_accuracy(per[DEFAULTS]) for per in found.values()]
    rows = [
        ["best of three", *(f"{value:.1f}" for value in best)],
        [DEFAULTS, *(f"{value:.1f}" for value in now)],
        ["difference", *(f"{mine - other:+.1f}" for mine, other in zip(now, best, strict=True))],
        ["clusters found at the end", *(_true(per[DEFAULTS]) for per in found.values())],
    ]
    lines += table(head, rows)
    lines += ["What is decided in public before anything is spent, and the CPU seconds of planning:"]
    return lines + table(["epsilon", "the job begins", "seconds"], beginnings)


def _accuracy(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([outcome.accuracy for outcome in outcomes]))


def _true(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(outcome.last for outcome in outcomes)} of {len(outcomes)}"


if __name__ == "__main__":
    main()
