"""Adding or removing one privacy unit moves no sum of the central tree by more than its plan says."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Geometry, RoundSpec
from dapple_dp.schemas.kmeans.fit_config import FitConfig, validated
from dapple_dp.transforms.core.statistics.assignment import Projection
from dapple_dp.transforms.kmeans.central_tree import rounds as central_tree
from dapple_dp.transforms.kmeans.central_tree import server as tree_server
from dapple_dp.transforms.numerics.kmeans import tree
from dapple_dp.transforms.numerics.kmeans.tree import Hyperplanes, Tree
from tests.scenes import lake

settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=100)
settings.load_profile("ci")

D, DEPTH = 3, 7
anything = st.floats(allow_nan=False, allow_infinity=False, width=64)
rows = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 30), st.just(D)), elements=st.one_of(st.floats(-3.0, 3.0), anything)
)
radii = st.floats(1e-2, 1e2)
client_bounds = st.floats(0.05, 1.0)


def job(unit: str, radius: float) -> FitConfig:
    settings = lake.job("lake", None, unit, algorithm="central_tree", tree={"radius": radius, "depth": DEPTH})
    settings["clipping"].pop("norm")
    return validated(settings)


def grown(seed: int, radius: float, *, complete: bool) -> Tree:
    """Any tree: tables of random numbers of open nodes and leaves, some cells dropped."""
    rng = np.random.default_rng(seed)
    normals = tree.spread_directions(D, DEPTH, seed)
    planes = Hyperplanes(Projection.from_basis(normals), np.rint(rng.normal(0.0, 2e5, DEPTH)))
    first = rng.integers(-6, 3, (1, 32))
    last = rng.integers(-6, 0, (3, 4))
    return Tree(planes, (first, last) if complete else (first,), 5 if complete else 12, complete)


def state_of(config: FitConfig, seed: int, bound: float, *, complete: bool):
    state = tree_server.initial_state(config, np.zeros((0, D)), D)
    bound = bound if config.privacy.unit == "client" else 1.0
    return dataclasses.replace(state, tree=grown(seed, config.tree.radius, complete=complete), bound=bound)


def specs(config: FitConfig) -> dict[str, RoundSpec]:
    return {each.path.rpartition("/")[2]: each for each in central_tree.round_specs(config, D)}


def check(spec: RoundSpec, change: np.ndarray) -> None:
    """Every release of a round moves by at most its sensitivity."""
    start = 0
    for release in spec.releases:
        part = change[start : start + release.size] if len(spec.releases) > 1 else change
        start += release.size
        squares = [int(value) ** 2 for value in part]
        if release.geometry is Geometry.SYMMETRIC:
            diagonal = {0, D, 2 * D - 1}
            squares = [value * (1 if at in diagonal else 2) for at, value in enumerate(squares)]
        assert sum(squares) <= release.sensitivity**2, release.name


def neighbors(unit: str, points: np.ndarray, cut: int) -> tuple[ClientBlock, ClientBlock]:
    """With and without the row at `cut`, or the client of all rows from `cut` on."""
    cut = cut % len(points)
    if unit == "record":
        return ClientBlock(points), ClientBlock(np.delete(points, cut, axis=0))
    offsets = np.array([0, cut, len(points)] if cut else [0, len(points)])
    return ClientBlock(points, offsets), ClientBlock(points[:cut], offsets[:-1])


def moved(statistic, unit, points, cut, state, **keywords):
    first, second = neighbors(unit, points, cut)
    return statistic(first, state, **keywords) - statistic(second, state, **keywords)


@given(rows, radii, st.sampled_from(["record", "client"]), st.integers(0, 29))
def test_shape(points, radius, unit, cut):
    config = job(unit, radius)
    state = tree_server.initial_state(config, np.zeros((0, D)), D)
    change = moved(central_tree.shape_statistic, unit, points, cut, state, counted=True)
    check(specs(config)["shape"], change)


@given(rows, radii, st.sampled_from(["record", "client"]), st.integers(0, 29), st.integers(0, 99), client_bounds)
def test_splits(points, radius, unit, cut, seed, bound):
    config = job(unit, radius)
    state = state_of(config, seed, bound, complete=False)
    check(specs(config)["splits_01"], moved(central_tree.split_statistic, unit, points, cut, state))


@given(rows, radii, st.sampled_from(["record", "client"]), st.integers(0, 29), st.integers(0, 99), client_bounds)
def test_leaves(points, radius, unit, cut, seed, bound):
    config = job(unit, radius)
    state = state_of(config, seed, bound, complete=True)
    change = moved(central_tree.leaves_statistic, unit, points, cut, state)
    spec = specs(config)["leaves"]
    sums = dataclasses.replace(spec.releases[0], shape=(5, D))
    counts = dataclasses.replace(spec.releases[1], shape=(5,))
    check(dataclasses.replace(spec, releases=(sums, counts)), change)


@given(rows, radii, st.integers(0, 30), st.integers(0, 99))
def test_any_split_of_rows_gives_the_same_sums(points, radius, cut, seed):
    for statistic, complete in ((central_tree.split_statistic, False), (central_tree.leaves_statistic, True)):
        state = state_of(job("record", radius), seed, 1.0, complete=complete)
        parts = statistic(ClientBlock(points[:cut]), state) + statistic(ClientBlock(points[cut:]), state)
        np.testing.assert_array_equal(statistic(ClientBlock(points), state), parts)
