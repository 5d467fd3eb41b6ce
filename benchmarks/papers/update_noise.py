"""Noise of a client's update by the batch sizes of the first round and of later ones: Figures 3 and 4 of R-DPCFL.

Source: Malekmohammadi, Taik, Farnadi, Lemma 4.1: the variance of the update of round e is about
K N eta^2 p c^2 z^2 / b_e^3, where z keeps all rounds together within epsilon. z is calibrated by Dapple's own plan of a
client, under the accountant rdp, for rows added or removed, as in the authors' code. Settings are those of Figure 3.
Definition 3.1 has a replaced row instead. The last section says what it costs, by privacy loss distributions: epsilon
by that definition of the runs that other figures draw, and the noise that it takes to keep the printed epsilon.

    python -m benchmarks.papers.update_noise --out benchmarks/results/update_noise.md
"""

import dataclasses
import itertools
from collections.abc import Sequence

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers.dp_clustered_fl import PAPER_ROWS, SMALL, SMALL_ROWS
from benchmarks.papers.r_dpcfl_settings import PAPER
from dapple_dp.schemas.choices import Adjacency, SiloAccountant
from dapple_dp.schemas.clustered_fl.plan import SiloBudget
from dapple_dp.schemas.clustered_fl.records import ClusteringParams, TrainingParams
from dapple_dp.transforms.clustered_fl.silo_accounting import selection_rounds, silo_epsilon, silo_plan

N_ROWS, ROUNDS, CLIPPING_NORM, LEARNING_RATE, N_PARAMETERS = 6_600, 200, 3.0, 5e-4, 11_181_642
BUDGET = SiloBudget(epsilon=5.0, delta=1e-4, adjacency=Adjacency.ADD_REMOVE, accountant=SiloAccountant.RDP)
BATCHES = (32, 128, 512, 2_048, N_ROWS)
DRAWN = ((SMALL_ROWS, SMALL), (PAPER_ROWS, SMALL), (SMALL_ROWS, PAPER))
"""Rows of a client, and its training, in Figures 6 to 9 as they are drawn here."""


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 4.0], help="of the last section")
    arguments = parser.parse_args()
    multipliers = table(arguments.batches, arguments.rounds)
    lines = heading("R-DPCFL: noise by batch sizes")
    lines += [f"N = {N_ROWS:,}, E = {arguments.rounds}, K = 1, c = 3, epsilon 5, delta 1e-4; b1 across, b down.", ""]
    lines += section("Figure 4: noise multiplier z", arguments.batches, multipliers)
    first = [[variance(z, b1) for b1, z in zip(arguments.batches, row, strict=True)] for row in multipliers]
    later = [[variance(z, b) for z in row] for b, row in zip(arguments.batches, multipliers, strict=True)]
    lines += section("Figure 3, left: variance of the first update", arguments.batches, first)
    lines += section("Figure 3, right: variance of later updates", arguments.batches, later)
    lines += replacement(arguments.epsilons)
    measurement.show(lines, arguments.out)


def replacement(epsilons: Sequence[float]) -> list[str]:
    """Markdown lines: neighbors of the figures, and those of Definition 3.1."""
    columns = (
        "N | E | b | epsilon, rdp, as drawn | the same, pld | replaced row, pld | z as drawn | z for a replaced row"
    )
    lines = ["## Definition 3.1: a replaced row", "", f"| {columns} |", "| --- " * 8 + "|"]
    for (n_rows, training), epsilon in itertools.product(DRAWN, epsilons):
        selections = selection_rounds(training.rounds)
        clustering = ClusteringParams(n_clusters=4, selection_rounds=selections)
        drawn = dataclasses.replace(BUDGET, epsilon=epsilon)
        exact = dataclasses.replace(drawn, accountant=SiloAccountant.PLD)
        replaced = dataclasses.replace(exact, adjacency=Adjacency.REPLACE_ONE)
        plan = silo_plan(n_rows, training, clustering, drawn)
        spent = [silo_epsilon(plan.events, each) for each in (drawn, exact, replaced)]
        least = silo_plan(n_rows, training, clustering, replaced).noise_multiplier
        cells = [f"{n_rows:,}", training.rounds, training.batch_size, *(f"{each:.2f}" for each in spent)]
        lines.append(f"| {' | '.join(map(str, cells))} | {plan.noise_multiplier:.3f} | {least:.3f} |")
    return lines


def table(batches: Sequence[int], rounds: int) -> list[list[float]]:
    """Noise multipliers by later batch size (rows) and first batch size (columns)."""
    return [[multiplier(first, later, rounds) for first in batches] for later in batches]


def multiplier(first: int, later: int, rounds: int) -> float:
    """Noise multiplier of a client; a batch of all rows is not sampled."""
    training = TrainingParams(
        rounds=rounds,
        local_epochs=1,
        batch_size=later,
        learning_rate=LEARNING_RATE,
        clipping_norm=CLIPPING_NORM,
        first_batch_size=first,
    )
    clustering = ClusteringParams(n_clusters=4)
    return silo_plan(N_ROWS, training, clustering, BUDGET).noise_multiplier


def variance(noise_multiplier: float, batch: int) -> float:
    """Variance of an update, summed over all parameters (Lemma 4.1)."""
    return N_ROWS * LEARNING_RATE**2 * N_PARAMETERS * (CLIPPING_NORM * noise_multiplier) ** 2 / batch**3


def section(title: str, batches: Sequence[int], values: Sequence[Sequence[float]]) -> list[str]:
    """Markdown lines."""
    lines = [f"## {title}", "", "| b / b1 | " + " | ".join(f"{b:,}" for b in batches) + " |"]
    lines += ["| --- " * (len(batches) + 1) + "|"]
    for batch, row in zip(batches, values, strict=True):
        lines.append(f"| {batch:,} | " + " | ".join(f"{value:.3g}" for value in row) + " |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
