"""The command knows the same of a job before it imports it as the job says of itself."""

import importlib
import json
import pathlib

import pytest

from dapple_dp.pipelines.command import help_pages, job_schema, settings
from dapple_dp.pipelines.command import main as command
from dapple_dp.pipelines.command.words import WORDS, import_name
from dapple_dp.pipelines.jobs.job import JobChoice
from dapple_dp.schemas import errors
from dapple_dp.schemas.errors import DappleError
from tests.scenes import json_schema
from tests.unit.kmeans.test_config_digests import JOBS as FIT_JOBS

ROOT = pathlib.Path(__file__).resolve().parents[3]
WRONG = (
    "",
    "x",
    "[]",
    "{algorithm: optimal}",
    "{algorithm: optimal, n_clusters: 3, data: {}}",
    "{key_uri: 3}",
    "a: 1\na: 2",
)


def record(name, text):
    job = importlib.import_module(command.JOBS[name]).JOB
    return job.choose(text) if isinstance(job, JobChoice) else job


def loaded(load, text):
    try:
        return load(text)
    except DappleError as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", WORDS)
def test_flags_are_those_of_the_job(name):
    assert WORDS[name].flags == importlib.import_module(command.JOBS[name]).JOB.flags


@pytest.mark.parametrize("name", WORDS)
def test_settings_are_checked_as_the_job_checks_them(name):
    word = WORDS[name]
    for text in (*WRONG, word.example, *(each.example for each in WORDS.values())):
        assert loaded(word.loaded, text) == loaded(lambda text: record(name, text).load(text), text)


@pytest.mark.parametrize("name", WORDS)
def test_its_example_is_a_job(name):
    assert WORDS[name].loaded(WORDS[name].example) is not None


@pytest.mark.parametrize("name", WORDS)
def test_the_command_prints_the_schema_of_the_settings(name, capsys):
    assert command.main(["tools", "schema", name]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == job_schema.job_schema(name)
    assert printed == job_schema.text_of(job_schema.job_schema(name))


@pytest.mark.parametrize("name", WORDS)
def test_the_schema_takes_the_example_and_no_misspelled_setting(name):
    schema = job_schema.job_schema(name)
    example = json_schema.plain(WORDS[name].example)
    assert json_schema.accepts(schema, example)
    assert not json_schema.accepts(schema, [example])
    if not WORDS[name].section:
        assert not json_schema.accepts(schema, example | {"n_clusers": 3})


@pytest.mark.parametrize("name", FIT_JOBS)
def test_the_schema_of_fit_takes_fits(name):
    assert json_schema.accepts(job_schema.job_schema("fit"), json_schema.plain(FIT_JOBS[name]))


@pytest.mark.parametrize(
    "text",
    [
        "{algorithm: central_tree, tree: {radius: 9.0}}",
        "{algorithm: central_tree, tree: {radius: 9.0}, clipping: {client_rows: 4}}",
    ],
)
def test_the_schema_of_fit_knows_that_a_tree_bounds_rows(text):
    rest = "{data: {path: lake, features: x}, n_clusters: 3, privacy: {unit: record, epsilon: 1.0, delta: 1e-6}}"
    job = json_schema.plain(rest) | json_schema.plain(text)
    assert settings.fit(json.dumps(job)).tree.radius == 9.0
    assert json_schema.accepts(job_schema.job_schema("fit"), job)


def test_models_and_loaders_are_imported_without_beam():
    for word in WORDS.values():
        for path in (word.load, *word.models):
            assert import_name(path) is not None
            assert path.startswith(("dapple_dp.schemas.", "dapple_dp.pipelines.command.settings:"))


def test_every_exit_code_of_an_error_is_explained():
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DappleError)]
    assert {kind.exit_code for kind in kinds} | {0, 130} == set(help_pages.EXIT_CODES)
