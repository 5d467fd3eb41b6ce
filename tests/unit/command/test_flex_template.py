"""The Flex Template's metadata: as the schema says, by Google's rules, and good for a real run."""

import enum
import json
import pathlib
import re

import pytest

from pipelines.command import flex_template
from schemas.choices import Algorithm, Auto
from schemas.kmeans.fit_config import validated
from tests.scenes import lake

FILE = pathlib.Path(__file__).resolve().parents[3] / "schedule" / "flex_template.json"
TEMPLATE_FIELDS = {"name", "description", "parameters"}
PARAMETER_FIELDS = {
    "name": str,
    "label": str,
    "helpText": str,
    "isOptional": bool,
    "regexes": list,
    "paramType": str,
    "enumOptions": list,
}
"""Of Dataflow's v1b3 `ParameterMetadata`, those that are used; the first three are required there."""
PARAMETER_TYPES = {"TEXT", "GCS_WRITE_FOLDER", "ENUM", "BOOLEAN", "NUMBER"}
"""Of Dataflow's v1b3 `ParameterType`, those that are used."""


class Docs(enum.Enum):
    """Values of parameters, to be taken and to be refused by their regexes."""

    RUN_ID = ("run_id", ["2026-11-20", "a.b_c"], ["", ".x", "a b", "a/b"])
    OUTPUT = ("output", ["gs://bucket/runs/1"], ["/tmp/x", "gs://", "gs://a b"])
    EPSILON = ("privacy_epsilon", ["1", "0.5", "1.0e-6", ".5", "2."], ["", "e", "1e", "one", "1 2", "."])
    STEPS = ("lloyd_steps", ["0", "12"], ["-1", "1.5", ""])
    KEEP = ("keep_staging", ["true", "false"], ["True", "yes", ""])


OPEN_SHARES = {"clipping_norm": "2", "privacy_shares": "auto", "plan_assumed_rows": "3000"}


@pytest.fixture(scope="module")
def template():
    return json.loads(FILE.read_text())


def parameter(template, name):
    return next(each for each in template["parameters"] if each["name"] == name)


def test_the_file_is_what_the_schema_gives(template):
    """If it fails: `python -m pipelines.command.flex_template > schedule/flex_template.json`."""
    assert FILE.read_text() == json.dumps(flex_template.metadata(), indent=2) + "\n"


def test_it_has_the_fields_of_dataflow(template):
    assert set(template) == TEMPLATE_FIELDS
    for each in template["parameters"]:
        assert set(each) <= set(PARAMETER_FIELDS)
        assert {"name", "label", "helpText"} <= set(each)
        assert all(isinstance(value, PARAMETER_FIELDS[name]) for name, value in each.items())
        assert all(each[name] for name in ("name", "label", "helpText"))
        assert each["paramType"] in PARAMETER_TYPES
        assert ("enumOptions" in each) == (each["paramType"] == "ENUM")
        assert all(set(option) == {"value", "label"} for option in each.get("enumOptions", []))


def test_names_are_flags_and_unique(template):
    names = [each["name"] for each in template["parameters"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


def test_what_a_job_must_have_is_required(template):
    required = {each["name"] for each in template["parameters"] if not each.get("isOptional", False)}
    assert required == {
        "output",
        "algorithm",
        "data_path",
        "data_features",
        "n_clusters",
        "privacy_unit",
        "privacy_epsilon",
        "privacy_delta",
        "clipping_norm",
    }


def test_enums_list_every_choice(template):
    options = parameter(template, "algorithm")["enumOptions"]
    assert [each["value"] for each in options] == [each.value for each in Algorithm]


@pytest.mark.parametrize("case", Docs)
def test_regexes_tell_values_apart(template, case):
    name, good, bad = case.value
    regexes = [re.compile(text) for text in parameter(template, name)["regexes"]]
    assert all(each.match(value) for each in regexes for value in good)
    assert not any(all(each.match(value) for each in regexes) for value in bad)


def test_all_regexes_compile_and_stand_for_whole_values(template):
    for each in template["parameters"]:
        for text in each.get("regexes", []):
            re.compile(text)
            assert (text[0], text[-1]) == ("^", "$")
            assert not re.search(r"\\|\(\?", text)  # the egrep of POSIX has no more


def test_parameters_make_the_job():
    given = {
        "algorithm": "feddp_kmeans",
        "data_path": "gs://lake/rows",
        "data_features": "[age, hours]",
        "data_partitions": "{dt: 2026-11-20}",
        "server_data_path": "gs://lake/2026-11-20",
        "n_clusters": "{max: 20, choose: elbow}",
        "privacy_unit": "record",
        "privacy_epsilon": "1",
        "privacy_delta": "1e-6",
        "clipping_norm": "server_radius",
        "keep_staging": "true",
    }
    config = validated(flex_template.job_of(given))
    assert validated(flex_template.job_of(given | OPEN_SHARES)).privacy.shares is Auto.AUTO
    assert config.data.features == ("age", "hours")
    assert config.data.partitions == {"dt": "2026-11-20"}
    assert (config.n_clusters.max, config.privacy.epsilon, config.keep_staging) == (20, 1.0, True)
    assert config.quality is None


def test_every_setting_has_a_parameter():
    def leaves(data, path=()):
        for name, value in data.items():
            yield from leaves(value, (*path, name)) if isinstance(value, dict) and value else [(*path, name)]

    known = {each.path for each in flex_template.settings()}
    config = validated(lake.job("a", "b", "client", quality__share=0.1, recurring__previous="x", lloyd__steps=1))
    for path in leaves(config.model_dump(mode="json")):
        assert any(path == each[: len(path)] for each in known), path


def test_without_parameters_it_prints_the_metadata(capsys):
    assert flex_template.main([]) == 0
    assert json.loads(capsys.readouterr().out) == flex_template.metadata()
