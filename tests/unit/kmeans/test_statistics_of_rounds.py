"""The statistics that rounds form, by hand: each asks its unit for the right form, with the bounds of its state."""

import types

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.transforms.core.statistics import clients, rows
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.differences import Neighborhoods, row_split_sums
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.core.statistics.term_cells import CellLimits
from dapple_dp.transforms.kmeans.central_tree import rounds as tree_rounds
from dapple_dp.transforms.kmeans.dp_lloyd import candidates
from dapple_dp.transforms.kmeans.dp_lloyd import rounds as lloyd_rounds
from dapple_dp.transforms.kmeans.dp_medians import rounds as median_rounds
from dapple_dp.transforms.kmeans.feddp_kmeans import rounds as feddp_rounds
from dapple_dp.transforms.kmeans.lloyd import quality as quality_round
from dapple_dp.transforms.kmeans.lloyd import rounds as means_rounds
from dapple_dp.transforms.kmeans.spherical import rounds as sphere_rounds
from dapple_dp.transforms.kmeans.windows import rounds as window_rounds
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound

UNIT = 1 << 20
POINTS = np.array([[0.5, 0.25], [0.75, 0.0], [-0.5, 0.125], [-0.25, -0.25], [0.5, 0.5]])
BLOCK = ClientBlock(POINTS, np.array([0, 2, 5]))
FRAME = Frame(Lattice(np.array([0.125, 0.0]), 2.0))
ASSIGNER = Assigner(np.array([[UNIT // 4, 0.0], [-UNIT // 4, 0.0]]))
UNITS = pytest.mark.parametrize(("unit", "module"), [(Rows(), rows), (Clients(2), clients)], ids=["rows", "clients"])


def state(unit, **more):
    return types.SimpleNamespace(privacy_unit=unit, frame=FRAME, known_assigner=ASSIGNER, **more)


def same(found, *expected):
    np.testing.assert_array_equal(found, np.concatenate(expected))


@UNITS
def test_statistics_of_the_start_from_server_points(unit, module):
    bounds = types.SimpleNamespace(scatter=4.0 if unit == Rows() else 1.5, histogram=1.0)
    given = state(unit, bounds=bounds, settings=types.SimpleNamespace(tuned=True), server=np.zeros((4, 2)))
    scatter = module.outer_product(BLOCK, FRAME, bounds.scatter, relative=False)
    same(feddp_rounds.outer_statistic(BLOCK, given, counted=False), scatter)
    same(feddp_rounds.outer_statistic(BLOCK, given, counted=True), scatter, module.count(BLOCK))
    same(feddp_rounds.norm_statistic(BLOCK, given), module.norm_histogram(BLOCK, FRAME.lattice.center))
    for l1 in (True, False):
        found = module.histogram(BLOCK, FRAME, ASSIGNER, 1.0, relative=not l1)
        same(feddp_rounds.histogram_statistic(BLOCK, given, l1=l1), found)


@pytest.mark.parametrize(
    ("l1", "absolute", "form"),
    [
        (False, False, "mean_sums_and_counts"),
        (False, True, "mean_sums_and_counts"),
        (True, True, "clipped_sums_and_counts"),
        (True, False, "means_of_means"),
    ],
)
def test_means_of_clients_have_three_forms(l1, absolute, form):
    settings = types.SimpleNamespace(n_clusters=3)
    given = state(Clients(2), settings=settings, bounds=types.SimpleNamespace(sums=0.75, counts=0.5))
    found = getattr(clients, form)(BLOCK, FRAME, ASSIGNER, 0.75, 0.5)
    assert np.abs(found).sum() > 0
    same(means_rounds.means_statistic(BLOCK, given, absolute=absolute, l1=l1), found[:4], [0, 0], found[4:], [0])
    settings.n_clusters = 2
    same(means_rounds.means_statistic(BLOCK, given, absolute=absolute, l1=l1), found)


@UNITS
@pytest.mark.parametrize("cap", [None, 0.5])
def test_quality_is_capped_and_padded(unit, module, cap):
    given = state(unit, assigner=ASSIGNER, centers=1, settings=types.SimpleNamespace(n_clusters=4), sum_unit=2.0 / UNIT)
    bound = squared_bound(ASSIGNER.centers, np.inf if cap is None else UNIT / 4)
    found = module.quality(BLOCK, FRAME, ASSIGNER.centers, bound)
    same(quality_round.statistic(BLOCK, given, max_distance=cap), found, [0, 0])
    for missing in ("centers", "assigner"):
        with pytest.raises(ValueError, match="the quality depends on the centers"):
            quality_round.statistic(BLOCK, types.SimpleNamespace(**vars(given) | {missing: None}), max_distance=None)


@UNITS
def test_statistics_of_lloyd(unit, module, monkeypatch):
    near, radius = Frame(Lattice(np.array([0.0, 0.25]), 1.5)), UNIT // 2
    neighborhoods = Neighborhoods(ASSIGNER.centers, radius, shortens=True)
    bounds = {"sums_bound": radius, "count_bound": 1.0}
    given = state(unit, neighborhoods=neighborhoods, known_centers=ASSIGNER.centers, **bounds)
    monkeypatch.setattr(lloyd_rounds.dp_lloyd_starts, "mean_neighborhood", lambda _: neighborhoods)
    monkeypatch.setattr(lloyd_rounds.dp_lloyd_starts, "near", lambda _: near)
    for owner in (lloyd_rounds.dp_lloyd_starts, candidates):
        monkeypatch.setattr(owner, "scatter_bound", lambda _: 2.25)
    monkeypatch.setattr(candidates, "histogram_bound", lambda _: 1.0)
    given.known_candidates = ASSIGNER
    same(lloyd_rounds.rows_statistic(BLOCK, given), module.count(BLOCK))
    whole = module.relative_sums(BLOCK, FRAME, neighborhoods, radius)
    same(lloyd_rounds.mean_statistic(BLOCK, given), whole[:-1])
    scatter = module.outer_product(BLOCK, near, 2.25, relative=False)
    same(lloyd_rounds.scatter_statistic(BLOCK, given), scatter)
    same(lloyd_rounds.directions_statistic(BLOCK, given), module.outer_product(BLOCK, near, 2.25, relative=True))
    found = module.histogram(BLOCK, FRAME, ASSIGNER, 1.0, relative=True)
    same(lloyd_rounds.candidates_statistic(BLOCK, given, size=5), found, [0, 0, 0])
    same(lloyd_rounds.relative_statistic(BLOCK, given), whole)
    given.grid = ASSIGNER
    same(lloyd_rounds.grid_statistic(BLOCK, given, size=5), found, [0, 0, 0])
    given.grid = None
    with pytest.raises(ValueError, match="needs a state with a grid"):
        lloyd_rounds.grid_statistic(BLOCK, given, size=5)


@UNITS
def test_statistics_of_a_fine_round(unit, module):
    neighborhoods, centers = Neighborhoods(ASSIGNER.centers, UNIT // 2, shortens=True), ASSIGNER.centers
    given = state(unit, neighborhoods=neighborhoods, known_centers=centers, n_features=2, inner=None, outer=UNIT)
    given.sums_bound, given.count_bound, given.radius = UNIT // 2, 1.0, UNIT // 2
    whole = module.relative_sums(BLOCK, FRAME, neighborhoods, UNIT // 2)
    same(lloyd_rounds.fine_statistic(BLOCK, given, n_cells=5), whole[:4], [0] * 6, whole[4:], [0] * 3)
    bound = squared_bound(centers, UNIT // 2)
    same(lloyd_rounds.spread_statistic(BLOCK, given), module.quality(BLOCK, FRAME, centers, bound)[:1])
    given.inner = UNIT // 4
    if unit == Rows():
        split = row_split_sums(BLOCK, FRAME, centers, UNIT // 4, UNIT)
        same(lloyd_rounds.fine_statistic(BLOCK, given, n_cells=5), split[:8], [0] * 2, split[8:], [0])
    else:
        with pytest.raises(ValueError, match="privacy unit record only"):
            lloyd_rounds.fine_statistic(BLOCK, given, n_cells=5)


@UNITS
def test_the_statistic_of_server_rows_is_by_how_much_they_are_nearer(unit, module):
    found, of_server = ASSIGNER.centers, ASSIGNER.centers + UNIT // 4
    alternatives = np.concatenate([found, of_server])
    given = state(unit, alternatives=alternatives, served=types.SimpleNamespace(reach=float(UNIT)))
    given.unit = 1.0
    gain = module.gain(BLOCK, FRAME, found, of_server, UNIT**2 // 2)
    same(lloyd_rounds.server_statistic(BLOCK, given), gain)
    assert gain[0] != 0
    same(lloyd_rounds.server_statistic(BLOCK, state(unit, alternatives=None)), [0])


def test_bounds_of_clients_in_lloyd_are_those_of_the_state(monkeypatch):
    neighborhoods = Neighborhoods(ASSIGNER.centers, UNIT // 2, shortens=True)
    given = state(Clients(2), neighborhoods=neighborhoods, sums_bound=UNIT // 8, count_bound=0.5)
    found = clients.relative_sums(BLOCK, FRAME, neighborhoods, UNIT // 8, 0.5)
    same(lloyd_rounds.relative_statistic(BLOCK, given), found)
    monkeypatch.setattr(candidates, "histogram_bound", lambda _: 0.25)
    given.known_candidates = ASSIGNER
    found = clients.histogram(BLOCK, FRAME, ASSIGNER, 0.25, relative=True)
    same(lloyd_rounds.candidates_statistic(BLOCK, given, size=2), found)


@UNITS
def test_statistics_of_the_sphere(unit, module):
    limits = CellLimits(2, 3)
    none = types.SimpleNamespace(limits=None)
    given = state(unit, assigner=ASSIGNER, centers=ASSIGNER.centers, sums_bound=2.0, settings=none)
    sums = module.mean_sums_and_counts(BLOCK, FRAME, ASSIGNER, 2.0, 1.0)
    same(sphere_rounds.sums_statistic(BLOCK, given), sums[: ASSIGNER.centers.size])
    counts = module.histogram(BLOCK, FRAME, ASSIGNER, 1.0, relative=True)
    same(sphere_rounds.names_statistic(BLOCK, given), counts)
    given.settings.limits = limits
    same(sphere_rounds.names_statistic(BLOCK, given), counts, module.term_cells(BLOCK, FRAME, ASSIGNER, limits))


@UNITS
def test_statistics_of_medians_windows_and_trees(unit, module):
    given = state(unit, centers=ASSIGNER.centers, least_radius=1 << 15, directions_bound=1.0)
    found = module.direction_sums(BLOCK, FRAME, ASSIGNER.centers, 1 << 15, 1.0)
    same(median_rounds.median_statistic(BLOCK, given), found)
    neighborhoods = Neighborhoods(ASSIGNER.centers, UNIT // 2)
    given = state(unit, neighborhoods=neighborhoods, sums_bound=UNIT // 2, age=1)
    found = module.relative_sums(BLOCK, FRAME, neighborhoods, UNIT // 2)
    same(window_rounds.window_statistic(BLOCK, given, weights=(5, 3, 2)), 3 * found)
    given = state(unit, partition=ASSIGNER, bound=1.0)
    same(tree_rounds.split_statistic(BLOCK, given), module.histogram(BLOCK, FRAME, ASSIGNER, 1.0, relative=True))
    same(tree_rounds.leaves_statistic(BLOCK, given), module.mean_sums_and_counts(BLOCK, FRAME, ASSIGNER, 2.0, 1.0))
    scatter = module.outer_product(BLOCK, FRAME, 4.0, relative=True)
    rest = module.mean_sums_and_counts(BLOCK, FRAME, Assigner(np.zeros((1, 2))), 2.0, 1.0)
    same(tree_rounds.shape_statistic(BLOCK, given, counted=True), scatter, rest)
    same(tree_rounds.shape_statistic(BLOCK, given, counted=False), scatter, rest[:-1])


def test_a_tree_bounds_clients_by_its_state():
    given = state(Clients(2), partition=ASSIGNER, bound=0.5)
    same(tree_rounds.leaves_statistic(BLOCK, given), clients.mean_sums_and_counts(BLOCK, FRAME, ASSIGNER, 1.0, 0.5))
    found = clients.histogram(BLOCK, FRAME, ASSIGNER, 0.5, relative=True)
    same(tree_rounds.split_statistic(BLOCK, given), found)
