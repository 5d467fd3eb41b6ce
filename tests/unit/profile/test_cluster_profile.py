"""Sums, counts and samples of a profile on cases worked out by hand."""

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.profile.plan import PROFILE_SCHEMA, UNITS_PER_HALF_RANGE, clusters_of
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics import cluster_profile
from dapple_dp.transforms.profile.accounting import calibrate
from dapple_dp.transforms.profile.pipeline_dp_noise import Noised
from dapple_dp.transforms.profile.publish import profile_table

KEY = bytes(range(32))


def test_counts_of_rows_and_of_clients():
    cells = np.array([0, 2, 2, 2])
    np.testing.assert_array_equal(cluster_profile.cell_counts(cells, 3, None), [1, 0, 3])
    np.testing.assert_array_equal(cluster_profile.cell_counts(cells, 3, np.array([5, 5, 5, 6])), [1, 0, 2])


def test_cells_that_occur():
    cells, counts = cluster_profile.occupied_cells(np.array([7, 2, 7]), 9, None)
    np.testing.assert_array_equal((cells, counts), ([2, 7], [1, 2]))
    cells, counts = cluster_profile.occupied_cells(np.array([7, 2, 7, 7]), 9, np.array([1, 1, 1, 0]))
    np.testing.assert_array_equal((cells, counts), ([2, 7], [1, 2]))
    assert len(cluster_profile.occupied_cells(np.zeros(0, np.int64), 0, np.zeros(0, np.int64))[0]) == 0


def test_sums_of_units():
    units = cluster_profile.centered_units(np.array([10.0, 15.0, 20.0]), 10.0, 20.0, 100)
    np.testing.assert_array_equal(units, [-100, 0, 100])
    np.testing.assert_array_equal(cluster_profile.cluster_sums(np.array([1, 1, 0]), units, 3), [100, -100, 0])


def test_a_sample_has_its_rate_and_repeats_with_its_stream():
    kept = cluster_profile.sampled_rows(KeyStream(KEY, b"coins"), 20_000, 0.3)
    again = cluster_profile.sampled_rows(KeyStream(KEY, b"coins"), 20_000, 0.3)
    np.testing.assert_array_equal(kept, again)
    assert abs(kept.mean() - 0.3) < 0.02  # six stddevs
    assert cluster_profile.sampled_rows(KeyStream(KEY, b"coins"), 5, 1.0).all()


def test_a_client_is_sampled_by_its_id_alone():
    digests = np.arange(20_000, dtype=np.uint64)
    kept = cluster_profile.sampled_clients(digests, 12345, 0.3)
    np.testing.assert_array_equal(kept[7:9], cluster_profile.sampled_clients(digests[7:9], 12345, 0.3))
    assert abs(kept.mean() - 0.3) < 0.02
    assert (kept != cluster_profile.sampled_clients(digests, 54321, 0.3)).any()


@pytest.fixture(scope="module")
def plan():
    found = {
        "model": "fit",
        "data": {"path": "lake", "features": "x"},
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "profile": {
            "numeric": {"age": {"lower": 0, "upper": 100, "percentiles": [25, 50]}},
            "categorical": {"sex": {"values": ["f", "m"]}, "job": {}},
            "sampling_rate": 0.5,
        },
    }
    return calibrate(ProfileConfig.model_validate(found), 2)


def test_the_table_holds_means_counts_and_ordered_percentiles(plan):
    noised = [
        Noised("profile/histograms/job", (1, "smith"), (30.0,)),
        Noised("profile/percentiles/age", (1,), (70.0, 60.0)),
        Noised("profile/percentiles/age", (0,), (-5.0, 40.0)),
        Noised("profile/histograms/sex", (), (1.0, 2.0, 3.0, 4.0)),
        Noised("profile/means/age", (), (4.0 * UNITS_PER_HALF_RANGE, -99.0 * UNITS_PER_HALF_RANGE)),
        Noised("profile/sizes/count", (), (8.0, -2.0)),
    ]
    table = profile_table(plan, noised)
    assert table.schema == PROFILE_SCHEMA
    assert [tuple(row.values())[:5] for row in table.to_pylist()] == [
        (0, None, "count", None, 8.0),
        (1, None, "count", None, -2.0),
        (0, "age", "mean", None, 75.0),
        (1, "age", "mean", None, 0.0),
        (0, "age", "percentile", "25", 0.0),
        (0, "age", "percentile", "50", 40.0),
        (1, "age", "percentile", "25", 70.0),
        (1, "age", "percentile", "50", 70.0),
        (0, "sex", "count", "f", 1.0),
        (0, "sex", "count", "m", 2.0),
        (1, "sex", "count", "f", 3.0),
        (1, "sex", "count", "m", 4.0),
        (1, "job", "count", "smith", 30.0),
    ]
    stddevs = table.column("noise_stddev").to_pylist()
    assert stddevs[0] == plan.event("profile/sizes/count").noise_stddev
    assert stddevs[-1] == plan.event("profile/histograms/job").noise_stddev
    sums, count = plan.event("profile/means/age").noise_multiplier, plan.event("profile/sizes/count").noise_stddev
    assert stddevs[2] == pytest.approx(np.hypot(50.0 * sums, 25.0 * count) / 8.0)


def test_a_profile_by_cluster():
    rows = [
        (1, None, "count", None, 9.0, 1.0),
        (0, None, "count", None, 8.0, 1.0),
        (0, "age", "mean", None, 40.0, 1.0),
        (0, "age", "percentile", "2.5", 41.0, None),
        (0, "sex", "count", "f", 3.0, 1.0),
        (0, "sex", "count", "m", 5.0, 1.0),
    ]
    table = pa.Table.from_pylist([dict(zip(PROFILE_SCHEMA.names, row, strict=True)) for row in rows], PROFILE_SCHEMA)
    assert clusters_of(table) == [
        {
            "cluster": 0,
            "sizes": {"count": 8.0},
            "numeric": {"age": {"mean": 40.0, "p2.5": 41.0}},
            "categorical": {"sex": {"m": 5.0, "f": 3.0}},
        },
        {"cluster": 1, "sizes": {"count": 9.0}, "numeric": {}, "categorical": {}},
    ]
    assert list(clusters_of(table)[0]["categorical"]["sex"]) == ["m", "f"]
