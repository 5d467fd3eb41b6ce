"""Starts from public data, and the elbow."""

import numpy as np
import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.kmeans import server_starts
from dapple_dp.transforms.kmeans.lloyd import rounds as lloyd
from dapple_dp.transforms.kmeans.lloyd.state import ClippingBounds
from dapple_dp.transforms.numerics.kmeans.starts import seeding, sphere_packing
from tests.scenes import lake

ALGORITHMS = ["server_kmeanspp", "server_lloyds", "sphere_packing"]


def _config(algorithm, unit="record", **settings):
    return validated(lake.job("rows", "server", unit, algorithm=algorithm, lloyd={"steps": 2}, **settings))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_start_is_a_state_that_a_lloyd_round_can_use(algorithm, unit):
    server = lake.mixture(60, seed=3)
    config = _config(algorithm, unit)
    state = server_starts.initial_state(config, server, 4)
    assert state.assigner.centers.shape == (3, 4)
    assert (np.linalg.norm(state.assigner.centers, axis=1) <= 2**20).all()
    assert len(lloyd.round_specs(config, 4)) == 2
    assert (state.bounds == ClippingBounds.of_row(state.frame.lattice.clipping_norm)) == (unit == "record")


def test_lloyds_start_is_the_clustering_of_the_server_data():
    server = lake.mixture(300, seed=3)
    state = server_starts.initial_state(_config("server_lloyds"), server, 4)
    found = state.assigner.centers * state.sum_unit + state.frame.lattice.center
    distances = np.linalg.norm(found[:, None] - lake.MEANS[None], axis=2)
    assert (distances.min(axis=0) < 0.3).all()


def test_the_budget_goes_to_lloyd_rounds_alone():
    specs = lloyd.round_specs(_config("server_lloyds"), 4)
    assert [each.path for each in specs] == ["server_lloyds/lloyd_00", "server_lloyds/lloyd_01"]
    assert sum(release.share for each in specs for release in each.releases) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lloyd": {"steps": 0}}, "lloyd.steps must be at least 1 for algorithm server_lloyds, got 0"),
        ({"n_clusters": {"max": 5, "choose": "elbow"}}, "n_clusters must be an integer for algorithm server_lloyds"),
        ({"server_data": "none", "clipping": {"norm": 3.0, "center": "none"}}, "server_data is required"),
        ({"clipping": {"norm": "private"}}, "clipping.norm must be server_radius or a number"),
        ({"feddp_kmeans": {"space": "full"}}, "feddp_kmeans may hold only restarts"),
    ],
)
def test_settings_of_another_algorithm_are_refused(settings, sentence):
    job = lake.job("rows", "server", algorithm="server_lloyds", lloyd={"steps": 1}) | settings
    with pytest.raises(ConfigError, match=sentence):
        validated(job)


def test_packed_centers_keep_their_distances_and_find_the_best_placement_on_a_line():
    packed = sphere_packing.pack(2, 1, 1.0, seed=0)
    assert 0.9 < abs(packed[0, 0] - packed[1, 0]) <= 2.0
    wide = sphere_packing.pack(8, 30, 2.0, seed=1)
    distances = np.linalg.norm(wide[:, None] - wide[None], axis=2)[np.triu_indices(8, 1)]
    radius = 0.5 * distances.min()
    assert (np.abs(wide) <= 2.0 - radius * (1 - 1e-6)).mean() > 0.99
    assert radius > 1.0
    np.testing.assert_array_equal(wide, sphere_packing.pack(8, 30, 2.0, seed=1))


def test_points_are_taken_in_the_order_in_which_they_were_tried():
    random = np.random.default_rng(0)
    for n_features, n_placed, squared in ((2, 3, 0.5), (3, 0, 1.0), (2, 6, 0.9), (40, 5, 20.0)):
        tried = random.uniform(-1.0, 1.0, (300, n_features))
        placed = random.uniform(-1.0, 1.0, (n_placed, n_features))
        apart = ((tried[:, None] - placed[None]) ** 2).sum(axis=2) >= squared
        expected = np.flatnonzero(apart.all(axis=1))
        assert sphere_packing._first_apart(tried, placed, squared) == (expected[0] if expected.size else None)


@pytest.mark.parametrize(("costs", "chosen"), [([9, 5, 1, 0.9, 0.8], 3), ([4.0], 1), ([3, 3, 3], 1), ([5, 1], 2)])
def test_elbow(costs, chosen):
    assert seeding.elbow(np.array(costs, dtype=float)) == chosen


def test_costs_of_the_proxy_fall_and_bend_at_the_true_number():
    points = lake.mixture(90, seed=1)
    costs = seeding.clustering_costs(points, np.ones(90), 7, 20, 0)
    assert (np.diff(costs) <= 0).all()
    assert costs[0] == pytest.approx(points.var(axis=0).sum())
    assert seeding.elbow(costs) == 3
