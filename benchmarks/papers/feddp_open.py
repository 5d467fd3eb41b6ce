"""Small runs on what FedDP-KMeans and its reviews leave open, in the paper's own words.

- steps: "never more than 2 steps": cost by T from 0 to 6, with 2,000 clients x 50 rows and little epsilon.
- preprocessing: conditions "can always be enforced by two preprocessing steps": a separated mixture whose radius breaks
  condition (1), without and with Lemma 16, each with its own share of epsilon.
- separated server: "if the server data consisted solely of very well-separated Gaussians, our initialization would
  likely fail": four of ten components missing, with and without the 100 uniform server points.

    python -m benchmarks.papers.feddp_open --out benchmarks/results/feddp_open.md
"""

import functools

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers import algorithm_5, in_memory
from benchmarks.papers.feddp_answers import N_MISSING, cost, spread
from benchmarks.papers.feddp_scores import LEVELS, METHODS, PER_COMPONENT, Drawn, draw, fitted
from benchmarks.papers.feddp_theorems import N_CLUSTERS, PRINTED, assumptions, judged
from benchmarks.papers.feddp_theorems import draw as draw_separated

STEPS, STEP_EPSILONS = (0, 1, 2, 4), (0.1, 0.4)
FAR, FAR_ROWS = 200.0, 100_000
"""By how much the means of the separated mixture are moved apart, and its rows."""
EPSILONS = (1.0, 5.0)
TUNED, PUBLISHED = METHODS["FedDP-KMeans (tuned)"], METHODS["FedDP-KMeans (published)"]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    lines = heading("What FedDP-KMeans leaves open")
    lines += [f"Mean (standard deviation) of {arguments.seeds} seeds of one draw."]
    with threadpool_limits(limits=1):
        for part in (steps, preprocessing, separated_server):
            lines += ["", *part(arguments.seeds)]
    measurement.show(lines, arguments.out)


def _head(title: str, columns: list[str]) -> list[str]:
    return [f"## {title}", "", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]


def steps(seeds: int) -> list[str]:
    """Cost over n by the number of Lloyd rounds, client level."""
    n_rows, client_rows = LEVELS["client"]
    drawn = draw(n_rows)
    lines = _head("More than two steps: cost / n", ["method", "epsilon", *(f"T = {each}" for each in STEPS)])
    for name, method in (("tuned", TUNED), ("published", PUBLISHED)):
        for epsilon in STEP_EPSILONS:
            cells = []
            for each in STEPS:
                sections = method | {"lloyd": {"steps": each}}
                cells.append(
                    spread([cost(drawn, fitted(drawn, client_rows, sections, epsilon, seed)) for seed in range(seeds)])
                )
            lines.append(f"| {name} | {epsilon:g} | {' | '.join(cells)} |")
    return lines


def preprocessing(seeds: int) -> list[str]:
    """Distance of the worst center to its mean, where the radius breaks (1), with and without Lemma 16."""
    lemma = functools.partial(algorithm_5.centers, parts=algorithm_5.Parts(1.0 / N_CLUSTERS, 1.0))
    columns = ["means apart, factor", "radius", "(1) at most", "epsilon", "as printed", "with Lemma 16"]
    lines = _head("Conditions enforced by preprocessing: distance of the worst center to its mean", columns)
    for factor in (1.0, FAR):
        plain = draw_separated(FAR_ROWS, FAR_ROWS, 0)
        moved = (factor - 1.0) * plain.means
        near = np.repeat(moved, len(plain.server) // N_CLUSTERS, axis=0)
        far = plain._replace(
            rows=plain.rows + moved[plain.labels], means=factor * plain.means, server=plain.server + near
        )
        block = in_memory.client_block(far.rows, None)
        for epsilon in EPSILONS:
            cells = []
            jobs = [
                in_memory.job("feddp_kmeans", "record", epsilon, N_CLUSTERS, seed, **PRINTED) for seed in range(seeds)
            ]
            for fitted_by in (in_memory.centers, lemma):
                found = [fitted_by(each, server=far.server, block=block, seed=seed) for seed, each in enumerate(jobs)]
                cells.append(spread([judged(far, each).distance for each in found]))
            radius = float(np.linalg.norm(far.server, axis=1).max())
            most = assumptions(FAR_ROWS, FAR_ROWS)[1] / epsilon
            lines.append(f"| {factor:g} | {radius:,.0f} | {most:,.0f} | {epsilon:g} | {' | '.join(cells)} |")
    return lines


def separated_server(seeds: int) -> list[str]:
    """Cost over n where the server lacks components, and where it lacks points between clusters, too."""
    drawn = draw(LEVELS["record"][0])
    less = drawn._replace(server=drawn.server[PER_COMPONENT * N_MISSING :])
    only = less._replace(server=less.server[: PER_COMPONENT * (len(drawn.best) - N_MISSING)])
    columns = ["server data", "epsilon", *(f"T = {each}" for each in STEPS)]
    lines = _head(f"{N_MISSING} of 10 components missing: cost / n, tuned", columns)
    for name, part in (("with 100 uniform points", less), ("components alone", only)):
        for epsilon in EPSILONS:
            cells = [_missing(part, each, epsilon, seeds) for each in STEPS]
            lines.append(f"| {name} | {epsilon:g} | {' | '.join(cells)} |")
    return lines


def _missing(drawn: Drawn, n_steps: int, epsilon: float, seeds: int) -> str:
    sections = TUNED | {"lloyd": {"steps": n_steps}}
    return spread([cost(drawn, fitted(drawn, None, sections, epsilon, seed)) for seed in range(seeds)])


if __name__ == "__main__":
    main()
