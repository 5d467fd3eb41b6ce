"""Missing values: public fills and indicators, the same wherever a model goes."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig, MissingConfig
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import Bounds, Standardize
from dapple_dp.transforms.files.saved_model import SavedModel

NAN = math.nan
LAB = {"fill": 6.0, "indicator": True}


def encoder(encodings=None, **missing):
    sections = {name: MissingConfig(**entry) for name, entry in missing.items()}
    return Encoder.learn(("age", "lab"), encodings or {}, missing=sections)


def job(missing, *, features=("age", "lab"), domain=None, **settings):
    data = {"path": "lake", "features": list(features) if isinstance(features, tuple) else features, "missing": missing}
    return {
        "algorithm": "dp_lloyd",
        "data": data,
        "n_clusters": 2,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "dp_lloyd": {"domain": domain or {"age": [0, 100], "lab": [0, 20]}},
    } | settings


@pytest.mark.parametrize(
    "lab",
    [
        pa.array([5.0, None, NAN, 9.0]),
        pa.array([5.0, None, NAN, 9.0], pa.float32()),
        pa.array([5, None, None, 9]),
        pa.chunked_array([[5.0, None], [NAN], [9.0]]),
    ],
)
def test_null_and_nan_are_both_missing(lab):
    found = encoder(lab=LAB).encode(pa.table({"age": [1.0, 2.0, 3.0, 4.0], "lab": lab}), "t")
    assert found.tolist() == [[1, 5, 0], [2, 6, 1], [3, 6, 1], [4, 9, 0]]


def test_a_column_without_any_value_is_missing_everywhere():
    assert encoder(lab=LAB).encode(pa.table({"age": [1.0], "lab": pa.nulls(1)}), "t").tolist() == [[1, 6, 1]]


def test_without_an_indicator_there_is_no_more_feature():
    found = encoder(lab={"fill": 6.0})
    assert found.names == ("age", "lab")
    assert found.encode(
        pa.table({"age": [1.0], "lab": [None]}).cast(pa.schema({"age": "f8", "lab": "f8"})), "t"
    ).tolist() == [[1, 6]]


def test_infinities_and_other_columns_stay_invalid():
    table = pa.table({"age": [NAN, 1.0], "lab": [5.0, math.inf]})
    for encodings in ({}, {"lab": Bounds(lower=0, upper=20)}):
        assert np.isfinite(encoder(encodings, lab=LAB).encode(table, "t")).all(axis=1).tolist() == [False, False]


@pytest.mark.parametrize(("to", "flags"), [("symmetric", [-1.0, 1.0]), ("unit", [0.0, 1.0])])
def test_an_indicator_has_the_range_that_bounds_become(to, flags):
    found = encoder({"lab": Bounds(lower=0, upper=20, to=to, weight=2.0)}, lab=LAB)
    table = pa.table({"age": [1.0, 1.0], "lab": [10.0, None]})
    assert found.encode(table, "t")[:, 2].tolist() == [2 * each for each in flags]
    assert np.stack(found.bounds)[:, 2].tolist() == [2 * flags[0], 2.0]
    assert found.in_percent.tolist() == [False, False, True]
    middle = np.array([[1.0, 0.0, 2 * flags[0] * 0.75 + 2 * flags[1] * 0.25]])
    assert found.decoded(middle)[0, 2] == 25.0
    assert found.in_units(middle)[0, 2] == 0.25


def test_a_row_depends_on_itself_alone():
    rng = np.random.default_rng(0)
    lab = np.where(rng.random(50) < 0.4, NAN, rng.normal(6, 1, 50))
    table = pa.table({"age": rng.normal(size=50), "lab": lab})
    whole = encoder(lab=LAB).encode(table, "t")
    np.testing.assert_array_equal(whole[20:], encoder(lab=LAB).encode(table.slice(20), "t"))


@pytest.mark.parametrize(
    "encodings", [{}, {"lab": Bounds(lower=0, upper=20)}, {"lab": Standardize(mean=6.0, stddev=2.0)}]
)
def test_a_file_brings_it_back(encodings):
    found = encoder(encodings, lab=LAB)
    again = Encoder.from_json(found.to_json())
    assert again == found
    with pytest.raises(InputError):
        Encoder.from_json([found.to_json()[1] | {"fill_value": NAN}])


@pytest.mark.parametrize(
    ("missing", "more", "rule"),
    [
        ({"hba1c": LAB}, {}, "data.missing.hba1c must name a column of data.features"),
        (
            {"lab": {"fill": 20.5}},
            {},
            "data.missing.lab.fill must be inside the bounds of its column, 0 to 20, got",
        ),
        ({"lab": {"fill": -1}}, {"domain": [0, 20]}, "must be inside the bounds of its column, 0 to 20, got -1"),
        ({"lab": {"fill": NAN}}, {}, "data.missing.lab.fill must be a"),
        ({"lab": {"fill": "mean"}}, {}, "data.missing.lab.fill must be a number"),
        ({"lab": {"indicator": True}}, {}, "data.missing.lab.fill is required"),
        ({"lab": {"fill": 6, "indicator": 1}}, {}, "data.missing.lab.indicator must be"),
        ({"lab": {"fill": 6, "flag": True}}, {}, "data.missing.lab.flag is not a setting"),
        ({"lab": 6.0}, {}, "data.missing"),
        (
            {"lab": LAB},
            {"domain": [0, 20]},
            "dp_lloyd.domain must have one interval for each column",
        ),
        (
            {"lab": LAB},
            {"features": "lab", "domain": [0, 20]},
            "data.missing isn't supported for the list column 'lab'",
        ),
        (
            {"lab": LAB},
            {"features": ("lab", "lab missing"), "domain": {"lab": [0, 20], "lab missing": [0, 1]}},
            "data.missing.lab.indicator must be false if there is a column 'lab missing'",
        ),
        (
            {"lab": {"fill": 6}},
            {"domain": [0, 1], "encode": {"lab": {"kind": "one_hot", "vocabulary": ["a"]}}},
            "data.missing.lab must name a column of numbers",
        ),
        (
            {"lab": {"fill": 60}},
            {"domain": [-2, 2], "encode": {"lab": {"kind": "standardize", "mean": 6, "stddev": 2}}},
            "inside the bounds of its column, 2 to 10, got 60",
        ),
        (
            {"lab": LAB},
            {"domain": [2, 5], "encode": {"lab": {"kind": "standardize", "mean": 0, "stddev": 2}}},
            "dp_lloyd.domain must contain 0 and 1 for the indicator of data.missing.lab",
        ),
    ],
)
def test_what_cannot_fill_is_refused(missing, more, rule):
    with pytest.raises(ConfigError, match=rule):
        validated(job(missing, **more))


def test_the_job_without_it_has_the_digest_that_it_had():
    assert config_digest(validated(job({}))) != config_digest(validated(job({"lab": LAB})))
    plain = job({})
    del plain["data"]["missing"]
    assert config_digest(validated(plain)) == config_digest(validated(job({})))
    assert "missing" not in str(validated(plain).data.path)


def test_auto_counts_indicators():
    """Three columns and an indicator are more features than a grid is for."""
    names = ("a", "b", "c")
    settings = {"n_clusters": 8, "algorithm": "auto"}
    for missing, init in (({}, None), ({"c": {"fill": 0.5, "indicator": True}}, "candidates")):
        found = validated(job(missing, features=names, domain={name: [0, 1] for name in names}, **settings))
        assert found.dp_lloyd.init == init


def model_of(found):
    return SavedModel(
        folder="runs/1",
        centers=np.zeros((2, found.n_features)),
        digest="0" * 64,
        feature_names=found.names,
        encoder=found,
        sizes=np.ones(2),
    )


def test_a_model_fills_as_its_fit_did():
    model = model_of(encoder(lab=LAB))
    for given in ({}, {"lab": LAB}):
        contract = model.contract(DataConfig(path="new", features=["age", "lab"], missing=given))
        assert contract.to_points(pa.table({"age": [1.0], "lab": pa.nulls(1, pa.float64())}), "t").tolist() == [
            [1, 6, 1]
        ]
    for other in ({"lab": {"fill": 6.0}}, {"lab": {"fill": 7.0, "indicator": True}}, {"age": LAB}):
        with pytest.raises(ConfigError, match=r"data\.missing must be the same as in the fit at runs/1"):
            model.contract(DataConfig(path="new", features=["age", "lab"], missing=other))


def test_prepared_rows_keep_their_holes():
    contract = TableContract(
        features=("age", "lab"), n_features=2, client_id="who", by_client=True, may_miss=frozenset({"lab"})
    )
    table = pa.table({"age": [1.0, 2.0], "lab": [None, NAN], "who": ["a", "b"]})
    points, _ = contract.to_rows(table, "t")
    np.testing.assert_array_equal(points, [[1, NAN], [2, NAN]])
    for broken in ({"age": [1.0, NAN]}, {"lab": [1.0, math.inf]}, {"who": ["a", None]}):
        with pytest.raises(InputError, match=f"column {next(iter(broken))!r} of t"):
            contract.to_rows(pa.table({name: broken.get(name, table[name]) for name in table.column_names}), "t")
