"""On a lattice of three bits the largest change of all pairs of neighbors is the stated sensitivity, or in `GAPS`.

The statistics are those of the core with other constants: 8 units in place of 2**20 and 2**16, and 512 in place of
2**26. All rows of one or two integers are taken, those beyond the clipping ball among them, and all clients of one or
two rows. With `-s` the numbers of pairs are shown.
"""

import importlib
import itertools
import math
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import row_pass as core_pass
from tests.scenes import kernels

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "transforms" / "core" / "statistics"
NAME = "statistics_of_three_bits"
UNITS, STRETCHED = 8, 512
CHANGES = {
    "lattice.py": [("SUM_BITS = 20", "SUM_BITS = 3"), ("OUTER_BITS = 16", "OUTER_BITS = 3")],
    "differences.py": [("RELATIVE_BITS = 26", "RELATIVE_BITS = 9")],
    # What clients add is kept, one by one, on its way into the sum.
    "client_chunks.py": [
        ("= clip(sums, counts,", "= _kept(clip)(sums, counts,"),
        (
            "np.add.at(total, bins, ",
            "_keep_cells((chunk.n_clients, size), (client, bins), clipped)\n        np.add.at(total, bins, ",
        ),
    ],
    "clients.py": [
        # The norm of a scatter is compared as words of 32 bits, of which it has one here.
        ("squared(some)[:, 0] < 1 << 32", "_as_float(squared(some)) < OUTER_SENSITIVITY**2"),
        ("return scaled.reshape(", "_KEPT.append(scaled.reshape(padded.shape))\n    return scaled.reshape("),
    ],
}
TAP = """

_KEPT = []


def _kept(clip):
    def keeps(*totals):
        clipped = clip(*totals)
        _KEPT.append(np.concatenate(clipped, axis=1).astype(np.int64))
        return clipped

    return keeps


def _keep_cells(shape, places, clipped):
    kept = np.zeros(shape, dtype=np.int64)
    kept[places] = clipped
    _KEPT.append(kept)
"""


class Small(NamedTuple):
    """The statistics of three bits."""

    lattice: Any
    assignment: Any
    frame: Any
    differences: Any
    term_cells: Any
    client_chunks: Any
    row_pass: Any
    rows: Any
    clients: Any


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    (folder / NAME).mkdir()
    for path in SOURCE.glob("*.py"):
        text = path.read_text().replace("dapple_dp.transforms.core.statistics", NAME)
        for before, after in CHANGES.get(path.name, ()):
            assert text.count(before) == 1, (path.name, before)
            text = text.replace(before, after)
        (folder / NAME / path.name).write_text(text + TAP)
    sys.path.insert(0, str(folder))
    try:
        return Small(*(importlib.import_module(f"{NAME}.{each}") for each in Small._fields))
    finally:
        sys.path.remove(str(folder))


@pytest.fixture(params=["numpy", "kernel"])
def ways(request, small, monkeypatch):
    """NumPy and the compiled kernel."""
    with monkeypatch.context() as patch:
        kernels.use(patch, None if request.param == "numpy" else kernels.compiled())
        small.row_pass.use(core_pass.kernel())
        yield small


class Case(NamedTuple):
    """A statistic with some setting.

    Attributes:
      name: of the statistic and the unit.
      statistic: of a block.
      parts: (name, stop, norm, stated) of the parts of its vector.
      terms: whether rows have two terms after their feature.
    """

    name: str
    statistic: Callable[[ClientBlock], Any]
    parts: tuple[tuple[str, int, str, int], ...]
    terms: bool = False


def scatters_of(kept):
    """Upper triangles of what each client adds."""
    places = np.triu_indices(kept[0].shape[2])
    outer = [np.einsum("cri,crj->cij", rows, rows)[:, places[0], places[1]] for rows in kept]
    return np.concatenate(outer).astype(np.int64)


N_TERMS = 2


def frames(small, d):
    return small.frame.Frame(small.lattice.Lattice(np.zeros(d), float(UNITS)))


def centers_of(d):
    """Two centers with a tie between them, two of which one is not in the ball, and one."""
    found = [np.array(each, dtype=float)[:, :d] for each in ([[-2, 0], [2, 0]], [[-3, 1], [9, 0]], [[1, 1]])]
    return found[: 4 - d]


def assigners(small, d):
    found = [small.assignment.Assigner(each) for each in centers_of(d)]
    if d == 2:
        projection = small.assignment.Projection.from_basis(np.array([[0.6], [0.8]]))
        found.append(small.assignment.Assigner(np.array([[-2.0], [3.0]]), projection))
    return found


def apart(sums, counts, k, d, l1_counts=False):
    norms = "l1" if l1_counts else "l2"
    return (("sums", k * d, "l2", sums), ("counts", k * d + k, norms, counts))


def cases(small, unit, d):
    forms, frame = getattr(small, unit), frames(small, d)
    by_row, size = unit == "rows", d * (d + 1) // 2

    def case(name, call, parts, **how):
        return Case(f"{name}, {unit}", call, tuple(parts), **how)

    yield case("count", forms.count, [("count", 1, "l1", UNITS)])
    for bound, relative in [(64.0, True)] if by_row else itertools.product((64.0, 100.0, 20.0), (True, False)):
        yield case(
            "outer_product",
            lambda b, bound=bound, relative=relative: forms.outer_product(b, frame, bound, relative=relative),
            [("scatter", size, "frobenius", UNITS**2)],
        )
    for each in assigners(small, d):
        yield from _binned(case, forms, frame, each, d, by_row)
    for centers in centers_of(d):
        yield from _measured(case, small, forms, frame, centers, by_row)
    for at in (np.zeros(d), np.full(d, 0.5)):
        bins = len(small.rows.distances.NORM_GRID) + 1
        yield case("norm_histogram", lambda b, at=at: forms.norm_histogram(b, at), [("bins", bins, "l1", UNITS)])


def _binned(case, forms, frame, each, d, by_row):
    k = each.size
    for relative, bound in [(True, 1.0)] if by_row else [*itertools.product((True, False), (1.0, 1.5, 0.7)[::d])]:
        yield case(
            "histogram" if by_row else f"histogram relative={relative}",
            lambda b, bound=bound, relative=relative: forms.histogram(b, frame, each, bound, relative=relative),
            [("counts", k, "l2" if relative and not by_row else "l1", UNITS)],
        )
    if by_row:
        yield case(
            "sums_and_counts for Laplace",
            lambda b: forms.sums_and_counts(b, frame, each, 8.0, 1.0),
            [("sums", k * d, "l1", math.isqrt(d * UNITS**2)), ("counts", k * d + k, "l1", UNITS)],
        )
    settings = [(8.0, 1.0)] if by_row else [(8.0, 1.0), (5.0, 0.7), (12.0, 2.0)][: 4 - d]
    for name in ("mean_sums_and_counts", "means_of_means", "clipped_sums_and_counts"):
        for bounds in settings:
            yield case(
                name,
                lambda b, bounds=bounds, name=name: getattr(forms, name)(b, frame, each, *bounds),
                apart(UNITS, UNITS, k, d, by_row or name != "mean_sums_and_counts"),
            )


def _measured(case, small, forms, frame, centers, by_row):
    k, d = centers.shape
    tools = small.differences
    for radius, shortens in itertools.product((3, 4, 16)[d - 1 :], (True, False)):
        around = tools.Neighborhoods(centers, radius, shortens)
        for bounds in [(radius, 1.0)] if by_row else [(radius, 1.0), (max(1, radius // 2), 0.7)]:
            yield case(
                "relative_sums",
                lambda b, around=around, bounds=bounds: forms.relative_sums(b, frame, around, *bounds),
                apart(STRETCHED, UNITS, k, d, by_row),
            )
    for least, bound in itertools.product((1, 4), (1.0,) if by_row else (1.0, 0.6)):
        yield case(
            "direction_sums",
            lambda b, least=least, bound=bound: forms.direction_sums(b, frame, centers, least, bound),
            apart(UNITS, UNITS, k, d, by_row),
        )
    for bound in (5, 64, 1000)[: 4 - d]:
        yield case(
            "quality",
            lambda b, bound=bound: forms.quality(b, frame, centers, bound),
            [("cost", 1, "l1", UNITS), ("sizes", 1 + k, "l1", UNITS)],
        )
        yield case(
            "gain",
            lambda b, bound=bound: forms.gain(b, frame, centers, -centers, bound),
            [("gain", 1, "l1", UNITS)],
        )
    if by_row:
        for inner in (2, 4):
            yield case(
                "row_split_sums",
                lambda b, inner=inner: tools.row_split_sums(b, frame, centers, inner, 4),
                apart(STRETCHED, UNITS, 2 * k, d, True),
            )
    if d == 1:
        for most in (1, 2):
            limits = small.term_cells.CellLimits(N_TERMS, most)
            yield case(
                f"term_cells L={most}",
                lambda b, limits=limits: forms.term_cells(b, frame, small.assignment.Assigner(centers), limits),
                [("cells", k * N_TERMS, "l2", UNITS)],
                terms=True,
            )


def rows_of(case, d, reach):
    """Every row of integers of at most `reach`, with every two terms where rows have terms."""
    sides = [range(-reach, reach + 1)] * d + ([range(-1, N_TERMS)] * 2 if case.terms else [])
    return np.array([*itertools.product(*sides)], dtype=float)


def squares(vectors, norm, d):
    """Squared norms of vectors, shape (n, size), exact."""
    if norm == "l1":
        return np.abs(vectors).sum(axis=1) ** 2
    if norm == "l2":
        return (vectors**2).sum(axis=1)
    weights = np.array([1 if i == j else 2 for i in range(d) for j in range(i, d)])
    return (vectors**2 * weights).sum(axis=1)


class Largest:
    """The largest change of each part of each statistic, squared, and the number of neighbors."""

    def __init__(self):
        self.found, self.tried = {}, {}

    def add(self, case, vectors, d):
        start = 0
        assert vectors.shape[1] == case.parts[-1][1]
        self.tried[case.name] = self.tried.get(case.name, 0) + len(vectors)
        for part, stop, norm, stated in case.parts:
            largest = int(squares(vectors[:, start:stop], norm, d).max(initial=0))
            assert largest <= stated**2, (case.name, part)
            key = f"{case.name}: {part}"
            self.found[key] = max(self.found.get(key, (0, 0)), (largest, stated**2))
            start = stop

    def check(self, gaps):
        for name, tried in self.tried.items():
            sys.stdout.write(f"\n{name}: {tried} pairs of neighbors")
        short = {name: largest for name, (largest, stated) in self.found.items() if largest < stated}
        assert short == {name: largest for name, largest in gaps.items() if name in self.found}


def block(*clients):
    offsets = np.cumsum([0, *(len(rows) for rows in clients)])
    return ClientBlock(np.concatenate(clients), offsets)


def every_pair(case, unit, rows):
    """Changes of all neighbors that are data sets of at most two rows, by calls of the statistic alone."""
    alone = [case.statistic(block(row[None])) for row in rows]
    yield from alone
    for (first, one), (_, other) in itertools.product(enumerate(rows), enumerate(rows)):
        if unit == "clients":
            yield case.statistic(block(np.stack([one, other])))
        yield case.statistic(block(one[None], other[None])) - alone[first]


SCATTER, TERMS = "outer_product, clients: scatter", "term_cells L=2, {}: cells"
GAPS = {
    1: {SCATTER: 61**2, TERMS.format("rows"): 50, TERMS.format("clients"): 50},
    2: {SCATTER: 4063},
}
"""Squares of the largest changes by number of features, where they are less than stated.

A client's scatter must stay below its bound of 64, and rows of integers do not come nearer. Two cells of a term get
floor(8 / sqrt(2)) = 5 units each.
"""


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["rows", "clients"])
def test_data_sets_of_two_numbers(ways, unit):
    largest = Largest()
    for case in cases(ways, unit, 1):
        rows = rows_of(case, 1, 1 if case.terms else 9 if unit == "rows" else 8)
        largest.add(case, np.array([*every_pair(case, unit, rows)]), 1)
    largest.check(GAPS[1])


@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_row(ways, d):
    """A row adds the same beside all others, in any order."""
    largest = Largest()
    for case in cases(ways, "rows", d):
        rows = rows_of(case, d, 2 if case.terms else 9)
        alone = np.array([case.statistic(block(row[None])) for row in rows])
        inside = np.flatnonzero((rows**2).sum(axis=1) <= UNITS**2)
        pairs = rows[np.stack(np.meshgrid(inside, inside), axis=-1).reshape(-1)]
        np.testing.assert_array_equal(case.statistic(block(pairs)), 2 * len(inside) * alone[inside].sum(axis=0))
        largest.add(case, alone, d)
    largest.check(GAPS[d])


@pytest.mark.parametrize("d", [1, 2])
def test_every_client_of_two_rows(ways, d):
    """A client adds the same beside all others, and beside some of them in another order."""
    largest, kept = Largest(), [vars(getattr(ways, each))["_KEPT"] for each in Small._fields]
    rows = rows_of(Case("", len, ()), d, 8)
    rows = rows[(rows**2).sum(axis=1) <= UNITS**2]
    first, second = np.triu_indices(len(rows))
    pairs = np.stack([rows[first], rows[second]], axis=1)

    def added(case, clients):
        """Returns what single rows add, then what clients of two rows add."""
        for each in kept:
            each.clear()
        offsets = np.concatenate([np.arange(len(rows)), len(rows) + np.arange(0, 2 * len(clients) + 1, 2)])
        total = case.statistic(ClientBlock(np.concatenate([rows, clients.reshape(-1, d)]), offsets))
        tapped = [vectors for each in kept for vectors in each]
        vectors = scatters_of(tapped) if case.parts[0][2] == "frobenius" else np.concatenate(tapped)
        np.testing.assert_array_equal(total, vectors.sum(axis=0))
        return vectors

    for case in cases(ways, "clients", d):
        if not (case.terms or case.name.startswith("count")):
            vectors, some = added(case, pairs), added(case, pairs[::-7, ::-1])
            np.testing.assert_array_equal(vectors[len(rows) :][::-7], some[len(rows) :])
            largest.add(case, vectors, d)
    largest.check(GAPS[d])
