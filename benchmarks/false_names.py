"""Names of topics by noise alone, and names that are there: worlds at both units, with the functions of a fit.

`WORLDS` are exact numbers of units, of terms as frequent in every cluster, that are given to the noise stage. `ROWS`
are rows with lists of terms, in clients: cells, sizes, the plan's noise and names are those of a job. There each
common term is in one of so many rows of each client in each cluster, so a row that is weighed in any other way than
by its unit makes names here. A name is false if exact counts, in fractions, row by row, are not above the cluster's
share. `topics` are rows of ten clusters with five terms each.

    python -m benchmarks.false_names --out benchmarks/results/topics_false_names.md
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from benchmarks import machine, measurement
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import ReleasePlan, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.spherical_config import SphericalFit
from dapple_dp.transforms.core import accounting, noise
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.kmeans.lloyd.specs import COUNTS, vector_spec
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.kmeans.spherical import names
from dapple_dp.transforms.kmeans.spherical.rounds import names_statistic
from dapple_dp.transforms.kmeans.spherical.server import initial_state, names_step

UNITS = ("record", "client")
CONFIDENCE = 0.99
AT_ONCE = 500
"""Runs whose noise is drawn together."""
EPSILON, DELTA = 8.0, 1e-6
"""Of jobs whose names are false: much, so that little noise hides a bias."""
D = 50
STEPS = 2048.0
"""Lattice steps of a stddev in `WORLDS`: hardly more than the noise stage asks for."""
RUNS_AT_ONCE = 1000
EPSILON = 8.0
"""Of the jobs: much, so that little noise is there to hide a bias."""
D = 60


class World(NamedTuple):
    """Exact numbers where each term is exactly as frequent in each cluster, so that every name is a false one.

    Attributes:
      sizes: shape (k,): units of each cluster.
      term: units that have each of the terms.
      n_terms: V.
      stddev: of the noise of a count, in units.
      size_stddev: of that of a size.
    """

    sizes: NDArray[np.float64]
    term: float
    n_terms: int
    stddev: float
    size_stddev: float

    def names(self, runs: int, seed: int, multiplier: float = 1.0) -> NDArray[np.int64]:
        """Names in each of this many runs, by the noise stage; of `multiplier` times the stddev that the rule gets."""
        k, steps = len(self.sizes), STEPS * multiplier
        exact = np.outer(self.sizes / self.sizes.sum(), np.full(self.n_terms, self.term))
        numbers = [np.broadcast_to(self.sizes, (runs, k)), np.broadcast_to(exact, (runs, k, self.n_terms))]
        units = [self.size_stddev / STEPS, self.stddev / STEPS]
        specs = [vector_spec(str(index), each.shape, 0.5, meaning=COUNTS) for index, each in enumerate(numbers)]
        plans = [ReleasePlan(spec=each, noise_multiplier=steps / each.sensitivity) for each in specs]
        summed = [np.floor(each / unit).astype(np.int64).ravel() for each, unit in zip(numbers, units, strict=True)]
        plan = RoundPlan(path="false", releases=tuple(plans))
        key = hashlib.sha256(b"false names/%d" % seed).digest()
        sizes, counts = noise.draw_release(key, plan, np.concatenate(summed))
        words = tuple(map(str, range(self.n_terms)))
        drawn = zip(sizes.values * units[0], counts.values * units[1], strict=True)
        given = (names.named(found, self.stddev, size, self.size_stddev, words) for size, found in drawn)
        return np.array([len(each.terms) for each in given])


WORLDS = {
    "ten alike, sharp sizes": World(np.full(10, 1000.0), 500.0, 20, 20.0, 0.02),
    "ten alike, noisy sizes": World(np.full(10, 1000.0), 500.0, 20, 20.0, 20.0),
    "one of ten has nine in ten": World(np.array([9000.0] + [111.0] * 9), 5000.0, 20, 5.0, 40.0),
    "two of twenty, the others empty": World(np.array([5000.0] * 2 + [0.0] * 18), 5000.0, 20, 5.0, 40.0),
    "few units": World(np.array([50.0] + [10.0] * 9), 100.0, 20, 5.0, 40.0),
    "thirty, 100 terms": World(np.full(30, 300.0), 200.0, 100, 40.0, 40.0),
}


class Rows(NamedTuple):
    """Rows with lists of terms, in clients.

    Attributes:
      labels: shape (n_rows,): the cluster of each.
      codes: shape (n_rows, most): its terms, then -1.
      owner: shape (n_rows,), ascending from 0: its client.
      n_terms: V.
    """

    labels: NDArray[np.int64]
    codes: NDArray[np.int64]
    owner: NDArray[np.int64]
    n_terms: int

    @property
    def n_clusters(self) -> int:
        """Clusters k, each of which has a row."""
        return int(self.labels.max()) + 1

    def is_false(self, unit: str) -> NDArray[np.bool_]:
        """Shape (k, V): whether a term is no more frequent in a cluster than in all; by sets of terms, in fractions."""
        n_rows = np.bincount(self.owner)[self.owner] if unit == "client" else np.ones_like(self.owner)
        has = np.zeros((len(self.codes), self.n_terms + 1), dtype=np.int64)
        np.put_along_axis(has, self.codes, 1, axis=1)
        has[:, -1] = 1
        total = np.zeros((self.n_clusters, self.n_terms + 1), dtype=object)
        for each in np.unique(n_rows):
            for label in range(self.n_clusters):
                added = has[(n_rows == each) & (self.labels == label)].sum(axis=0)
                total[label] += np.array([Fraction(int(value), int(each)) for value in added])
        counts, sizes = total[:, :-1], total[:, -1:]
        return np.asarray(counts * sizes.sum() <= sizes * counts.sum(axis=0), dtype=bool)

    def job(self, unit: str, epsilon: float) -> SphericalFit:
        """A job that reads all of these terms."""
        settings = {
            "algorithm": "spherical",
            "data": {"path": "-", "features": "x", "client_id": "who"},
            "n_clusters": self.n_clusters,
            "privacy": {"unit": unit, "epsilon": epsilon, "delta": DELTA},
            "clipping": {"client_rows": 10},
            "names": {
                "column": "t",
                "words": [str(term) for term in range(self.n_terms)],
                "most_per_row": self.codes.shape[1],
            },
            "justification": {"privacy.unit": "made rows"},
        }
        found = validated(settings)
        assert isinstance(found, SphericalFit)
        return found

    def names(self, unit: str, runs: int, epsilon: float = EPSILON) -> NDArray[np.int64]:
        """False names, and others, in each of this many runs: shape (runs, 2)."""
        config, wrong, k = self.job(unit, epsilon), self.is_false(unit), self.n_clusters
        protocol = protocol_of(config.algorithm)
        specs = protocol.round_specs(config, D, 0)
        plan = accounting.calibrate(config.privacy.unit, specs, epsilon, DELTA, protocol.allocation(config)).rounds[-1]
        state = initial_state(config, np.zeros((0, D)), D)
        state = dataclasses.replace(state, centers=np.eye(D)[:k] * lattice.SUM_UNITS, totals=np.zeros((k, D)))
        points = np.hstack([np.eye(D)[self.labels], self.codes])
        offsets = np.concatenate([[0], np.cumsum(np.bincount(self.owner))]).astype(np.int64)
        exact = names_statistic(ClientBlock(points, offsets) if unit == "client" else ClientBlock(points), state)
        found = []
        for releases in drawn(plan, exact, runs):
            given = names.cluster_names(config, names_step(state, releases).releases)
            assert given is not None
            false = int(wrong[given.clusters, [int(term) for term in given.terms]].sum())
            found.append((false, len(given.terms) - false))
        return np.array(found)


def drawn(plan: RoundPlan, exact: NDArray[np.int64], runs: int) -> Iterator[tuple[Release, ...]]:
    """The releases of a round, so many times, with the noise of many runs drawn at once."""
    parts = np.split(exact, np.cumsum([each.spec.size for each in plan.releases])[:-1])
    for first in range(0, runs, AT_ONCE):
        some = min(AT_ONCE, runs - first)
        wide = tuple(
            dataclasses.replace(each, spec=dataclasses.replace(each.spec, shape=(some, *each.spec.shape)))
            for each in plan.releases
        )
        key = hashlib.sha256(b"names of rows/%d" % first).digest()
        summed = np.concatenate([np.tile(part, some) for part in parts])
        found = noise.draw_release(key, dataclasses.replace(plan, releases=wide), summed)
        for run in range(some):
            yield tuple(
                dataclasses.replace(release, plan=each, values=release.values[run])
                for each, release in zip(plan.releases, found, strict=True)
            )


def grouped(
    labels: NDArray[np.int64],
    owner: NDArray[np.int64],
    places: NDArray[np.int64],
    size: int,
    fillers: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]] | None = None,
    most: int = 0,
) -> Rows:
    """Groups of rows of one cluster and client, of which one has each common term.

    Args:
      labels: shape (n_groups,): clusters.
      owner: shape (n_groups,): clients.
      places: shape (n_groups, n_common): which row of the group has each common term.
      size: rows of a group.
      fillers: (clusters of rows, common terms of rows) -> how many other terms each has, the first of `most`.
      most: other terms.
    """
    rows, n_common = np.repeat(labels, size), places.shape[1]
    has = np.repeat(places, size, axis=0) == (np.arange(len(rows)) % size)[:, None]
    if fillers is not None:
        has = np.hstack([has, np.arange(most) < fillers(rows, has.sum(axis=1))[:, None]])
    # All terms are read, so their places in the list do not matter.
    codes = np.where(has, np.arange(n_common + most), -1)
    return Rows(rows, codes, np.repeat(owner, size), n_common + most)


def _some(n_groups: int, n_common: int, size: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, size, (n_groups, n_common))


def _each(n_clients: int, groups: int) -> NDArray[np.int64]:
    """Clients of as many groups each."""
    return np.repeat(np.arange(n_clients), groups)


def in_all_clusters() -> Rows:
    """Clients with rows in all of four clusters."""
    return grouped(np.tile([0] * 7 + [1, 2, 3], 1000), _each(1000, 10), _some(10_000, 20, 5), 5)


def short_and_long() -> Rows:
    """Lists of none or one term, and of 99 or 100, in clients with rows of both."""
    labels = np.tile([0, 1], 2000)
    return grouped(labels, _each(1000, 4), _some(4000, 1, 2), 2, lambda label, _: 99 * label, 99)


def long_with_the_term() -> Rows:
    """Rows whose lists are short in one cluster and long in the other if they have the term."""
    labels, first = np.tile([0, 1], 2000), np.zeros((4000, 1), dtype=np.int64)
    return grouped(labels, _each(2000, 2), first, 3, lambda label, has: 30 * (label != has), 30)


def repeated() -> Rows:
    """The same five lists in all groups of a cluster, and clients with one group ten times."""
    labels = np.repeat(np.arange(400) % 8, 10)
    return grouped(labels, _each(400, 10), _some(8, 30, 5)[labels], 5)


def one_client_over_and_over() -> Rows:
    """6,000 clients with the same 21 rows, whose shares have no exact place on the lattice."""
    labels = np.tile([0, 1, 1, 1, 1, 2, 2], 6000)
    return grouped(labels, _each(6000, 7), np.tile(_some(7, 20, 3), (6000, 1)), 3)


def one_dominates() -> Rows:
    """One cluster of ten with 97 rows in 100."""
    labels = np.where(np.arange(20_000) % 100 < 97, 0, np.arange(20_000) % 9 + 1)
    return grouped(labels, _each(4000, 5), _some(20_000, 20, 5), 5)


def many_rows_here_few_there() -> Rows:
    """Clients of 100 rows in one cluster, of 5 in the others."""
    owner = np.repeat(np.arange(2000), np.where(np.arange(2000) % 4 == 0, 20, 1))
    return grouped(owner % 4, owner, _some(len(owner), 20, 5), 5)


def fifty() -> Rows:
    """Fifty clusters, with lists of at most 10 in one half and of 31 to 40 in the other."""
    labels = np.arange(10_000) % 50
    return grouped(labels, _each(2500, 4), _some(10_000, 10, 5), 5, lambda label, _: 30 * (label % 2), 30)


def few_rows() -> Rows:
    """Twenty clients in three clusters."""
    return grouped(np.arange(40) % 3, _each(20, 2), _some(40, 60, 5), 5)


def single() -> Rows:
    """All rows in one cluster."""
    return grouped(np.zeros(1000, dtype=np.int64), _each(250, 4), _some(1000, 20, 5), 5)


ROWS = {
    "clients in all of four clusters": in_all_clusters,
    "lists of at most 1 term, and of 99 or 100": short_and_long,
    "rows with the term have short lists here, long ones there": long_with_the_term,
    "five lists in each cluster, repeated": repeated,
    "the same client over and over": one_client_over_and_over,
    "one of ten has 97 rows in 100": one_dominates,
    "clients of 100 rows in one cluster, of 5 in others": many_rows_here_few_there,
    "fifty clusters, lists of up to 10 and of up to 40": fifty,
    "twenty clients": few_rows,
    "one cluster": single,
}
"""Worlds of rows, each with what it is called."""


def topics(n_units: int, n_rows: int, most: int) -> Rows:
    """Ten topics of five terms, which two in five of their rows have, and one in twenty of the others.

    Args:
      n_units: units in all.
      n_rows: of a unit, four in five of them in a cluster of its own.
      most: terms of a row.
    """
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(n_units), n_rows)
    labels = np.where(rng.random(len(owner)) < 0.8, owner % 10, rng.integers(0, 10, len(owner)))
    odds = np.where(labels[:, None] == np.arange(100) // 5 % 20, 0.4, 0.05)
    has = rng.random(odds.shape) < odds
    order = np.argsort(rng.random(odds.shape) - has, axis=1, kind="stable")[:, :most]
    return Rows(labels, np.where(np.take_along_axis(has, order, axis=1), order, -1), owner, 100)


def upper(numbers: NDArray[np.int64]) -> float:
    """Upper bound on the expected number, with `CONFIDENCE`: by a Poisson law, wider if names come together."""
    total, mean = int(numbers.sum()), float(numbers.mean())
    together = max(1.0, float(numbers.var()) / mean) if total else 1.0
    return together * float(chi2.ppf(CONFIDENCE, 2.0 * (total / together + 1.0))) / (2.0 * len(numbers))


def tables(runs: int) -> list[str]:
    """Markdown of all."""
    sure = f"{CONFIDENCE:.0%} sure to be at most"
    lines = [f"At most {names.FALSE_NAMES:g} false names a run are stated. {runs:,} runs of each.", ""]
    lines += ["## Exact numbers", "", f"| clusters | false names a run | {sure} |", "| --- | --- | --- |"]
    for title, world in WORLDS.items():
        found = np.concatenate([world.names(AT_ONCE, seed) for seed in range(math.ceil(runs / AT_ONCE))])
        lines.append(f"| {title} | {found.mean():.4f} | {upper(found):.4f} |")
    lines += ["", "## Rows", "", f"| rows | unit | false names a run | {sure} |", "| --- | --- | --- | --- |"]
    for title, make in ROWS.items():
        rows = make()
        for unit in UNITS:
            found = rows.names(unit, runs)[:, 0]
            lines.append(f"| {title} | {unit} | {found.mean():.4f} | {upper(found):.4f} |")
    lines += ["", "## Names that are there", ""]
    lines += [f"Names of `topics` that are right, of 50: means of {POWER_RUNS} runs, by `names.most_per_row`.", ""]
    lines += ["| unit | epsilon | units | 8 | 16 | 32 |", "| --- " * 6 + "|"]
    for unit, epsilon, n_rows in POWER:
        for n_units in (1000, 2000, 4000, 6000, 10_000):
            found = (topics(n_units, n_rows, most).names(unit, POWER_RUNS, epsilon) for most in (8, 16, 32))
            right = " | ".join(f"{each[:, 1].mean():.1f}" for each in found)
            lines.append(f"| {unit} | {epsilon:g} | {n_units:,} | {right} |")
    return lines


POWER, POWER_RUNS = (("record", 1.0, 1), ("client", 2.0, 10)), 200
"""Unit, epsilon and rows of a unit of jobs whose names are there."""


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    arguments = parser.parse_args()
    lines = machine.heading("Names of topics by noise alone")
    measurement.show([*lines, *tables(arguments.runs)], arguments.out)


if __name__ == "__main__":
    main()
