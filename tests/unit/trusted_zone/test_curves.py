"""Bands, areas and fronts by hand, and the summary of a sweep made of them."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dapple_dp.pipelines.trusted_zone.sweep_folder import summary
from dapple_dp.schemas.trusted_zone.sweep_results import CELL_SCHEMA, POINT_SCHEMA
from dapple_dp.transforms.numerics.trusted_zone.curves import area_under, confidence_band, on_front


def test_a_band_by_hand():
    # mean 4, stddev 2, n 4, Student's 97.5% quantile of 3 degrees of freedom 3.182446
    found = confidence_band(np.array([2.0, 3.0, 5.0, 6.0]))
    half = 3.182446 * math.sqrt(10.0 / 3.0) / 2.0
    np.testing.assert_allclose(found, (4.0, 4.0 - half, 4.0 + half), rtol=1e-6)


def test_a_band_covers_as_often_as_it_says():
    """1,800 +- 14 of 2,000 intervals cover; 6 stddevs, missed with probability below 1e-8."""
    draws = np.random.default_rng(5).normal(3.0, 2.0, (2000, 5))
    bands = [confidence_band(each, 0.9) for each in draws]
    covered = sum(band.low <= 3.0 <= band.high for band in bands)
    assert abs(covered - 1800) < 6 * math.sqrt(2000 * 0.9 * 0.1)


def test_one_value_has_no_interval():
    assert confidence_band(np.array([7.0])) == (7.0, -math.inf, math.inf)


def test_areas_by_hand():
    epsilons = np.array([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(area_under(epsilons, np.array([3.0, 1.0, 2.0])), 2.0 + 3.0)
    np.testing.assert_array_equal(area_under(epsilons, np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])), [5.0, 3.0])


@pytest.mark.parametrize(
    ("epsilons", "costs", "expected"),
    [
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [True, True, True]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [True, False, False]),
        ([1.0, 1.0, 2.0], [2.0, 3.0, 2.0], [True, False, False]),
        ([1.0, 1.0], [2.0, 2.0], [True, True]),
        ([2.0, 1.0], [1.0, 2.0], [True, True]),
    ],
)
def test_fronts_by_hand(epsilons, costs, expected):
    assert on_front(np.array(epsilons), np.array(costs)).tolist() == expected


COSTS = {  # method, settings, epsilon: cost by seed
    ("rows", "s=1", 2.0): {0: 1.0, 1: 3.0},
    ("rows", "s=1", 1.0): {1: 6.0, 0: 4.0},
    ("rows", "s=2", 1.0): {0: 6.0, 1: 6.0},
    ("rows", "s=2", 2.0): {0: 1.0, 1: 1.0},
    ("alone", "", 1.0): {0: 9.0},
    ("plain", "", None): {0: 0.5, 1: 0.7},
}


@pytest.fixture(scope="module")
def points():
    rows = [
        {"method": method, "settings": settings, "epsilon": epsilon, "seed": seed, "n_clusters": 2, "cost": cost}
        | {"epsilon_spent": epsilon, "delta": None, "cell": f"{method}{settings}{epsilon}{seed}"}
        for (method, settings, epsilon), costs in COSTS.items()
        for seed, cost in costs.items()
    ]
    table = summary(pa.Table.from_pylist(rows, schema=CELL_SCHEMA))
    assert table.schema.equals(POINT_SCHEMA, check_metadata=True)
    return {(row["method"], row["settings"], row["epsilon"]): row for row in table.to_pylist()}


def test_the_summary_has_a_row_per_point(points):
    assert set(points) == set(COSTS)
    assert {key: row["cost"] for key, row in points.items()} == pytest.approx(
        {key: np.mean(list(costs.values())) for key, costs in COSTS.items()}
    )
    assert {key: row["n_seeds"] for key, row in points.items()} == {key: len(each) for key, each in COSTS.items()}


def test_its_bands_are_over_seeds(points):
    row = points["rows", "s=1", 2.0]
    half = stats.t.ppf(0.975, 1) * 1.0
    np.testing.assert_allclose((row["cost_low"], row["cost_high"]), (2.0 - half, 2.0 + half))
    assert points["alone", "", 1.0]["cost_high"] == math.inf


def test_its_fronts_are_within_a_method(points):
    assert {key for key, row in points.items() if row["on_front"]} == {
        ("rows", "s=1", 1.0),
        ("rows", "s=2", 2.0),
        ("alone", "", 1.0),
        ("plain", "", None),
    }


def test_its_areas_pair_the_seeds(points):
    # Seed 0: (4 + 1) / 2, seed 1: (6 + 3) / 2; the epsilons came in another order than the seeds.
    row, other = points["rows", "s=1", 1.0], points["rows", "s=1", 2.0]
    half = stats.t.ppf(0.975, 1) * 1.0
    np.testing.assert_allclose([row["auc"], row["auc_low"], row["auc_high"]], [3.5, 3.5 - half, 3.5 + half])
    assert (row["auc"], row["auc_low"]) == (other["auc"], other["auc_low"])
    for key in (("alone", "", 1.0), ("plain", "", None)):
        assert [points[key][name] for name in ("auc", "auc_low", "auc_high")] == [None] * 3
