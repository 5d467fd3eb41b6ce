"""Every round of DP-Lloyd as jobs bind it: adding one unit moves each release by at most the plan's sensitivity."""

import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Geometry, Mechanism
from dapple_dp.transforms.core import loop
from tests.scenes import lake

settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=150)
settings.load_profile("ci")

D = 4
KINDS = {
    "packed": {"init": "sphere_packing"},
    "best": {},
    "candidates": {"init": "candidates"},
    "served": {"init": "candidates"},
    "feddp": {"init": "feddp_init"},
}
extreme = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.just(D)),
    elements=st.one_of(st.sampled_from([-1.0, 1.0, 0.0, 1e300]), st.floats(-1.5, 1.5)),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "server.parquet"
    points = np.random.default_rng(3).uniform(-1.0, 1.0, (40, D))
    pq.write_table(lake.table_of(points).rename_columns(["x"]), path)
    return str(path)


def chained(kind, unit, public, server):
    """Rounds of a job with the states they meet."""
    data = {"path": server, "features": "x", "client_id": "c"} | ({"public_rows": 200} if public else {})
    fit = lake.planned(
        {
            "experimental": True,
            "algorithm": "dp_lloyd",
            "data": data,
            "server_data": {"path": server} if kind in ("feddp", "served") else "none",
            "n_clusters": 3,
            "privacy": {"unit": unit, "epsilon": 3.0, "delta": 1e-5},
            "dp_lloyd": {"domain": [-1.0, 1.0]} | KINDS[kind],
            "clipping": {"client_rows": 5},
        }
    )
    states = loop.simulate(fit.initial, fit.rounds, [base(200)], lake.KEY).states
    return list(zip(fit.rounds, states[:-1], strict=True))


def base(n_rows):
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (n_rows, D))
    return ClientBlock(points, np.arange(0, n_rows + 1, 5))


def norm(values, spec):
    """Exact norm of a change in the geometry of its release, squared for L2."""
    change = [int(value) for value in values]
    if spec.mechanism is Mechanism.DISCRETE_LAPLACE:
        return sum(map(abs, change)) ** 2
    squares = [value * value for value in change]
    if spec.geometry is Geometry.SYMMETRIC:
        order = math.isqrt(2 * len(change))
        rows, columns = np.triu_indices(order)
        return sum(
            square * (1 if row == column else 2) for square, row, column in zip(squares, rows, columns, strict=True)
        )
    return sum(squares)


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_unit_moves_a_release_by_at_most_its_sensitivity(kind, unit, public, server):
    rounds = chained(kind, unit, public, server)

    @given(extreme)
    def holds(unit_rows):
        added = unit_rows if unit == "client" else unit_rows[:1]
        before = base(20)
        after = ClientBlock(
            np.concatenate([before.points, added]), np.append(before.client_offsets, 20 + len(added)).astype(np.int64)
        )
        for each, state in rounds:
            change = each.statistic(after, state) - each.statistic(before, state)
            start = 0
            for release in each.plan.releases:
                stop = start + release.spec.size
                assert norm(change[start:stop], release.spec) <= release.spec.sensitivity**2, release.spec.name
                start = stop

    holds()
