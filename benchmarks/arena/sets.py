"""The data of the arena, each draw scaled to the box [-1, 1], which is public.

Sets of more than 5,000 rows are sub-sampled to as many, so that every system can finish them.
"""

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import data, mixture, regimes

Rows = NDArray[np.float64]
MOST_ROWS = 5_000
SIX = ("iris", "lsun", "s1", "house", "wine", "adult")
ROOT = Path(__file__).resolve().parents[2]


class Task(NamedTuple):
    """One draw: `rows` (n, d) inside the box, k, delta, and server data (q, d) or None."""

    rows: Rows
    k: int
    delta: float
    server: Rows | None = None


def _task(rows: Rows, k: int, server: Rows | None = None) -> Task:
    return Task(rows, k, 1.0 / (len(rows) * math.log(len(rows))), server)


def _part(rows: Rows, seed: int) -> Rows:
    """At most `MOST_ROWS` of the rows."""
    chosen = np.random.default_rng([seed, 40]).permutation(len(rows))[:MOST_ROWS]
    return rows if len(rows) <= MOST_ROWS else rows[np.sort(chosen)]


def six(name: str) -> Callable[[int, Path | None], Task]:
    """One of the sets of the FastLloyd paper."""

    def draw(seed: int, folder: Path | None) -> Task:
        from benchmarks.papers.fastlloyd import scaled

        return _task(_part(scaled(data.rows(name, folder)), seed), data.SETS[name].n_clusters)

    return draw


def shape(k: int, make: regimes.Make) -> Callable[[int, Path | None], Task]:
    """A generator of `benchmarks.regimes`."""
    return lambda seed, _: _task(make(np.random.default_rng([seed, 2026])), k)


def mixed(seed: int, _: Path | None) -> Task:
    """The mixture of the FedDP-KMeans paper, with its server data."""
    drawn = mixture.draw(seed, MOST_ROWS)
    rows, server = ((np.clip(each, -2.5, 3.5) - 0.5) / 3.0 for each in (drawn.rows, drawn.server))
    return _task(rows, 10, server)


def census(seed: int, _: Path | None) -> Task:
    """Silos of `examples/census`, with their server data."""
    import pyarrow.parquet as pq

    sys.path.insert(0, str(ROOT / "examples" / "census"))
    from make_lake import make_lake  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        make_lake(Path(folder), seed)
        found = []
        for place in ("clients", "server.parquet"):
            column = pq.read_table(Path(folder) / place, columns=["x"])["x"].combine_chunks()
            found.append(2.0 * column.flatten().to_numpy().reshape(len(column), -1).astype(np.float64) - 1.0)
    return _task(_part(found[0], seed), 10, found[1])


def roll(rng: np.random.Generator) -> Rows:
    """A surface rolled up in three dimensions."""
    from sklearn.datasets import make_swiss_roll

    return np.asarray(make_swiss_roll(MOST_ROWS, noise=0.3, random_state=int(rng.integers(2**31)))[0]) / 16.0


def moons(rng: np.random.Generator) -> Rows:
    """Two half circles that lie in each other."""
    from sklearn.datasets import make_moons

    return np.asarray(make_moons(1_000, noise=0.06, random_state=int(rng.integers(2**31)))[0]) / 2.5


def photograph(rng: np.random.Generator) -> Rows:
    """Colors of pixels of a photograph that scikit-learn ships."""
    from sklearn.datasets import load_sample_image

    return rng.permutation(load_sample_image("china.jpg").reshape(-1, 3))[:MOST_ROWS] / 127.5 - 1.0


def heavy_tails(rng: np.random.Generator) -> Rows:
    """Six clusters whose rows lie about their middles by Student's t with two degrees of freedom."""
    means = rng.uniform(-0.8, 0.8, (6, 4))
    return means[rng.integers(0, 6, 2_000)] + 0.05 * rng.standard_t(2, (2_000, 4))


SETS: dict[str, tuple[str, Callable[[int, Path | None], Task]]] = {
    "iris": ("few rows", six("iris")),
    "wine": ("few rows", six("wine")),
    "lsun": ("few rows", six("lsun")),
    "diabetes": ("few rows", shape(4, regimes.bundled("diabetes"))),
    "breast_cancer": ("few rows", shape(2, regimes.bundled("breast_cancer"))),
    "rows_400": ("few rows", shape(4, regimes.clusters(4, 6, 400, 0.15))),
    "house": ("few features", six("house")),
    "s1": ("few features", six("s1")),
    "photograph": ("few features", shape(16, photograph)),
    "adult": ("many rows", six("adult")),
    "far_cluster": ("unequal sizes", shape(4, regimes.far_cluster(3, MOST_ROWS, 50))),
    "zipf": ("unequal sizes", shape(16, regimes.clusters(16, 4, MOST_ROWS, 0.04, 1.0))),
    "atoms": ("few distinct points", shape(12, regimes.atoms(30, 5, MOST_ROWS))),
    "clusters_40": ("many clusters", shape(40, regimes.clusters(40, 5, MOST_ROWS, 0.05))),
    "swiss_roll": ("manifold", shape(8, roll)),
    "moons": ("manifold", shape(8, moons)),
    "heavy_tails": ("heavy tails", shape(6, heavy_tails)),
    "digits": ("many features", shape(10, regimes.bundled("digits"))),
    "mixture": ("many features, server data", mixed),
    "census": ("many features, server data", census),
}
"""Regime and draw of every set, by its name; a draw takes a seed and the folder of data files."""
FIXED = (*SIX, "diabetes", "breast_cancer", "digits")
"""Their draws differ in nothing but the noise (and which rows are left out)."""


def drawn(name: str, seed: int, folder: Path | None) -> Task:
    """A draw of a set; its server data are clipped to the box.

    Raises:
      LookupError: if the set needs a file that is not there.
    """
    task = SETS[name][1](seed, folder)
    server = None if task.server is None else np.clip(task.server, -1.0, 1.0)
    return task._replace(rows=np.clip(task.rows, -1.0, 1.0), server=server)
