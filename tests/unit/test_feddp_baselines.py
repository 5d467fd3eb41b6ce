"""Baselines of FedDP-KMeans that benchmarks have: their starts, budget and noise, and k-FED, on rows and on lakes."""

import numpy as np
import pytest

from benchmarks import mixture
from benchmarks.papers import feddp_baselines, in_memory
from dapple_dp.transforms.kmeans.lloyd.state import ClippingBounds
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from tests.scenes import lake

STARTS = ["server_kmeanspp", "server_lloyds", "sphere_packing"]


def planned(start, server, unit="record", **sections):
    config = in_memory.job("feddp_kmeans", unit, 1.0, 3, 5, **{"lloyd": {"steps": 2}} | sections)
    return feddp_baselines.planned(start, config, server)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_start_is_a_state_that_a_lloyd_round_can_use(start, unit):
    fit = planned(start, lake.mixture(60, seed=3), unit)
    state = fit.initial
    assert state.assigner.centers.shape == (3, 4)
    assert (np.linalg.norm(state.assigner.centers, axis=1) <= 2**20).all()
    assert [each.plan.path for each in fit.rounds] == [f"{start}/lloyd_00", f"{start}/lloyd_01"]
    assert (state.bounds == ClippingBounds.of_row(state.frame.lattice.clipping_norm)) == (unit == "record")


def test_lloyds_start_is_the_clustering_of_the_server_data():
    state = planned("server_lloyds", lake.mixture(300, seed=3)).initial
    found = state.assigner.centers * state.sum_unit + state.frame.lattice.center
    distances = np.linalg.norm(found[:, None] - lake.MEANS[None], axis=2)
    assert (distances.min(axis=0) < 0.3).all()


@pytest.mark.parametrize("start", STARTS)
def test_the_budget_goes_to_lloyd_rounds_alone(start):
    plan = planned(start, lake.mixture(60, seed=3)).plan
    assert 0.995 < plan.epsilon <= 1.0
    shares = [release.spec.share for each in plan.rounds for release in each.releases]
    assert sum(shares) == pytest.approx(1.0)


RELEASED = {
    ("server_kmeanspp", "record"): [193238579, 280927099, 144637388],
    ("server_lloyds", "client"): [25407772, 15822194, 5207948],
    ("sphere_packing", "record"): [172009140, 223480758, 225848439],
}
"""The last counts, as `dapple fit` released them when these were algorithms of jobs."""


@pytest.mark.parametrize(("start", "unit"), RELEASED)
def test_what_is_released_is_what_it_was_as_an_algorithm_of_jobs(start, unit):
    drawn = mixture.draw(0, 600, 8, 3)
    block = in_memory.client_block(drawn.rows, 50 if unit == "client" else None)
    state = in_memory.last_state(planned(start, drawn.server, unit), [block], 7)
    assert state.model().releases[-1].values.tolist() == RELEASED[start, unit]


def test_a_lake_has_the_rows_of_its_clients_and_the_server(tmp_path):
    """Its starts and k-FED cost what they do on the same rows in memory."""
    drawn = mixture.draw(0, 600, 8, 3)
    mixture.write_lake(tmp_path, drawn, 2, 100, 50)
    job = mixture.config(tmp_path, "record", 1.0) | {"n_clusters": 3, "lloyd": {"steps": 2}, "seed": 5}
    job["data"]["client_id"] = "client_id"
    found = feddp_baselines.Lake.of(job)
    np.testing.assert_array_equal(np.concatenate([each.points for each in found.blocks]), drawn.rows)
    np.testing.assert_array_equal(found.server, drawn.server)
    centers = found.started("server_lloyds", job, 7)
    state = in_memory.last_state(planned("server_lloyds", drawn.server), found.blocks, 7)
    np.testing.assert_array_equal(centers, state.model().centers)
    assert found.cost(centers) == pytest.approx(NearestCenters.of(centers).rows(drawn.rows).squared.mean())
    assert found.cost(found.k_fed(3, 0)) < 1.01 * found.cost(drawn.means)
