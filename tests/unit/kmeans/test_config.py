"""Job configs: what is accepted, what is refused and in which words, YAML round trip, digest."""

import copy
import pickle
import re

import numpy as np
import pydantic
import pytest

from dapple_dp.schemas.choices import Algorithm, ClippingCenter, ClippingRule, InvalidRows
from dapple_dp.schemas.core.plan import Allocation, PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.any_fit import AnyFit
from dapple_dp.schemas.kmeans.fit_config import FITS, OWN_SECTIONS, FedDPKMeansFit, load_config, validated
from dapple_dp.schemas.kmeans.sections.clipping_config import ClippingConfig
from dapple_dp.schemas.kmeans.sections.feddp_config import LloydConfig
from dapple_dp.schemas.kmeans.sections.privacy_config import PrivacyConfig
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.tables.data_section import DataConfig
from tests.scenes import job_text

MINIMAL = """
algorithm: feddp_kmeans
data: {path: lake, features: [age, hours]}
server_data: {path: server.parquet}
n_clusters: 10
privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}
clipping: {norm: server_radius}
"""

FULL = """
experimental: true
algorithm: feddp_kmeans
data:
  path: lake/clients
  table: {format: delta, version: 7}
  partitions: {dt: 2026-11-20, year: 2026}
  client_id: client_id
  features: embedding
  on_invalid_rows: drop
  name: census
  public_rows: 1000
  max_rows_per_client: 20
server_data: none
n_clusters: 3
privacy:
  unit: client
  epsilon: 0.5
  delta: 1e-6
  allocation: paper
clipping: {norm: 2, center: none, client_rows: 50}
lloyd: {steps: 2, share: 0.3}
feddp_kmeans:
  restarts: 20
key_uri: keys/noise.key
seed: 7
"""

ABSENT = object()


def changed(changes, text=MINIMAL):
    data = yaml_text.parse(text)
    for name, value in changes.items():
        *sections, key = name.split(".")
        section = data
        for each in sections:
            section = section.setdefault(each, {})
        if value is ABSENT:
            del section[key]
        else:
            section[key] = value
    return data


def message(changes, text=MINIMAL):
    with pytest.raises(ConfigError) as caught:
        validated(changed(changes, text))
    assert caught.value.exit_code == 2
    assert caught.value.args == (str(caught.value),)
    assert str(caught.value)[-1] in ".?"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_minimal_job_takes_the_defaults():
    config = load_config(MINIMAL)
    assert config.data.features == ("age", "hours")
    assert config.data.on_invalid_rows is InvalidRows.FAIL
    assert config.privacy.unit is PrivacyUnit.RECORD
    assert config.privacy.allocation is Allocation.TUNED
    assert config.clipping.norm is ClippingRule.SERVER_RADIUS
    assert config.clipping.center is ClippingCenter.SERVER_MEAN
    assert (config.lloyd.steps, config.lloyd.share) == (0, 0.25)
    assert config.feddp_kmeans.restarts == 50
    assert config.seed is None
    assert config.key_uri is None


def test_full_job_is_read_as_written():
    config = load_config(FULL)
    assert config.data.partitions == {"dt": "2026-11-20", "year": 2026}
    assert config.data.partition_values() == {"dt": "2026-11-20", "year": "2026"}
    assert config.data.features == "embedding"
    assert config.server_data is None
    assert config.privacy.delta == 1e-6
    assert config.clipping.norm == 2.0
    assert isinstance(config.clipping.norm, float)
    assert config.feddp_kmeans.restarts == 20


@pytest.mark.parametrize("section", ["epsilon", "delta"])
def test_no_default_decides_the_guarantee(section):
    assert PrivacyConfig.model_fields[section].is_required()
    assert ClippingConfig.model_fields["norm"].is_required()


NORM_RULE = "clipping.norm must be 'server_radius', 'private' or a number from 1e-60 to 1e+60"
WRONG_VALUES = [
    ("privacy.epsilon", 0, "privacy.epsilon must be greater than 0, got 0; give the total epsilon of the run"),
    ("privacy.epsilon", -1.5, "privacy.epsilon must be greater than 0, got -1.5; give the total epsilon"),
    ("privacy.epsilon", float("nan"), "privacy.epsilon must be a finite number, got nan; give"),
    ("privacy.epsilon", float("inf"), "privacy.epsilon must be a finite number, got inf; give"),
    ("privacy.epsilon", "1", "privacy.epsilon must be a number, got '1'; give the total epsilon"),
    ("privacy.epsilon", True, "privacy.epsilon must be a number, got True; give the total epsilon"),
    ("privacy.epsilon", None, "privacy.epsilon must be a number, got nothing; give the total epsilon"),
    ("privacy.epsilon", ABSENT, "privacy.epsilon is required; give the total epsilon"),
    (
        "privacy.delta",
        1,
        "privacy.delta must be less than 1, got 1; give the total delta of the run, a number strictly",
    ),
    ("privacy.delta", 1.5, "privacy.delta must be less than 1, got 1.5; give the total delta"),
    ("privacy.delta", 0, "privacy.delta must be greater than 0, got 0; give the total delta"),
    ("privacy.delta", ABSENT, "privacy.delta is required; give the total delta"),
    ("privacy.unit", "user", "privacy.unit must be 'record' or 'client', got 'user'; give record or client"),
    ("privacy.unit", ABSENT, "privacy.unit is required; give record or client"),
    ("privacy.allocation", "best", "privacy.allocation must be 'tuned' or 'paper', got 'best'; give tuned"),
    ("privacy.shares", {"sums": 1}, "privacy.shares no longer accepts a section; use auto, which simulates shares"),
    (
        "privacy.shares",
        [0.25] * 4,
        "privacy.shares must be 'auto' or left out, got [0.25, 0.25, 0.25, 0.25]; give",
    ),
    ("privacy.shares", "automatic", "privacy.shares must be 'auto' or left out, got 'automatic'; give auto to choose"),
    ("privacy", ABSENT, "privacy is required; give the section of the guarantee with unit, epsilon"),
    ("privacy", None, "privacy must be a section of settings, got nothing; give the section of the guarantee"),
    ("clipping", ABSENT, "clipping is required; give the section of the contribution bounds with norm"),
    ("clipping.norm", ABSENT, "clipping.norm is required; give the largest L2 norm"),
    ("clipping.norm", "public", f"{NORM_RULE}, got 'public'; give the largest L2 norm"),
    ("clipping.norm", 0, f"{NORM_RULE}, got 0; give"),
    ("clipping.norm", 1e61, f"{NORM_RULE}, got 1e+61; give"),
    ("clipping.norm", 1e-61, f"{NORM_RULE}, got 1e-61; give"),
    ("clipping.norm", True, f"{NORM_RULE}, got True; give"),
    ("clipping.norm", float("inf"), f"{NORM_RULE}, got inf; give"),
    ("clipping.norm", 10**400, f"{NORM_RULE}, got 1000"),
    ("clipping.center", "mean", "clipping.center must be 'server_mean' or 'none', got 'mean'; give server_mean"),
    ("clipping.client_rows", 0, "clipping.client_rows must be at least 1, got 0; give the public typical number"),
    ("clipping.client_rows", 2.0, "clipping.client_rows must be an integer, got 2.0; give"),
    ("n_clusters", 0, "n_clusters must be at least 1, got 0; give the number of centers"),
    ("n_clusters", 100_000, "n_clusters must be at most 10000, got 100000; give the number of centers"),
    (
        "n_clusters",
        {"max": 100_000, "choose": "elbow"},
        "n_clusters must be a section whose max is an integer from 2 to",
    ),
    ("n_clusters", 2.5, "n_clusters must be an integer, got 2.5; give the number of centers"),
    ("n_clusters", "2", "n_clusters must be an integer, got '2'; give the number of centers"),
    ("n_clusters", True, "n_clusters must be an integer, got True; give the number of centers"),
    (
        "algorithm",
        "kmeans",
        f"algorithm must be {', '.join(map(repr, map(str, list(Algorithm)[:-1])))} or {str([*Algorithm][-1])!r}, got '",
    ),
    ("algorithm", ABSENT, "algorithm is required; give the algorithm"),
    ("data", ABSENT, "data is required; give the section of the private table with path and features"),
    ("data", ["lake"], r"data must be a section of settings, got ['lake']; give the section"),
    ("data.path", "", "data.path must be a non-empty string, got ''; give the path"),
    ("data.path", 3, "data.path must be a string, got 3; give the path"),
    ("data.features", [], "data.features must be a column name or a non-empty list of column names, got []; give"),
    ("data.features", "", "data.features must be a column name or a non-empty list of column names, got ''; give"),
    ("data.features", 3, "data.features must be a column name or a non-empty list of column names, got 3; give"),
    (
        "data.features",
        ["a", 3],
        "data.features must be a column name or a non-empty list of column names, got ['a', 3]",
    ),
    ("data.features", ["a", "a"], "data.features must be a list without duplicates, got 'a' more than once; give"),
    (
        "data.partitions",
        {"dt": True},
        "data.partitions.dt must be a string or an integer (quote it if it is text), got",
    ),
    ("data.partitions", {"dt": 0.5}, "data.partitions.dt must be a string or an integer (quote it if it is text), got"),
    ("data.partitions", {3: "a"}, "data.partitions.3 must be a string, got 3; give a mapping of Hive partition"),
    ("data.partitions", ["dt"], "data.partitions must be a mapping, got ['dt']; give a mapping of Hive partition"),
    ("data.table", "delta", "data.table must be a section of settings, got 'delta'; give a section with format"),
    ("data.table", {"version": 3}, "data.table.format is required; give delta for a Delta table,"),
    ("data.table", {"format": "hudi"}, "data.table.format must be 'delta' or 'iceberg', got 'hudi'; give delta"),
    ("data.table", {"format": "delta", "version": -1}, "data.table.version must be at least 0, got -1; give the"),
    ("data.table", {"format": "delta", "version": "3"}, "data.table.version must be an integer, got '3'; give the"),
    ("data.on_invalid_rows", "skip", "data.on_invalid_rows must be 'fail' or 'drop', got 'skip'; give fail to stop"),
    ("data.name", "", "data.name must be a non-empty string, got ''; give the name"),
    ("data.public_rows", 0, "data.public_rows must be at least 1, got 0; give the number of rows"),
    ("data.client_id", "age", "data.features must not include data.client_id, got 'age' in both; remove"),
    ("server_data", {}, "server_data.path is required; give the path"),
    ("server_data", "server.parquet", "server_data must be a section of settings, got 'server.parquet'; give the"),
    ("lloyd.steps", 51, "lloyd.steps must be at most 50, got 51; give the number of Lloyd rounds"),
    ("lloyd.steps", -1, "lloyd.steps must be at least 0, got -1; give the number of Lloyd rounds"),
    ("lloyd.share", 1, "lloyd.share must be less than 1, got 1; give the share"),
    ("quality.share", 1, "quality.share must be less than 1, got 1; give the share of the budget for this round"),
    ("quality.max_distance", 0, "quality.max_distance must be greater than 0, got 0; give the distance to its center"),
    ("lloyd.share", 0, "lloyd.share must be greater than 0, got 0; give the share"),
    ("feddp_kmeans.restarts", 19, "feddp_kmeans.restarts must be at least 20, got 19; give the number of restarts"),
    ("feddp_kmeans.restarts", 1001, "feddp_kmeans.restarts must be at most 1000, got 1001; give the number"),
    ("data.max_rows_per_client", 0, "data.max_rows_per_client must be at least 1, got 0; give the largest number"),
    ("data.max_rows_per_client", 5, "data.client_id is required for data.max_rows_per_client; name"),
    ("key_uri", 3, "key_uri must be a string, got 3; give the place of the noise key"),
    ("seed", -1, "seed must be at least 0, got -1; give the seed of public randomness"),
    ("seed", 1.0, "seed must be an integer, got 1.0; give the seed of public randomness"),
]


@pytest.mark.parametrize(("name", "value", "start"), WRONG_VALUES)
def test_a_wrong_value_is_refused_in_one_sentence(name, value, start):
    assert message({name: value}).startswith(start)


UNKNOWN_KEYS = [
    ("privacy.epsillon", "privacy.epsillon is not a setting; did you mean privacy.epsilon?"),
    ("epsilon", "epsilon is not a setting; did you mean privacy.epsilon?"),
    ("privacy.epsilo\n", r"privacy.epsilo\n is not a setting; did you mean privacy.epsilon?"),
    ("data.client", "data.client is not a setting; did you mean data.client_id?"),
    ("quality.shares", "quality.shares is not a setting; did you mean quality.share?"),
    ("feddp_kmeans.init", "feddp_kmeans.init was removed; use algorithm central_tree with lloyd.steps."),
    ("lloyd.rate", "lloyd.rate is not a setting; the settings are steps, share."),
    ("model", "model is not a setting; the settings are experimental, algorithm, data, server_data, n_clusters,"),
    ("server_data.features", "server_data.features is not a setting; did you mean data.features?"),
]


@pytest.mark.parametrize(("name", "start"), UNKNOWN_KEYS)
def test_an_unknown_key_suggests_the_nearest(name, start):
    assert message({name: 1}).startswith(start)


def test_a_mistyped_key_is_reported_as_such_and_not_as_missing():
    changes = {"privacy.delta": ABSENT, "privacy.detla": 1e-6, "n_clusters": 0}
    assert message(changes) == "privacy.detla is not a setting; did you mean privacy.delta?"


def test_a_key_that_is_no_string_is_not_a_setting():
    assert message({}, MINIMAL + "3: 4\n").startswith("3 is not a setting; the settings are")


CLIENT = {"privacy.unit": "client", "data.client_id": "id", "clipping.client_rows": 5}
CONTRADICTIONS = [
    (
        {"server_data": None},
        "clipping.norm must be a number or private without server_data, got 'server_radius'; give",
    ),
    (
        {"server_data": "none"},
        "clipping.norm must be a number or private without server_data, got 'server_radius'",
    ),
    (
        {"server_data": ABSENT},
        "clipping.norm must be a number or private without server_data, got 'server_radius'",
    ),
    (
        {"server_data": None, "clipping.norm": 1.0},
        "clipping.center must be 'none' without server_data, got 'server_mean'; write clipping.center: none, or",
    ),
    (
        CLIENT | {"data.client_id": None},
        "data.client_id is required for privacy.unit client; give the column",
    ),
    (
        CLIENT | {"clipping.client_rows": None},
        "clipping.client_rows is required for privacy.unit client; give the public typical number",
    ),
    (
        {"quality.share": 0.7, "lloyd.steps": 1, "lloyd.share": 0.3},
        "the sum of lloyd.share, quality.share must be less than 1, got 1; lower them",
    ),
]


@pytest.mark.parametrize(("changes", "start"), CONTRADICTIONS)
def test_settings_that_contradict_each_other_are_refused(changes, start):
    assert message(changes).startswith(start)


@pytest.mark.parametrize(
    "changes",
    [
        CLIENT,
        {"server_data": "none", "clipping.norm": 1.0, "clipping.center": "none"},
        {"lloyd.steps": 0, "lloyd.share": 0.95, "quality.share": 0.1},
        {"n_clusters": np.int64(3), "privacy.epsilon": np.float64(0.5), "clipping.norm": np.float32(2)},
        {"privacy.epsilon": 3},
        {"data.features": ("a", "b")},
        {"preset": "published"},
    ],
)
def test_allowed_settings_are_accepted_and_survive_yaml(changes):
    config = validated(changed(changes | {"experimental": True}))
    assert load_config(job_text.rendered(config)) == config


WRONG_TEXTS = [
    ("", "the job must be a mapping of settings, got nothing: the file is empty or holds only comments; start with "),
    ("# a\n", "the job must be a mapping of settings, got nothing: the file is empty or holds only comments; start"),
    ("a", "the job must be a mapping of settings, got text without setting names; start with algorithm, data"),
    ("- a", "the job must be a mapping of settings, got a list; start with algorithm, data"),
    ("a: [", "the job must be valid YAML, got an error in line 1, column 5"),
    ("a: 1\n---\nb: 2", "the job must be valid YAML, got an error in line 2, column 1"),
    ("a: !!python/name:os.system", "the job must be valid YAML, got an error in line 1"),
    ("? [a]\n: b", "the job must be valid YAML, got an error in line 1, column 3"),
    ("a: \x00", "the job must be valid YAML, got unacceptable character"),
    ("seed: " + "9" * 5000, "the job must be valid YAML, got "),
    ("seed: 1\nseed: 2", "seed appears twice in its section, again in line 2; remove one of the two."),
    (
        MINIMAL.replace("epsilon: 1.0,", "epsilon: 1.0, epsilon: 8.0,"),
        "epsilon appears twice in its section, again in line 6; remove one of the two.",
    ),
]


@pytest.mark.parametrize(("text", "start"), WRONG_TEXTS)
def test_text_that_is_no_job_is_refused(text, start):
    with pytest.raises(ConfigError) as caught:
        load_config(text)
    assert str(caught.value).startswith(start)


def test_yaml_merge_keys_are_no_duplicates():
    assert yaml_text.parse("a: &a {x: 1}\nb: {<<: *a, x: 2}") == {"a": {"x": 1}, "b": {"x": 2}}


@pytest.mark.parametrize(
    ("text", "value"), [("1e-6", 1e-6), ("1E5", 1e5), (".5e+1", 5.0), ("2026-11-20", "2026-11-20")]
)
def test_yaml_scalars_mean_what_they_look_like(text, value):
    assert yaml_text.parse(f"x: {text}") == {"x": value}


@pytest.mark.parametrize("text", [MINIMAL, FULL])
def test_yaml_round_trip(text):
    config = load_config(text)
    again = load_config(job_text.rendered(config))
    assert again == config
    assert config_digest(again) == config_digest(config)
    assert job_text.rendered(again) == job_text.rendered(config)


def test_digest_is_the_same_for_the_same_settings():
    assert re.fullmatch("[0-9a-f]{64}", config_digest(load_config(MINIMAL)))
    data = yaml_text.parse(FULL)
    reordered = {key: data[key] for key in reversed(data)}
    reordered["data"] = dict(reversed(data["data"].items()))
    assert config_digest(validated(reordered)) == config_digest(load_config(FULL))
    spelled_out = MINIMAL + "lloyd: {steps: 0, share: 0.25}\nseed: null\n"
    assert config_digest(load_config(spelled_out)) == config_digest(load_config(MINIMAL))
    assert config_digest(validated(changed({"privacy.epsilon": 1}))) == config_digest(load_config(MINIMAL))


def _leaves(data, prefix=()):
    for key, value in data.items():
        if isinstance(value, dict) and (*prefix, key) != ("data", "partitions"):
            yield from _leaves(value, (*prefix, key))
        else:
            yield ".".join((*prefix, key))


OTHER_VALUES = {
    "data.path": "other",
    "data.table.format": "iceberg",
    "data.partitions": {"dt": "2026-11-21", "year": 2026},
    "data.client_id": "other",
    "data.features": ["embedding"],
    "data.on_invalid_rows": "fail",
    "data.name": "other",
    "server_data": {"path": "s.parquet"},
    "privacy.unit": "record",
    "privacy.delta": 1e-7,
    "privacy.allocation": "tuned",
    "clipping.center": "server_mean",
    "key_uri": None,
}


@pytest.mark.parametrize("name", sorted(set(_leaves(yaml_text.parse(FULL))) - {"algorithm", "experimental"}))
def test_digest_changes_with_every_setting(name):
    data = changed({"server_data": {"path": "server.parquet"}}, FULL)
    before = config_digest(validated(data))
    *sections, key = name.split(".")
    other = copy.deepcopy(data)
    section = other
    for each in sections:
        section = section[each]
    numeric = section[key] * 0.9 if isinstance(section[key], float) else None
    section[key] = OTHER_VALUES.get(name, numeric or (0.9 if section[key] == 1 else 30))
    assert config_digest(validated(other)) != before


def test_digest_changes_with_the_order_of_the_features():
    reordered = validated(changed({"data.features": ["hours", "age"]}))
    assert config_digest(reordered) != config_digest(load_config(MINIMAL))


def test_configs_are_frozen_and_travel():
    config = load_config(FULL)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        config.n_clusters = 3
    assert pickle.loads(pickle.dumps(config)) == config


def test_construction_in_python():
    parts = {name: getattr(load_config(MINIMAL), name) for name in FedDPKMeansFit.model_fields}
    config = FedDPKMeansFit(**(parts | {"lloyd": LloydConfig(steps=1), "n_clusters": 3}))
    assert config.lloyd.steps == 1
    assert DataConfig(path="lake", features=["a"]).features == ("a",)
    with pytest.raises(ConfigError, match=r"data\.client_id is required for privacy\.unit client"):
        FedDPKMeansFit(**(parts | {"privacy": load_config(FULL).privacy}))


def test_python_code_is_refused_in_the_sentence_of_the_job():
    with pytest.raises(ConfigError) as caught:
        DataConfig(path="lake", feature=["age"])
    assert str(caught.value) == "feature is not a setting; did you mean features?"
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)
    with pytest.raises(ConfigError) as caught:
        load_config("algorithm: feddp_kmeans")
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)


def _sections(model):
    yield model
    for field in model.model_fields.values():
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
                yield from _sections(kind)


@pytest.mark.parametrize("model", list(dict.fromkeys(each for fit in FITS.values() for each in _sections(fit))))
def test_every_setting_says_what_to_give(model):
    for name, field in model.model_fields.items():
        assert field.description, name
        assert not field.description.endswith("."), name
        assert model.model_config["extra"] == "forbid"


WRONG_MASKS = [
    ({"masked": {"threshold": 3}}, "trust must be masked if there is a masked section"),
    (
        {"trust": "masked", "key_uri": "k", "masked": {"secret_uri": "k"}},
        "masked.secret_uri must differ from",
    ),
    ({"trust": "masked", "masked": {"scheme": "pairwise"}}, "masked.threshold must be at least 2 for scheme pairwise"),
    (
        {"trust": "masked", "masked": {"one_message": True}},
        "masked.one_message isn't supported for scheme shared_secret; leave it out, or set masked.scheme: pairwise.",
    ),
    ({"trust": "masked", "masked": {"dropout": 1.0}}, "masked.dropout must be less than 1, got 1.0; give the largest"),
    ({"trust": "blind"}, "trust must be 'central' or 'masked', got 'blind'; give central where"),
]


@pytest.mark.parametrize(("changes", "start"), WRONG_MASKS)
def test_masks_that_do_not_fit_are_refused(changes, start):
    assert message(changes).startswith(start)


PUBLISHED = "experimental: true" + MINIMAL.replace("clipping: {norm: server_radius}", "preset: published")
LETTER = "experimental: true" + MINIMAL.replace("1.0e-6}", "1.0e-6, allocation: paper}").replace(
    "norm: server_radius}", "center: none, norm: server_radius}\nfeddp_kmeans: {space: subspace}"
)


def test_the_published_preset_is_the_letter_setting_by_setting():
    """And without guards, so that a job with these settings is another one."""
    preset, letter = load_config(PUBLISHED), load_config(LETTER)
    assert preset.model_dump() == letter.model_dump() | {"preset": "published"}
    assert (preset.as_printed, letter.as_printed) == (True, False)
    assert config_digest(preset) != config_digest(letter)
    assert load_config(PUBLISHED.replace("feddp_kmeans", "auto")).privacy.allocation is Allocation.PAPER


def test_what_the_paper_leaves_open_stays_open_in_the_preset():
    config = load_config(PUBLISHED + "clipping: {norm: 3.0}\nlloyd: {steps: 2}\nfeddp_kmeans: {restarts: 20}\n")
    assert (config.clipping.norm, config.clipping.center) == (3.0, ClippingCenter.NONE)
    assert (config.lloyd.steps, config.feddp_kmeans.restarts, config.as_printed) == (2, 20, True)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("clipping: {norm: 3.0, center: server_mean}", "clipping.center must be none for preset published, got server"),
        ("feddp_kmeans: {space: full}", "feddp_kmeans.space must be subspace for preset published, got full"),
        ("clipping: {norm: private}", "clipping.norm must be server_radius or a number for preset published"),
    ],
)
def test_what_the_paper_prints_otherwise_is_refused_beside_the_preset(more, message):
    with pytest.raises(ConfigError, match=message):
        load_config(f"{PUBLISHED}{more}\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1.0e-6}", "1.0e-6, allocation: tuned}", "privacy.allocation must be paper for preset published, got tuned"),
        ("server_data: {path: server.parquet}", "clipping: {norm: 3.0}", "server_data is required for preset"),
        ("feddp_kmeans", "central_tree", "preset isn't supported for algorithm central_tree"),
        ("preset: published", "preset: printed\nclipping: {norm: 3.0}", "preset must be"),
    ],
)
def test_a_preset_of_something_else_is_refused(old, new, message):
    with pytest.raises(ConfigError, match=message):
        load_config(PUBLISHED.replace(old, new))


def test_sections_that_not_all_jobs_have_are_listed():
    fields = AnyFit.model_fields.keys()
    found = {name: algorithm for algorithm, fit in FITS.items() for name in fit.model_fields.keys() - fields}
    assert found == OWN_SECTIONS
