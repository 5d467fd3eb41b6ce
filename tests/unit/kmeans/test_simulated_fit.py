"""The cost of a fit, simulated on public rows with the noise of its plan."""

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.kmeans.simulated_fit import MOST_ROWS, drawn_rows, mean_cost, simulate_rounds, stand_in_points
from dapple_dp.transforms.numerics.kmeans.starts import seeding
from tests.scenes import lake

SERVER = lake.mixture(60, seed=99)
CODES = {"sex": ["f", "m"], "ward": [1, 2, 3]}


def lloyd(**settings):
    job = lake.job("lake", None, algorithm="dp_lloyd", dp_lloyd={"domain": [-10, 10]}, **settings)
    return validated({name: job[name] for name in job if name not in ("clipping", "feddp_kmeans")})


def feddp(unit="record", **settings):
    return validated(lake.job("lake", "server.parquet", unit, **settings))


def simulate_fit(config, server, n_units, **more):
    return PublicFit.of(config, server).simulated(config, server, n_units, **more)


def test_more_rows_cost_less_and_less_noise_shows():
    few, many = simulate_fit(feddp(), SERVER, 400, draws=3), simulate_fit(feddp(), SERVER, 10**7, draws=3)
    assert few.mean > many.mean
    assert few.spread > many.spread
    assert many.mean == pytest.approx(many.without_noise, rel=1e-6)


def test_the_simulation_repeats_itself():
    first, again = (simulate_fit(feddp(), SERVER, 400, draws=2) for _ in range(2))
    assert first.costs.tolist() == again.costs.tolist()
    assert simulate_fit(feddp(), SERVER, 400, draws=2, seed=1).costs.tolist() != first.costs.tolist()


def test_rows_that_stand_for_more_give_the_sums_of_more():
    """A block, and each of its rows twice: the same sums under the same keys, so the same centers."""
    config, points = lloyd(), lake.mixture(300)
    fit = PublicFit.of(config, np.zeros((300, 4)))
    once = simulate_rounds(fit.initial, fit.rounds, drawn_rows(config, points, 300, 0), 600, 3, draws=1)
    rows = drawn_rows(config, points, 300, 0)
    twice = rows._replace(points=np.repeat(rows.points, 2, axis=0))
    assert simulate_rounds(fit.initial, fit.rounds, twice, 600, 3, draws=1).costs == pytest.approx(
        once.costs, rel=1e-12
    )


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_largest_number_fits_the_lattice(unit):
    assert np.isfinite(simulate_fit(feddp(unit), SERVER, 2**31 - 1, draws=1).mean)


@pytest.mark.parametrize("n_units", [0, -3, 2**31])
def test_a_number_out_of_range_is_refused(n_units):
    with pytest.raises(ConfigError, match="assumed number of rows or clients must be from 1 to 2147483647"):
        simulate_fit(feddp(), SERVER, n_units)


def test_no_block_is_larger_than_the_bound():
    assert len(drawn_rows(feddp(), SERVER, 10**9, 0).points) == MOST_ROWS
    clients = drawn_rows(feddp("client"), SERVER, 10**9, 0)
    assert (clients.n_clients, len(clients.points)) == (MOST_ROWS // 10, MOST_ROWS)
    large = drawn_rows(feddp("client", clipping__client_rows=10**6), SERVER, 10**9, 0)
    assert (large.n_clients, len(large.points)) == (1, MOST_ROWS)


def test_stand_ins_lie_about_the_public_bounds():
    assert np.abs(stand_in_points(lloyd(), 2, 0)).max() < 20.0
    tree = validated(lake.job("lake", None) | {"algorithm": "central_tree", "tree": {"radius": 10.0}})
    assert np.linalg.norm(stand_in_points(tree, 3, 0), axis=1).max() < 20.0
    assert np.isfinite(simulate_fit(tree, seeding.points_in_ball(30, 3, 10.0, 0), 5000, draws=1).mean)


def test_cost_by_hand():
    assert mean_cost(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])) == pytest.approx(12.5)


def test_stand_in_rows_have_one_category_in_each_column():
    """Real rows have one; a plan would else simulate rows that no table gives."""
    codes = {name: {"kind": "one_hot", "vocabulary": listed, "weight": 0.5} for name, listed in CODES.items()}
    columns = {"path": "lake", "features": ["age", "sex", "lab", "ward"]}
    job = lake.job("lake", None, algorithm="dp_lloyd", dp_lloyd={"domain": [-1, 1]})
    job = {name: job[name] for name in job if name not in ("clipping", "feddp_kmeans")}
    points = stand_in_points(validated(job | {"data": columns, "encode": codes}), 7, 0)
    for part in (slice(1, 3), slice(4, 7)):
        assert (np.sort(points[:, part], axis=1)[:, :-1] == 0.0).all()
        np.testing.assert_array_equal(points[:, part].max(axis=1), 0.5)
    assert (points[:, [1, 2, 4, 5, 6]] > 0.0).any(axis=0).sum() > 2
    assert len(np.unique(points[:, 3])) == MOST_ROWS
