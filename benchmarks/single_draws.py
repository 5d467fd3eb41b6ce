"""How bad single draws of `auto` and of the central tree get: beside their median, and beside one released mean.

Cost (mean squared distance to the nearest center) over that of the best of some k-means runs without privacy. A draw is
bad if it costs more than 1.2 medians. `warned`: how many of the bad draws have a warning in the report, and how many of
the others. One released mean is what the same job releases with `n_clusters: 1` at the same epsilon; the exact mean has
no noise. Each draw has rows and noise of its own, but for sets that scikit-learn ships, whose rows are always the same.
Only the box is public. Rounds, noise and server steps are those of a fit on arrays. Rows that the page has and a run
does not draw stay, and each is written as soon as it is drawn.

    python -m benchmarks.single_draws --out benchmarks/results/single_draws.md
    python -m benchmarks.single_draws --sets "iris|wine" --out benchmarks/results/single_draws.md
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement, pieces, regimes
from benchmarks.coverage_kinds import Job, key_of
from benchmarks.regimes import Make, Rows
from pipelines.kmeans.plan.public_fit import PublicFit
from pipelines.kmeans.report import report_warnings
from pipelines.page.page import Level
from schemas.kmeans.fit_config import validated
from schemas.kmeans.model import ClusterModel
from schemas.tables.client_block import ClientBlock

BAD = 1.2
"""A draw is bad above this many medians."""


def off_center(k: int, d: int, n: int, width: float) -> Make:
    """Gaussian clusters in one corner of the box."""

    def draw(rng: np.random.Generator) -> Rows:
        means = rng.uniform(0.2, 0.9, (k, d))
        return np.clip(means[rng.choice(k, n)] + rng.normal(0.0, width, (n, d)), -1.0, 1.0)

    return draw


SETS: dict[str, tuple[int, Make]] = {
    "off-center, k = 10, d = 6": (10, off_center(10, 6, 20_000, 0.05)),
    "off-center, k = 5, d = 6": (5, off_center(5, 6, 3_000, 0.05)),
    "Zipf sizes, k = 19, d = 6": regimes.SETS["Zipf sizes, k = 19, d = 6"],
    "300 rows, k = 4, d = 6": (4, regimes.clusters(4, 6, 300, 0.15)),
    "450 rows, k = 4, d = 6": (4, regimes.clusters(4, 6, 450, 0.15)),
    "diabetes, k = 4": (4, regimes.bundled("diabetes")),
    "iris, k = 3": (3, regimes.bundled("iris")),
    "wine, k = 3": (3, regimes.bundled("wine")),
    "breast cancer, k = 2": (2, regimes.bundled("breast_cancer")),
    "digits, k = 10": (10, regimes.bundled("digits")),
}
SMALL, LEAST_EPSILON = 5_000, min(regimes.EPSILONS)
"""The central tree runs on sets of fewer rows, at the least epsilon."""


@functools.cache
def job(algorithm: str, k: int, d: int, epsilon: float) -> Job:
    """Ready to run on arrays."""
    settings: dict[str, Any] = {
        "algorithm": algorithm,
        "data": {"path": "rows", "features": [f"x{index}" for index in range(d)]},
        "n_clusters": k,
        "privacy": {"unit": "record", "epsilon": epsilon, "delta": regimes.DELTA},
    }
    if algorithm == "auto":
        settings |= {"dp_lloyd": {"domain": [-1.0, 1.0]}}
    else:
        radius = float(np.sqrt(d))
        settings |= {"clipping": {"norm": radius, "center": "none"}, "tree": {"radius": radius}}
    config = validated(settings)
    return Job(config=config, fit=PublicFit.of(config, np.zeros((0, d))))


def model_of(given: Job, rows: Rows, *label: object) -> ClusterModel:
    """Of one run; the label makes its noise its own."""
    return given.run(ClientBlock(rows), key_of(*label))[1]


def warned(given: Job, model: ClusterModel) -> bool:
    """Whether the report of a run has a warning."""
    view = given.view(model)
    return any(each.level is Level.WARNING for each in report_warnings.warnings(view, report_warnings.run_checks(view)))


def cells(name: str, algorithm: str, epsilon: float, drawn: list[Rows], best: list[float]) -> list[str]:
    """Of a row of the page."""
    k, d = SETS[name][0], drawn[0].shape[1]
    many, one = job(algorithm, k, d, epsilon), job("auto", 1, d, epsilon)
    models = [model_of(many, rows, name, algorithm, epsilon, index) for index, rows in enumerate(drawn)]
    found = np.array([regimes.cost(rows, model.centers) for rows, model in zip(drawn, models, strict=True)])
    released = [
        regimes.cost(rows, model_of(one, rows, name, "mean", epsilon, index).centers)
        for index, rows in enumerate(drawn)
    ]
    exact = [regimes.cost(rows, rows.mean(axis=0)[None]) for rows in drawn]
    ratios = found / best
    median = float(np.median(ratios))
    bad = ratios > BAD * median
    told = np.array([warned(many, model) for model in models])
    return [
        f"{name}, {algorithm}",
        f"{epsilon:g}",
        f"{median:.3f}",
        f"{ratios.max():.3f}",
        str(bad.sum()),
        f"{told[bad].sum()} of {bad.sum()}",
        f"{told[~bad].sum()} of {(~bad).sum()}",
        str((found > released).sum()),
        str((found > exact).sum()),
    ]


def measured(draws: int, pattern: str) -> Iterator[list[str]]:
    """Cells of rows."""
    for name, (k, make) in SETS.items():
        if re.search(pattern, name) is None:
            continue
        drawn = [make(np.random.default_rng([seed, 2026])) for seed in range(draws)]
        same = all(np.array_equal(drawn[0], each) for each in drawn)
        best = [regimes.best_cost(each, k) for each in (drawn[:1] if same else drawn)] * (draws if same else 1)
        for epsilon in regimes.EPSILONS:
            yield cells(name, "auto", epsilon, drawn, best)
        if len(drawn[0]) < SMALL:
            yield cells(name, "central_tree", LEAST_EPSILON, drawn, best)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--sets", default="", help="a regular expression of their names; default: all")
    arguments = parser.parse_args()
    words = (
        f"Cost over k-means without privacy. Unit record, delta {regimes.DELTA:g}. Bad draws cost more than {BAD:g} "
        "medians; the last two columns count draws that cost more than one center, with and without noise."
    )
    columns = (
        "set and algorithm",
        "epsilon",
        "median",
        "largest",
        "bad",
        "bad ones warned of",
        "others warned of",
        "above one released mean",
        "above the exact mean",
    )
    heading = machine.heading("Single draws: the worst of many, beside their median and beside one center")
    with threadpool_limits(limits=1):
        for each in measured(arguments.draws, arguments.sets):
            drawn = {(each[0], each[1]): each}
            measurement.show(
                pieces.merged(heading, words, columns, drawn, arguments.draws, arguments.out), arguments.out
            )


if __name__ == "__main__":
    main()
