"""Releases and models as Parquet tables, there and back."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.model import ClusterModel, NoisyCost, model_from_tables
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Role, meaning_of
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA, releases_from_table, releases_to_table

SCATTER = Meaning(tells="directions in which the data spread", role=Role.SQUARED_LENGTHS, quantity=Quantity.SQUARE)
COUNTS = Meaning(tells="how large each cluster is", role=Role.CLUSTER_COUNTS)


def release(
    name, values, mechanism=Mechanism.DISCRETE_GAUSSIAN, geometry=Geometry.VECTOR, unit=0.25, meaning=COUNTS
) -> Release:
    values = np.asarray(values, dtype=np.int64)
    spec = ReleaseSpec(
        name=name,
        shape=values.shape,
        mechanism=mechanism,
        sensitivity=1 << 20,
        share=0.3,
        geometry=geometry,
        meaning=meaning,
    )
    plan = ReleasePlan(spec=spec, noise_multiplier=2.5)
    return Release(path=f"feddp_kmeans/round/{name}", plan=plan, values=values, lattice_unit=unit)


RELEASES = [
    release("scatter", [1, -2, 3], geometry=Geometry.SYMMETRIC, meaning=SCATTER),
    release("sums", [[2**62, -(2**62)], [0, 7], [1, 1]]),
    release("counts", [5, -1, 0], mechanism=Mechanism.DISCRETE_LAPLACE, unit=2.0**-20),
]


def assert_equal(found: Release, expected: Release):
    assert found.path == expected.path
    assert found.plan.noise_multiplier == expected.plan.noise_multiplier
    known = dataclasses.replace(expected.plan.spec, share=0.0)
    assert meaning_of(found.plan.spec) == meaning_of(expected.plan.spec)
    assert dataclasses.replace(found.plan.spec, share=0.0) == known
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.values.dtype == np.int64
    np.testing.assert_equal(found.lattice_unit, expected.lattice_unit)


def test_releases_survive_the_round_trip_in_order():
    table = releases_to_table(RELEASES)
    assert table.schema.equals(RELEASE_SCHEMA)
    found = releases_from_table(table)
    assert len(found) == len(RELEASES)
    for each, expected in zip(found, RELEASES, strict=True):
        assert_equal(each, expected)
        assert math.isnan(each.plan.spec.share)
        assert each.stddev == expected.stddev


def test_a_row_says_what_was_promised_in_feature_units():
    row = releases_to_table(RELEASES[:1]).to_pylist()[0]
    assert row == {
        "path": "feddp_kmeans/round/scatter",
        "tells": "directions in which the data spread",
        "role": "squared_lengths",
        "quantity": "feature units squared",
        "settles": False,
        "shape": [3],
        "mechanism": "discrete_gaussian",
        "geometry": "symmetric",
        "noise_multiplier": 2.5,
        "sensitivity": 2.0**18,
        "sensitivity_lattice": 2**20,
        "noise_stddev_lattice": 2.5 * 2**20,
        "lattice_unit": 0.25,
        "values_lattice": [1, -2, 3],
    }


def test_laplace_noise_is_recorded_by_its_stddev():
    row = releases_to_table(RELEASES[2:]).to_pylist()[0]
    assert row["noise_stddev_lattice"] == pytest.approx(math.sqrt(2) * 2.5 * 2**20)


def test_decoding_uses_the_unit_and_an_unknown_unit_gives_nan():
    np.testing.assert_array_equal(RELEASES[0].decoded, [0.25, -0.5, 0.75])
    assert RELEASES[0].stddev == 2.5 * 2**18
    unknown = release("sums", [[1, 2]], unit=float("nan"))
    assert np.isnan(unknown.decoded).all()
    np.testing.assert_array_equal(unknown.with_unit(2.0).decoded, [[2.0, 4.0]])
    assert_equal(releases_from_table(releases_to_table([unknown]))[0], unknown)


def test_no_releases_make_an_empty_table():
    table = releases_to_table([])
    assert table.schema.equals(RELEASE_SCHEMA)
    assert releases_from_table(table) == ()


MODEL = ClusterModel(
    centers=np.array([[0.1, 0.2], [1e300, -1e-300], [3.0, 4.0]]),
    noisy_sizes=np.array([10.5, -2.0, 0.0]),
    releases=tuple(RELEASES),
)


def test_a_noisy_cost_survives_the_round_trip():
    assert model_from_tables(MODEL.centers_table(), releases_to_table([])).noisy_cost is None
    for proxy_costs in ([], [3.0, 1.0]):
        model = dataclasses.replace(
            MODEL, noisy_cost=NoisyCost(mean=-0.1, stddev=1e-300), proxy_costs=np.array(proxy_costs)
        )
        found = model_from_tables(model.centers_table(), releases_to_table([]))
        assert found.noisy_cost == model.noisy_cost
        np.testing.assert_array_equal(found.proxy_costs, proxy_costs)


def test_a_centers_table_has_the_published_columns():
    table = MODEL.centers_table()
    assert table.schema.field("cluster").type == pa.int32()
    assert table.schema.field("center").type == pa.list_(pa.float64(), 2)
    assert table.schema.field("noisy_size").type == pa.float64()
    assert table.column("cluster").to_pylist() == [0, 1, 2]
    assert table.column("center").to_pylist()[2] == [3.0, 4.0]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a_model_survives_the_round_trip_in_any_order_of_rows(order):
    found = model_from_tables(MODEL.centers_table().take(order), releases_to_table(list(MODEL.releases)))
    assert found.n_clusters == MODEL.n_clusters == 3
    np.testing.assert_array_equal(found.centers, MODEL.centers)
    np.testing.assert_array_equal(found.noisy_sizes, MODEL.noisy_sizes)
    for each, expected in zip(found.releases, MODEL.releases, strict=True):
        assert_equal(each, expected)
