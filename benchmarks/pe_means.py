"""PE-means (arXiv 2606.00342) printed costs of 34 data sets; this runs Dapple on those that can be had.

The measure is theirs: rows are centered and scaled into the unit ball, delta is n^-1.1, and mean costs per row are
integrated over epsilon .25, .5, 1, 2, 4 by trapezoids. The ball and the box around the rows are public for all systems,
and computed from the rows, as in their code. Printed columns are the means of 50 runs. Those whose claim an attack of
the arena refutes, whatever their seed, stand last and are not compared with.

`data` sets are theirs to the last digit. `drawn` ones come from a generator of the same law (`benchmarks.data.g2`, and
clusterGeneration by `papers/random_clusters.R`): there, costs over those of k-means without privacy are comparable.

    python -m benchmarks.pe_means --data FOLDER --out benchmarks/results/pe_means.md
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import data, measurement
from benchmarks.machine import heading
from benchmarks.regimes import best_cost
from benchmarks.separated_mixture import mean_cost

Rows = NDArray[np.float64]
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
OTHERS = ("PE-means", "its projection", "Google", "FastLloyd", "diffprivlib", "Balcan et al.")
REFUTED = ("its projection", "diffprivlib")
LEVEL = 1.02
"""Up to this ratio a cost counts as level."""


class Printed(NamedTuple):
    """One row of their table: k, the cost without privacy, and the costs of `OTHERS`, NaN where there is none."""

    k: int
    plain: float
    others: tuple[float, ...]


_NO = float("nan")
PRINTED = {
    "birch2": Printed(100, 0.0001, (0.0003, _NO, 0.0658, 0.0031, 0.0124, 0.0161)),
    "iris": Printed(3, 0.1361, (0.2894, _NO, 0.6892, 0.3979, 1.3048, 5.5766)),
    "adult": Printed(3, 0.0056, (0.0056, _NO, 0.0076, 0.0155, 0.0213, 0.0113)),
    "mnist": Printed(10, 0.1958, (0.2920, 0.2169, 0.2173, 0.5822, 0.5315, 0.7904)),
    "letter": Printed(26, 0.2481, (0.2852, _NO, 0.3187, 0.3963, 0.4341, 0.6277)),
    "gas": Printed(6, 0.1026, (0.1081, _NO, 0.1121, 0.1561, 0.1761, 0.1853)),
    "g2 4": Printed(2, 0.4650, (0.4761, _NO, 0.5465, 0.4666, 0.5468, 0.8802)),
    "g2 16": Printed(2, 0.7677, (0.7800, _NO, 0.8391, 0.8687, 1.1816, 4.7489)),
    "g2 64": Printed(2, 1.0956, (1.1538, 1.1295, 1.2478, 1.9647, 2.6608, 27.5361)),
    "g2 128": Printed(2, 1.3534, (1.7237, 1.4055, 1.5906, 2.6425, 4.4632, 74.0978)),
    "scale 4 4": Printed(4, 0.0821, (0.0814, _NO, 0.1190, 0.1272, 0.1381, 0.1772)),
    "scale 4 16": Printed(4, 0.3013, (0.3147, _NO, 0.3392, 0.3721, 0.4114, 0.5948)),
    "scale 4 64": Printed(4, 0.4966, (0.5326, 0.5340, 0.5430, 0.5863, 0.6622, 2.5354)),
    "scale 4 128": Printed(4, 0.5731, (0.6179, 0.5940, 0.5987, 0.6282, 0.7481, 8.5885)),
    "scale 16 4": Printed(16, 0.0302, (0.0335, _NO, 0.0555, 0.0864, 0.0976, 0.1525)),
    "scale 16 16": Printed(16, 0.2110, (0.2452, _NO, 0.2880, 0.3624, 0.3778, 0.5679)),
    "scale 16 64": Printed(16, 0.4824, (0.5884, 0.5757, 0.5823, 0.6371, 0.6949, 2.5353)),
    "scale 16 128": Printed(16, 0.5410, (0.6131, 0.6023, 0.5992, 0.6294, 0.7612, 8.6815)),
    "scale 64 4": Printed(64, 0.0029, (0.0051, _NO, 0.0214, 0.0306, 0.0381, 0.0847)),
    "scale 64 16": Printed(64, 0.1126, (0.1607, _NO, 0.1902, 0.2393, 0.2771, 0.5238)),
    "scale 64 64": Printed(64, 0.4487, (0.5518, 0.5567, 0.5453, 0.5827, 0.6913, 2.5620)),
    "scale 64 128": Printed(64, 0.5206, (0.6874, 0.6232, 0.6299, 0.6421, 1.0248, 8.6433)),
    "sklearn 4 4": Printed(4, 0.0777, (0.0778, _NO, 0.1305, 0.1777, 0.2355, 0.1240)),
    "sklearn 16 4": Printed(16, 0.0459, (0.0445, _NO, 0.0979, 0.0990, 0.1409, 0.2601)),
    "sklearn 64 4": Printed(64, 0.0343, (0.0379, _NO, 0.1289, 0.0818, 0.1191, 0.3227)),
    "sklearn 4 16": Printed(4, 0.0950, (0.0955, _NO, 0.1395, 0.7110, 0.5049, 0.6074)),
    "sklearn 16 16": Printed(16, 0.0606, (0.0668, _NO, 0.1596, 0.7160, 0.5809, 1.4670)),
    "sklearn 64 16": Printed(64, 0.0642, (0.1183, _NO, 0.3872, 0.7631, 0.8720, 1.7704)),
    "sklearn 4 64": Printed(4, 0.0954, (0.0993, 0.0974, 0.1090, 1.4623, 0.8614, 2.7731)),
    "sklearn 16 64": Printed(16, 0.0847, (0.1192, 0.1189, 0.2258, 1.7475, 1.3716, 3.1765)),
    "sklearn 64 64": Printed(64, 0.0823, (0.3070, 0.4678, 0.7878, 2.2002, 2.2456, 3.1698)),
    "sklearn 4 128": Printed(4, 0.1054, (0.1333, 0.1097, 0.1186, 1.7604, 1.1632, 5.6663)),
    "sklearn 16 128": Printed(16, 0.0919, (0.1942, 0.1562, 0.2838, 2.3038, 1.9742, 4.9881)),
    "sklearn 64 128": Printed(64, 0.0933, (0.5740, 0.7190, 0.9675, 2.7204, 2.9608, 4.9597)),
}


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--sets", nargs="+", choices=tuple(PRINTED), default=list(PRINTED), metavar="SET")
    arguments = parser.parse_args()
    lines = heading("Dapple on the data sets of PE-means")
    with threadpool_limits(limits=1):
        lines += list(_table(arguments.sets, arguments.data, arguments.draws))
    measurement.show(lines, arguments.out)


def _table(names: list[str], folder: Path | None, draws: int) -> Iterator[str]:
    yield (
        f"Area under the cost of a row over epsilon. Dapple: means of {draws} runs. Others: as printed. Rows in the "
        "ball refute the claims of those with \u2020; they stand last."
    )
    yield ""
    ordered = sorted(OTHERS, key=lambda each: each in REFUTED)
    heads = " | ".join(f"{each} \u2020" if each in REFUTED else each for each in ordered)
    yield f"| set | rows | Dapple | k-means here | printed | Dapple to the best printed without \u2020 | {heads} |"
    yield "| --- " * (6 + len(OTHERS)) + "|"
    ratios = {}
    for name in names:
        try:
            rows, theirs = _rows(name, folder)
        except LookupError:
            continue
        printed = PRINTED[name]
        plain = best_cost(rows, printed.k) * (EPSILONS[-1] - EPSILONS[0])
        ours = _area(name, rows, printed.k, draws)
        costs = dict(zip(OTHERS, printed.others, strict=True))
        best = float(np.nanmin([costs[each] for each in OTHERS if each not in REFUTED]))
        ratios[name] = ours / best if theirs else (ours / plain) / (best / printed.plain)
        others = " | ".join("-" if np.isnan(costs[each]) else f"{costs[each]:.4f}" for each in ordered)
        kind = f"{len(rows):,}{'' if theirs else ', drawn'}"
        line = f"| {name} | {kind} | {ours:.4f} | {plain:.4f} | {printed.plain:.4f} | {ratios[name]:.3f} | {others} |"
        print(line, flush=True)
        yield line
    lost = ", ".join(f"{name} ({each:.3f})" for name, each in ratios.items() if each > LEVEL) or "none"
    won = sum(each <= 1.0 for each in ratios.values())
    level = sum(1.0 < each <= LEVEL for each in ratios.values())
    yield ""
    yield f"Of {len(PRINTED)} sets {len(ratios)} could be had: lowest on {won}, within 2% on {level}, above on: {lost}."


def _rows(name: str, folder: Path | None) -> tuple[Rows, bool]:
    """Rows in the unit ball, and whether they are those of the table; raises LookupError if they can't be had."""
    kind, *sizes = name.split()
    theirs = True
    if kind == "sklearn":
        from sklearn.datasets import make_blobs

        k, d = map(int, sizes)
        found = np.round(make_blobs(20_000, d, centers=k, random_state=1)[0], 4)
    elif kind == "g2":
        found, theirs = data.g2(int(sizes[0]), 50.0), False
    elif kind == "scale":
        found, theirs = data.random_clusters(folder, int(sizes[0]), int(sizes[1]), 1), False
    elif kind == "mnist":
        raise LookupError("features of a network that its authors trained without a seed")
    else:
        found = data.rows(kind, folder)
        theirs = kind != "birch2"
    found = found - found.mean(axis=0)
    return found / np.linalg.norm(found, axis=1).max(), theirs


def _area(name: str, rows: Rows, k: int, draws: int) -> float:
    """Area under the mean cost of some runs of `auto`."""
    costs = [np.mean([_cost(name, rows, k, epsilon, draw) for draw in range(draws)]) for epsilon in EPSILONS]
    return float(np.trapezoid(costs, EPSILONS))


def _cost(name: str, rows: Rows, k: int, epsilon: float, draw: int) -> float:
    from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
    from dapple_dp.schemas.core.block import ClientBlock
    from dapple_dp.schemas.kmeans.fit_config import validated
    from dapple_dp.transforms.core import loop

    side = float(np.abs(rows).max())
    settings = {
        "algorithm": "auto",
        "data": {"path": "rows", "features": [f"x{index}" for index in range(rows.shape[1])]},
        "n_clusters": k,
        "privacy": {"unit": "record", "epsilon": epsilon, "delta": len(rows) ** -1.1},
        "clipping": {"norm": 1.0},
        "dp_lloyd": {"domain": [-side, side]},
    }
    plan = PublicFit.of(validated(settings), np.zeros((0, rows.shape[1])))
    key = hashlib.sha256(f"{name} {epsilon} {draw}".encode()).digest()
    centers = loop.simulate(plan.initial, plan.rounds, [ClientBlock(rows)], key).model().centers
    return mean_cost(rows, centers)


if __name__ == "__main__":
    main()
