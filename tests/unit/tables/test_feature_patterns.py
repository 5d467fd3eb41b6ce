"""Columns by pattern: what a pattern stands for, and what is refused before anything is read."""

import types

import pyarrow as pa
import pytest

from dapple_dp.schemas.errors import ConfigError, SchemaMismatchError
from dapple_dp.schemas.kmeans.fit_config import load_config, validated
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.feature_patterns import FeaturePatterns, has_patterns
from dapple_dp.schemas.trusted_zone.sweep_config import sweep_config
from dapple_dp.transforms.tables.on_launcher import first_schema
from tests.scenes import job_text

NAMES = ("id", "c10", "c9", "C1", "x[0]", "why?", "label", "ab", "a\nb")


def patterns(*features, excepted=(), client_id=None):
    return FeaturePatterns(features=features, excepted=tuple(excepted), client_id=client_id)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (patterns("c*"), ("c10", "c9")),
        (patterns("*"), NAMES),
        (patterns("*", excepted=["id", "lab*"]), ("c10", "c9", "C1", "x[0]", "why?", "ab", "a\nb")),
        (patterns("c*", "ab", "c9"), ("c10", "c9", "ab")),
        (patterns("x[*"), ("x[0]",)),
        (patterns("x[0]", "wh?*"), ("x[0]",)),
        (patterns("why?*"), ("why?",)),
        (patterns("a*b"), ("ab", "a\nb")),
        (patterns("**9"), ("c9",)),
    ],
    ids=str,
)
def test_a_pattern_stands_for_columns_in_the_order_of_the_schema(found, expected):
    assert found.columns(NAMES) == expected


@pytest.mark.parametrize(
    ("found", "match"),
    [
        (patterns("d*"), r"data\.features has 'd\*', which matches no column of lake/a"),
        (patterns("c*", "nowhere"), r"data\.features has 'nowhere', which matches no column of lake/a"),
        (patterns("c*", excepted=["c8"]), r"data\.except has 'c8', which matches no column of lake/a"),
        (patterns("*", client_id="id"), r"must not include data\.client_id, got a pattern that matches 'id'; write"),
        (patterns("c*", excepted=["*"]), r"must match columns without '\*' in their names, got none in lake/a"),
        (patterns("caf\u00e9*"), "has 'caf\u00e9\\*', which matches no column"),
    ],
    ids=str,
)
def test_what_stands_for_nothing_or_too_much_is_refused(found, match):
    with pytest.raises(ConfigError, match=match):
        found.resolved((*NAMES, "cafe\u0301s"), "lake/a")


def test_a_column_that_looks_like_a_pattern_is_refused():
    with pytest.raises(ConfigError, match=r"without '\*' in their names, got 'c\*' in lake/a; rename them"):
        patterns("c*").resolved(("c1", "c*"), "lake/a")


def test_a_long_pattern_comes_to_an_end():
    assert patterns("*a" * 60 + "b").columns(["a" * 4000]) == ()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"features": "c*"}, "data.features must be a list if it has a pattern, got 'c\\*'"),
        ({"features": ["a"], "except": ["b"]}, "data.except isn't supported if data.features has no pattern"),
        ({"features": ["c*"], "except": "c1"}, "data.except must be a non-empty list of names"),
        ({"features": ["c*"], "except": []}, "data.except must be a non-empty list of names"),
        ({"features": ["c*"], "exept": ["c1"]}, "data.exept is not a setting; did you mean except"),
    ],
    ids=str,
)
def test_sections_that_make_no_sense_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        rejection.check_config(DataConfig, {"path": "p"} | settings, within="data")


JOB = """
algorithm: dp_lloyd
data: {path: lake, features: ["c*", age], except: [c9]}
n_clusters: 3
privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}
dp_lloyd: {domain: {c10: [0, 1], age: [17, 90]}}
"""


def test_a_job_survives_yaml_and_is_checked_when_its_columns_are_known():
    config = load_config(JOB)
    assert has_patterns(config.data.features)
    assert config.encodings == {}
    assert load_config(job_text.rendered(config)) == config
    with pytest.raises(ConfigError, match=r"dp_lloyd\.domain must have one interval for each column"):
        validated(dict(config) | {"data": DataConfig(path="lake", features=("c10", "c11", "age"))})


def test_a_sweep_names_its_columns():
    base = {
        "algorithm": "feddp_kmeans",
        "data": {"path": "lake", "features": ["c*"]},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "clipping": {"norm": 1.0, "center": "none"},
        "sweep": {"methods": {"a": {}}, "epsilons": [1.0], "seeds": 1},
    }
    with pytest.raises(ConfigError, match=r"data\.features must name every column in a sweep, got a pattern"):
        sweep_config(base)


def test_every_file_has_the_columns_of_the_first():
    data = DataConfig(path="p", features=("c1", "c2")).found_by(patterns("c*"))
    contract = TableContract.from_config(data)
    assert DataConfig(path="p", features=("c1", "c2")).model_dump() == data.model_dump()
    fields = {"c2": pa.float64(), "c1": pa.float64()}
    contract.check_schema(pa.schema(fields), "lake/a")
    for changed in (fields | {"c3": pa.float64()}, {"c1": pa.float64()}):
        with pytest.raises(SchemaMismatchError, match=r"data\.features must match the same columns in every file"):
            contract.check_schema(pa.schema(changed), "lake/b")
    contract.features_only().check_schema(pa.schema(fields | {"c3": pa.float64()}), "server")


def test_without_a_file_there_are_no_columns():
    """A window to which nobody came, where earlier ones are not read."""
    nothing = types.SimpleNamespace(path="lake", listed=types.SimpleNamespace(files=[]))
    with pytest.raises(
        ConfigError, match=r"data\.features must list the names of columns .* use the names of the windows before"
    ):
        first_schema(nothing)
