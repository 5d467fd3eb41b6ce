"""Settings of a profile: what is refused, in which words, and what follows from the rest."""

import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.profile.config import ProfileConfig, load_profile_config
from dapple_dp.schemas.trusted_zone.job_configs import load_assign_config

AGE = {"lower": 17, "upper": 90, "percentiles": [25, 50, 75]}


def settings(unit="record", **profile):
    return {
        "model": "fit",
        "data": {"path": "lake", "features": "x", "client_id": "owner", "public_rows": 5000},
        "privacy": {"unit": unit, "epsilon": 1.0, "delta": 1e-6},
        "profile": profile,
    }


def load(found):
    return load_profile_config(yaml.safe_dump(found))


def test_a_whole_profile():
    config = load(
        settings(
            "client",
            numeric={"age": AGE},
            categorical={"job": {}, "own": {"values": [True, False]}},
            max_rows_per_client=4,
        )
    )
    assert config.by_client
    assert config.unit_rows == 4
    assert config.rate == 1.0
    assert config.profile.numeric["age"].percentiles == (25.0, 50.0, 75.0)
    assert config.profile.categorical["job"].texts is None
    assert config.profile.categorical["own"].texts == ("true", "false")


def test_the_rate_is_that_of_public_numbers():
    assert load(settings(sampling_rate=0.25)).rate == 0.25
    assert load(settings(max_rows=500)).rate == 0.1
    assert load(settings(max_rows=10_000)).rate == 1.0
    assert load(settings("client", max_rows=5000, max_rows_per_client=4)).rate == 0.25


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            settings(numeric={"age": {"lower": 90, "upper": 17}}),
            r"profile\.numeric\.age\.upper must be clearly greater than lower, 90, got 17; give public bounds\.",
        ),
        (settings(numeric={"age": {"lower": 0, "upper": 5e-324}}), r"upper must be clearly greater than lower, 0, got"),
        (settings(numeric={"age": {"lower": 0, "upper": 1e308}}), r"upper must be clearly greater than lower, 0, got"),
        (
            settings(numeric={"age": {"lower": 17}}),
            r"profile\.numeric\.age\.upper is required; give the public upper bound",
        ),
        (
            settings(numeric={"age": AGE | {"percentile": [5]}}),
            r"profile\.numeric\.age\.percentile is not a setting; did you mean percentiles\?",
        ),
        (
            settings(numeric={"age": AGE | {"percentiles": [50, 25]}}),
            r"profile\.numeric\.age\.percentiles must be a list of at most 99 ascending numbers .*, got \[50, 25\]",
        ),
        (settings(numeric={"age": AGE | {"percentiles": [0]}}), "ascending numbers between 0 and 100"),
        (settings(numeric={"age": AGE | {"percentiles": [True]}}), "ascending numbers between 0 and 100"),
        (
            settings(numeric={"age": 3}),
            r"profile\.numeric\.age must be a section of settings, got 3; give lower and upper and percentiles\.",
        ),
        (
            settings(categorical={"job": {"values": []}}),
            r"profile\.categorical\.job\.values must be null or a list of 1 to 10000 distinct",
        ),
        (settings(categorical={"job": {"values": ["a", 1]}}), "distinct strings, distinct integers or booleans"),
        (settings(categorical={"job": {"values": ["a", "a"]}}), "distinct strings, distinct integers or booleans"),
        (
            settings(numeric={"age": AGE}, categorical={"age": {}}),
            r"profile\.categorical and profile\.numeric must not share columns, got 'age' in both",
        ),
        (
            settings(categorical={"owner": {}}),
            r"profile must not describe data\.client_id, got 'owner'; remove it\.",
        ),
        (
            settings("client"),
            r"profile\.max_rows_per_client is required for privacy\.unit client; give the number",
        ),
        (
            settings(max_rows_per_client=3),
            r"profile\.max_rows_per_client isn't supported for privacy\.unit record, got 3",
        ),
        (settings(sampling_rate=0), r"profile\.sampling_rate must be greater than 0, got 0"),
        (settings(sampling_rate=1.5), r"profile\.sampling_rate must be at most 1, got 1\.5; give the public share"),
        (
            settings(sampling_rate=0.5, max_rows=10),
            r"profile\.max_rows and profile\.sampling_rate must not be given together, got both",
        ),
        (
            settings() | {"privacy": {"unit": "record", "epsilon": 1.0}},
            r"privacy\.delta is required; give the total delta of the profile",
        ),
        (
            {key: value for key, value in settings().items() if key != "privacy"},
            r"privacy is required; give a section with unit, epsilon and delta\.",
        ),
        (settings() | {"profil": {}}, r"profil is not a setting; did you mean profile\?"),
        (
            settings() | {"data": {"path": "lake", "features": "x", "max_rows_per_client": 3, "client_id": "owner"}},
            r"data\.max_rows_per_client isn't supported in a profile, got 3",
        ),
        (
            settings(max_rows=10) | {"data": {"path": "lake", "features": "x"}},
            r"data\.public_rows is required for profile\.max_rows; give the number of rows",
        ),
        (
            settings("client", max_rows_per_client=3) | {"data": {"path": "lake", "features": "x"}},
            r"data\.client_id is required for privacy\.unit client",
        ),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(found, message):
    with pytest.raises(ConfigError, match=message) as raised:
        load(found)
    assert "\n" not in str(raised.value)


def test_a_config_survives_its_dump():
    config = load(
        settings("client", numeric={"age": AGE}, categorical={"job": {"values": [1, 2]}}, max_rows_per_client=4)
    )
    assert ProfileConfig.model_validate(config.model_dump(mode="json")) == config


def test_one_file_may_serve_all_jobs_on_a_model():
    found = settings(numeric={"age": AGE}) | {"assign": {}, "evaluate": {}}
    assert load(found).profile.numeric
    assert load_assign_config(yaml.safe_dump(found)).model == "fit"
