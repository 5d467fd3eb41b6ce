"""The `encode` section of a job: what is accepted, what is refused and in which words."""

import copy
import pickle

import numpy as np
import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FedDPKMeansFit, load_config, validated
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.tables.encoding import EncodingKind, OneHot, PublicSource, QuantileBins, Standardize
from tests.scenes import job_text

JOB = """
algorithm: feddp_kmeans
data: {path: lake, features: [age, hours, education, flag]}
server_data: {path: server.parquet}
encode:
  age: {kind: quantile_bins, bins: 5}
  hours: {kind: standardize, mean: 40, stddev: 12.5}
  education: {kind: one_hot, vocabulary: [HS-grad, Bachelors], weight: 0.5}
n_clusters: 10
privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}
clipping: {norm: server_radius}
"""


def with_entry(column, entry, **changes):
    data = yaml_text.parse(JOB)
    data["encode"] = {column: entry}
    return data | changes


def test_the_section_is_read_as_written():
    encode = load_config(JOB).encode
    assert encode["age"] == QuantileBins(bins=5)
    assert encode["hours"] == Standardize(mean=40.0, stddev=12.5)
    assert encode["education"] == OneHot(vocabulary=("HS-grad", "Bachelors"), weight=0.5)
    assert [encode[name].needs_server for name in ("age", "hours", "education")] == [True, False, False]
    assert load_config(JOB).encode["age"].kind is EncodingKind.QUANTILE_BINS


ALLOWED = [
    {"kind": "standardize", "from": "server"},
    {"kind": "standardize", "mean": np.float32(1), "stddev": np.int64(2)},
    {"kind": "standardize", "mean": -1e300, "stddev": 1e-300, "weight": 3},
    {"kind": "one_hot", "vocabulary": "server"},
    {"kind": "one_hot", "vocabulary": ["server"]},
    {"kind": "one_hot", "vocabulary": ["", "1", "no"]},
    {"kind": "one_hot", "vocabulary": [3, 1, -(10**30)]},
    {"kind": "one_hot", "vocabulary": [True, False]},
    {"kind": "one_hot", "vocabulary": tuple(np.arange(3))},
    {"kind": "quantile_bins", "bins": np.int64(2)},
    {"kind": "bounds", "lower": -5, "upper": np.float64(1e6), "to": "symmetric", "weight": 2},
    QuantileBins(bins=1000),
]


@pytest.mark.parametrize("entry", ALLOWED, ids=str)
def test_allowed_encodings_survive_yaml_and_travel(entry):
    config = validated(with_entry("age", entry))
    again = load_config(job_text.rendered(config))
    assert again == config
    assert config_digest(again) == config_digest(config)
    assert pickle.loads(pickle.dumps(config)) == config


def test_from_is_dumped_under_its_name():
    config = validated(with_entry("age", {"kind": "standardize", "from": "server"}))
    assert config.encode["age"] == Standardize(source=PublicSource.SERVER)
    assert yaml_text.parse(job_text.rendered(config))["encode"]["age"]["from"] == "server"


def test_types_of_categories_are_kept():
    vocabulary = validated(with_entry("age", {"kind": "one_hot", "vocabulary": [True, False]})).encode["age"].vocabulary
    assert vocabulary == (True, False)
    assert {type(value) for value in vocabulary} == {bool}


KINDS = "give kind standardize, one_hot, quantile_bins, bounds or terms."
VOCABULARY = "encode.age.vocabulary must be 'server' or a non-empty list of strings, of integers or of booleans, got "
REFUSED = [
    (3, "encode.age must be a section of settings, got 3; give a section with kind standardize, one_hot, q"),
    (None, "encode.age must be a section of settings, got nothing; give a section with kind"),
    (
        {},
        "encode.age.kind must be 'standardize', 'one_hot', 'quantile_bins', 'bounds' or 'terms', got nothing; " + KINDS,
    ),
    (
        {"kind": "bins"},
        "encode.age.kind must be 'standardize', 'one_hot', 'quantile_bins', 'bounds' or 'terms', got 'bins'; " + KINDS,
    ),
    (
        {"kind": ["one_hot"]},
        "encode.age.kind must be 'standardize', 'one_hot', 'quantile_bins', 'bounds' or 'terms', got ['one_hot']; ",
    ),
    ({"kind": "quantile_bins"}, "encode.age.bins is required; give the number of bins"),
    ({"kind": "quantile_bins", "bins": 1}, "encode.age.bins must be at least 2, got 1; give the number of bins"),
    ({"kind": "quantile_bins", "bins": 1001}, "encode.age.bins must be at most 1000, got 1001; give the number"),
    ({"kind": "quantile_bins", "bins": 2.5}, "encode.age.bins must be an integer, got 2.5; give the number of bins"),
    ({"kind": "quantile_bins", "bin": 5}, "encode.age.bin is not a setting; did you mean bins?"),
    ({"kind": "quantile_bins", "bins": 5, "weight": 0}, "encode.age.weight must be greater than 0, got 0; give what"),
    ({"kind": "standardize"}, "encode.age.mean must be given without from: server, got nothing; give mean and"),
    ({"kind": "standardize", "mean": 1}, "encode.age.stddev must be given without from: server, got nothing; "),
    (
        {"kind": "standardize", "from": "server", "stddev": 2},
        "encode.age.stddev must be left out with from: server, got 2.0; give mean and stddev, or only from: server",
    ),
    ({"kind": "standardize", "from": "clients"}, "encode.age.from must be 'server', got 'clients'; give server for"),
    (
        {"kind": "standardize", "mean": 1, "stddev": 0},
        "encode.age.stddev must be greater than 0, got 0; give the public standard deviation",
    ),
    (
        {"kind": "standardize", "mean": float("nan"), "stddev": 1},
        "encode.age.mean must be a finite number, got nan; give the public mean",
    ),
    (
        {"kind": "standardize", "bins": 3},
        "encode.age.bins is not a setting; the settings are kind, mean, stddev, from",
    ),
    ({"kind": "bounds", "lower": 1}, "encode.age.upper is required; give the public upper bound"),
    ({"kind": "bounds", "lower": 1, "upper": 1}, "encode.age.upper must be clearly above lower, both from"),
    ({"kind": "bounds", "lower": 2, "upper": 1}, "encode.age.upper must be clearly above lower, both from"),
    ({"kind": "bounds", "lower": float("nan"), "upper": 1}, "encode.age.lower must be a finite number, got nan"),
    ({"kind": "bounds", "lower": 0, "upper": float("inf")}, "encode.age.upper must be a finite number, got inf"),
    ({"kind": "bounds", "lower": 0, "upper": 1, "to": "ball"}, "encode.age.to must be 'unit' or 'symmetric', got"),
    ({"kind": "one_hot"}, "encode.age.vocabulary is required; give a list of public categories, or"),
    ({"kind": "one_hot", "vocabulary": []}, VOCABULARY + "[]; give a list of public categories, or server"),
    ({"kind": "one_hot", "vocabulary": "clients"}, VOCABULARY + "'clients'; give"),
    ({"kind": "one_hot", "vocabulary": ["a", 1]}, VOCABULARY + "['a', 1]; give"),
    ({"kind": "one_hot", "vocabulary": [1, True]}, VOCABULARY + "[1, True]; give"),
    ({"kind": "one_hot", "vocabulary": [0.5]}, VOCABULARY + "[0.5]; give"),
    ({"kind": "one_hot", "vocabulary": [None]}, VOCABULARY + "[None]; give"),
    ({"kind": "one_hot", "vocabulary": 3}, VOCABULARY + "3; give"),
    (
        {"kind": "one_hot", "vocabulary": ["a", "b", "a"]},
        "encode.age.vocabulary must be a list without duplicates, got ['a', 'b', 'a']; give",
    ),
]


def message(data):
    with pytest.raises(ConfigError) as caught:
        validated(data)
    assert caught.value.args == (str(caught.value),)
    assert str(caught.value)[-1] in ".?"
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("entry", "start"), REFUSED, ids=str)
def test_a_wrong_entry_is_refused_in_one_sentence(entry, start):
    assert message(with_entry("age", entry)).startswith(start)


BINS = {"kind": "quantile_bins", "bins": 3}
PRIVATE = {"server_data": "none", "clipping": {"norm": 1.0, "center": "none"}}
CONTRADICTIONS = [
    (
        with_entry("hour", BINS),
        "encode.hour must name a column of data.features, got 'hour'; did you mean encode.hours?",
    ),
    (
        with_entry("zip", BINS),
        "encode.zip must name a column of data.features, got 'zip'; the columns there are age, hours, education, flag.",
    ),
    (with_entry(3, BINS), "encode.3 must be a string, got 3; give a mapping of columns of data.features"),
    (with_entry("", BINS), "encode. must be a non-empty string, got ''; give a mapping of columns"),
    (with_entry("age", BINS) | {"encode": ["age"]}, "encode must be a mapping, got ['age']; give a mapping of columns"),
    (
        with_entry("x", BINS, data={"path": "lake", "features": "x"}),
        "data.features must be a list of columns if there is an encode section, got 'x'; list the columns or remove",
    ),
    (
        with_entry("age", BINS, **PRIVATE),
        "encode.age must have public values if there is no server_data, got kind: quantile_bins; write the",
    ),
    (
        with_entry("age", {"kind": "one_hot", "vocabulary": "server"}, **PRIVATE),
        "encode.age must have public values if there is no server_data, got vocabulary: server; write the",
    ),
    (
        with_entry("age", {"kind": "standardize", "from": "server"}, **PRIVATE),
        "encode.age must have public values if there is no server_data, got from: server; write the values",
    ),
]


@pytest.mark.parametrize(("data", "start"), CONTRADICTIONS)
def test_a_section_that_does_not_fit_the_job_is_refused(data, start):
    assert message(data).startswith(start)


def test_a_mistyped_section_is_suggested():
    data = yaml_text.parse(JOB)
    data["encod"] = data.pop("encode")
    assert message(data) == "encod is not a setting; did you mean encode?"


def test_public_encodings_need_no_server_data():
    entry = {"kind": "one_hot", "vocabulary": ["a"]}
    assert validated(with_entry("age", entry, **PRIVATE)).server_data is None


@pytest.mark.parametrize(
    ("column", "setting", "value"),
    [("age", "bins", 6), ("hours", "mean", 41), ("hours", "stddev", 13), ("education", "vocabulary", ["Bachelors"])]
    + [(column, "weight", 2.0) for column in ("age", "hours", "education")],
)
def test_the_digest_changes_with_every_setting(column, setting, value):
    data = yaml_text.parse(JOB)
    other = copy.deepcopy(data)
    other["encode"][column][setting] = value
    assert config_digest(validated(other)) != config_digest(validated(data))


@pytest.mark.parametrize("model", [Standardize, OneHot, QuantileBins])
def test_every_setting_says_what_to_give(model):
    assert model.model_config["extra"] == "forbid"
    assert model.model_config["frozen"]
    for name, field in model.model_fields.items():
        assert field.description, name
        assert not field.description.endswith("."), name


def test_construction_in_python():
    parts = {name: getattr(load_config(JOB), name) for name in FedDPKMeansFit.model_fields}
    assert FedDPKMeansFit(**parts) == load_config(JOB)
    with pytest.raises(ConfigError, match="mean must be given without from: server"):
        Standardize()
