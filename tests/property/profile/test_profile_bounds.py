"""One privacy unit moves what a profile measures by at most the stated sensitivities."""

import collections

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.profile.plan import UNITS_PER_HALF_RANGE, ProfileLaw, uncalibrated
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics import cluster_profile
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.numerics.tables.row_sampling import bounded_rows
from dapple_dp.transforms.profile.measure_clusters import bounded, clients_of, row_elements, value_counts
from dapple_dp.transforms.profile.rows import ProfileParams, exact_sums

N_CLUSTERS, MAX_ROWS = 3, 2
KEY = bytes(range(32))
PROFILE = {
    "numeric": {"age": {"lower": -3.0, "upper": 7.5, "percentiles": [50]}},
    "categorical": {"sex": {"values": ["f", "m"]}, "job": {}},
}
ROW = st.tuples(
    st.integers(0, N_CLUSTERS - 1), st.floats(-1e9, 1e9), st.integers(-1, 1), st.sampled_from("abc"), st.integers(0, 3)
)


def params(unit):
    rows = {"max_rows_per_client": MAX_ROWS} if unit == "client" else {}
    config = ProfileConfig.model_validate(
        {
            "model": "fit",
            "data": {"path": "lake", "features": "x", "client_id": "owner"},
            "privacy": {"unit": unit, "epsilon": 1.0, "delta": 1e-6},
            "profile": PROFILE | rows,
        }
    )
    plan = uncalibrated(config, N_CLUSTERS, ProfileLaw.GAUSSIAN)
    contract = TableContract.from_config(config.data, n_features=1, by_client=unit == "client")
    return ProfileParams(model=NearestCenters.of(np.zeros((N_CLUSTERS, 1))), contract=contract, plan=plan)


def table(rows):
    """Rows as they are measured; ranks go with the row."""
    cluster, age, sex, job, client = zip(*rows, strict=True) if rows else ((),) * 5
    ranks = KeyStream(KEY, b"ranks").uint64(len(rows))
    return pa.table(
        {
            "cluster": pa.array(cluster, pa.int64()),
            "number0": pa.array(cluster_profile.clip(np.array(age, dtype=float), -3.0, 7.5)),
            "category0": pa.array(sex, pa.int64()),
            "category1": pa.array(job, pa.large_string()),
            "client": pa.array(client, pa.int64()),
            "rank": pa.array(ranks),
        }
    )


def moves(one, other, plan):
    """Distance of two vectors of sums, by path."""
    start, found = 0, {}
    for event in plan.sums:
        stop = start + int(np.prod(event.shape))
        found[event.path] = float(np.linalg.norm((one - other)[start:stop].astype(float)))
        start = stop
    return found


def check(one, other, plan):
    for path, distance in moves(one, other, plan).items():
        assert distance <= plan.event(path).sensitivity + 1e-9, path


@given(st.lists(ROW, min_size=1, max_size=12), st.data())
def test_one_row_moves_sums_by_at_most_the_sensitivity(rows, data):
    given_params, whole = params("record"), table(rows)
    index = data.draw(st.integers(0, len(rows) - 1))
    rest = whole.take(pa.array([each for each in range(len(rows)) if each != index], pa.int64()))
    check(exact_sums(whole, given_params, None), exact_sums(rest, given_params, None), given_params.plan)
    assert len(list(row_elements(whole, given_params))) - len(list(row_elements(rest, given_params))) == 1
    assert norms(values(whole, given_params, None), values(rest, given_params, None)) == (1, 1)


def values(rows, given_params, clients):
    """Counts of pairs of cluster and value."""
    return collections.Counter(dict(each.value for each in value_counts(rows, given_params, clients)))


def norms(one, other):
    """Returns how many counts differ, and by how much at most."""
    moved = [abs(one[key] - other[key]) for key in {*one, *other} if one[key] != other[key]]
    return len(moved), max(moved, default=0)


def measured(rows, given_params):
    kept = bounded(rows, MAX_ROWS)
    return kept, exact_sums(kept, given_params, clients_of(kept)[0])


@given(st.lists(ROW, min_size=1, max_size=20), st.data())
def test_one_client_moves_sums_by_at_most_the_sensitivity(rows, data):
    given_params, whole = params("client"), table(rows)
    client = data.draw(st.sampled_from([row[-1] for row in rows]))
    rest = whole.filter(pa.array([row[-1] != client for row in rows]))
    (kept, one), (left, other) = measured(whole, given_params), measured(rest, given_params)
    check(one, other, given_params.plan)
    own = kept.filter(pa.array([each == client for each in kept.column("client").to_pylist()]))
    assert len(list(row_elements(own, given_params))) == min(MAX_ROWS, sum(row[-1] == client for row in rows))
    pairs = [values(each, given_params, clients_of(each)[0]) for each in (kept, left)]
    n_moved, largest = norms(*pairs)
    assert n_moved <= MAX_ROWS
    assert largest <= 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1)), max_size=30), st.integers(0, 30))
def test_bounding_parts_first_changes_nothing(rows, cut):
    clients = np.array([row[0] for row in rows], dtype=np.int64)
    ranks = np.array([row[1] for row in rows], dtype=np.uint64)
    if len(set(ranks.tolist())) < len(ranks):
        return
    whole = ranks[bounded_rows(clients, ranks, 2)]
    parts = [
        part[bounded_rows(clients[part], ranks[part], 2)]
        for part in (np.arange(len(rows))[:cut], np.arange(len(rows))[cut:])
    ]
    first = np.concatenate(parts)
    both = ranks[first][bounded_rows(clients[first], ranks[first], 2)]
    np.testing.assert_array_equal(np.sort(whole), np.sort(both))


@settings(max_examples=50)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.lists(st.floats(0, 1), max_size=20))
def test_units_stay_within_half_the_range(lower, width, parts):
    upper = lower + width
    values = cluster_profile.clip(lower + width * np.array(parts), lower, upper)
    units = cluster_profile.centered_units(values, lower, upper, UNITS_PER_HALF_RANGE)
    assert (np.abs(units) <= UNITS_PER_HALF_RANGE).all()
    assert (units == np.trunc(units)).all()
    middle, half = lower + width / 2, width / 2
    slack = half / UNITS_PER_HALF_RANGE + 1e-9 * max(abs(lower), abs(upper))
    np.testing.assert_allclose(middle + units * half / UNITS_PER_HALF_RANGE, values, atol=slack)
