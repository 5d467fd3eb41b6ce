"""`privacy.shares: auto` of FedDP-KMeans beside a real grid of shares and Lloyd rounds: by how much its choice is off.

A cell is a set of rows, a unit and an epsilon. Every vector of the grid runs once on each of some draws of rows and
server data, the best of them several times, and the one that is best then on noise of its own, so that its mean owes
nothing to chance. `auto` chooses for each draw by its server data, before a row is read; that choice, and the fixed
shares with one Lloyd round, run on the same draws as often. The grid is finer than what `auto` compares, and wider.

Fits run on rows in memory, with the statistics, noise and server steps of `fit`.

    python -m benchmarks.auto_shares --out benchmarks/results/auto_shares.md
    python -m benchmarks.auto_shares --sets digits --out benchmarks/results/auto_shares.md
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement, mixture, pieces, regimes
from benchmarks.papers import in_memory
from benchmarks.separated_mixture import mean_cost
from pipelines.kmeans.plan.public_fit import resolve_settings
from schemas.kmeans.fit_config import FitConfig
from schemas.kmeans.sections.feddp_config import LloydConfig
from schemas.kmeans.sections.privacy_config import SharesConfig
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.protocols import PROTOCOLS
from transforms.kmeans.simulated_fit import run_once
from transforms.privacy import accounting

EPSILONS = (0.3, 1.0, 3.0)
OUTER, WEIGHTS, COUNTS = (0.05, 0.1, 0.25, 0.5), (0.03, 0.07, 0.15, 0.3), (0.1, 0.25)
"""Shares of outer product and weights, and that of counts in what is left."""
LLOYD = (LloydConfig(), *(LloydConfig(steps=steps, share=share) for steps, share in ((1, 0.25), (1, 0.5), (2, 0.5))))
FINALISTS = 12
"""Vectors that run more than once."""


class Draw(NamedTuple):
    """Rows, public server data, shape (q, d), and the number of clusters."""

    block: ClientBlock
    server: NDArray[np.float64]
    n_clusters: int


class Choice(NamedTuple):
    """Shares (None for the fixed ones) and Lloyd rounds."""

    shares: SharesConfig | None
    lloyd: LloydConfig


def of_mixture(seed: int, client_rows: int | None = None) -> Draw:
    """3,000 rows of a mixture like the paper's in 12 features, its server data of 300 rows."""
    found = mixture.draw(seed, 3_000, n_features=12)
    return Draw(in_memory.client_block(np.asarray(found.rows, dtype=np.float64), client_rows), found.server, 10)


def of_regime(seed: int, name: str) -> Draw:
    """A set of `benchmarks.regimes`, of whose rows a random part is public."""
    k, make = regimes.SETS[name]
    rng = np.random.default_rng([seed, 38])
    rows = rng.permutation(make(rng))
    public = min(300, len(rows) // 6)
    return Draw(ClientBlock(rows[public:]), rows[:public], k)


SETS: dict[str, tuple[str, Callable[[int], Draw]]] = {
    "mixture, records": ("record", of_mixture),
    "mixture, 150 clients": ("client", lambda seed: of_mixture(seed, 20)),
    "digits": ("record", lambda seed: of_regime(seed, "digits, k = 10")),
    "wide": ("record", lambda seed: of_regime(seed, "wide, k = 6, d = 6")),
}


def grid() -> list[Choice]:
    """All vectors."""
    found = []
    for outer, weights, counts, lloyd in itertools.product(OUTER, WEIGHTS, COUNTS, LLOYD):
        rest = 1.0 - outer - weights
        shares = SharesConfig(outer_product=outer, weights=weights, sums=rest * (1.0 - counts), counts=rest * counts)
        found.append(Choice(shares, lloyd))
    return found


def job(draw: Draw, unit: str, epsilon: float, shares: object, lloyd: LloydConfig) -> FitConfig:
    """The job of a draw with these shares, its space decided by the server data."""
    client = draw.block.offsets is not None
    n_units = draw.block.n_clients if client else len(draw.block.points)
    clipping = {"client_rows": 20 if client else None}
    sections = {"privacy": {"shares": shares}, "plan": {"assumed_rows": n_units}, "clipping": clipping}
    asked = in_memory.job("feddp_kmeans", unit, epsilon, draw.n_clusters, 0, lloyd=lloyd.model_dump(), **sections)
    return resolve_settings(asked, draw.server)


def ratio(config: FitConfig, choice: Choice, draw: Draw, least: float, label: str) -> float:
    """Cost of one run with these shares, over the least."""
    privacy = config.privacy.model_copy(update={"shares": choice.shares})
    config = config.model_copy(update={"privacy": privacy, "lloyd": choice.lloyd})
    protocol, n_features = PROTOCOLS[config.algorithm], draw.server.shape[1]
    specs = protocol.round_specs(config, n_features, len(draw.server))
    plan = accounting.nearly_calibrated(privacy.unit, specs, privacy.epsilon, privacy.delta)
    rounds, key = protocol.rounds(config, plan), hashlib.sha256(label.encode()).digest()
    model, _ = run_once(protocol.initial_state(config, draw.server, n_features), rounds, draw.block, 1.0, key)
    return mean_cost(draw.block.points, model.centers) / least


def cell(name: str, epsilon: float, draws: Sequence[Draw], repeats: int) -> list[str]:
    """What fixed shares, `auto` and the best of the grid cost, each over k-means without privacy, and what they are."""
    unit = SETS[name][0]
    least = [regimes.best_cost(draw.block.points, draw.n_clusters) for draw in draws]
    plain = [job(draw, unit, epsilon, None, LLOYD[1]) for draw in draws]

    def means(choices: Sequence[Choice], label: str, runs: int) -> NDArray[np.float64]:
        """Of a choice for each draw, shape (draws, runs)."""
        given = zip(plain, choices, draws, least, strict=True)
        return np.array(
            [
                [ratio(config, choice, draw, cost, f"{name}/{label}/{index}/{run}") for run in range(runs)]
                for index, (config, choice, draw, cost) in enumerate(given)
            ]
        )

    left = grid()
    for stage, runs, kept in (("first", 1, FINALISTS), ("second", 4, 1)):
        costs = [means([choice] * len(draws), stage, runs).mean() for choice in left]
        left = [left[index] for index in np.argsort(costs, kind="stable")[:kept]]
    asked = (job(draw, unit, epsilon, "auto", LLOYD[0]) for draw in draws)
    chosen = [Choice(each.privacy.shares, each.lloyd) for each in asked]  # type: ignore[arg-type]
    fixed, auto, best = (
        means(choices, "last", repeats)
        for choices in ([Choice(None, LLOYD[1])] * len(draws), chosen, [left[0]] * len(draws))
    )
    error = (auto - best).mean(axis=1).std(ddof=1) / np.sqrt(len(draws))
    spaces = sorted({str(each.feddp_kmeans.space) for each in plain})
    off = f"{100 * (auto.mean() / best.mean() - 1):+.1f}% ({100 * error / best.mean():.1f}%)"
    told = "; ".join(sorted({shown(each) for each in chosen}))
    costs_told = [f"{found.mean():.3f}" for found in (fixed, auto, best)]
    return [name, f"{epsilon:g}", " and ".join(spaces), *costs_told, off, told, shown(left[0])]


def shown(choice: Choice) -> str:
    """Shares of outer product, weights, sums and counts, and Lloyd rounds with their share."""
    shares = "fixed" if choice.shares is None else " ".join(f"{each:.2f}" for each in dict(choice.shares).values())
    return f"{shares}, T = {choice.lloyd.steps}" + (f" of {choice.lloyd.share:g}" if choice.lloyd.steps else "")


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=3, help="of rows and server data")
    parser.add_argument("--repeats", type=int, default=5, help="runs on each in the end")
    parser.add_argument("--sets", default="", help="a regular expression of their names; default: all")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    arguments = parser.parse_args()
    drawn = {}
    with threadpool_limits(limits=1):
        for name in SETS:
            if re.search(arguments.sets, name) is None:
                continue
            draws = [SETS[name][1](seed) for seed in range(arguments.draws)]
            for epsilon in arguments.epsilons:
                cells = cell(name, epsilon, draws, arguments.repeats)
                drawn[cells[0], cells[1]] = cells
                print(*cells, sep="\t", flush=True)
    words = (
        f"Mean cost over that of k-means without privacy, {arguments.repeats} runs on each draw. `off` is auto over "
        "the best of the grid, in brackets one standard error over draws. Shares are of outer product (of no matter in "
        "full space), weights, sums and counts, beside Lloyd rounds T and their share."
    )
    columns = ("set", "epsilon", "space", "fixed", "auto", "grid", "off", "what auto took", "best of the grid")
    heading = machine.heading("FedDP-KMeans: shares that auto takes, beside a grid")
    measurement.show(pieces.merged(heading, words, columns, drawn, arguments.draws, arguments.out), arguments.out)


if __name__ == "__main__":
    main()
