"""An unsupported choice is refused without the word, says its tier in the schema, and is all on one page."""

import itertools

import pytest
from pydantic import Field

from dapple_dp import DPKMeans
from dapple_dp.pipelines.command.help_pages import job_page
from dapple_dp.pipelines.command.job_schema import job_schema
from dapple_dp.pipelines.command.words import WORDS, spelled
from dapple_dp.pipelines.jobs.forewarnings import forewarnings
from dapple_dp.pipelines.kmeans.plan.fingerprint import settings_digest
from dapple_dp.schemas.choices import TIER_KEY, TIERS_KEY, Algorithm, Choice, Runner, Tier
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.any_fit import AnyFit
from dapple_dp.schemas.kmeans.fit_config import FITS, FedDPKMeansFit, load_config, validated
from dapple_dp.schemas.kmeans.sections.privacy_config import PrivacyConfig
from dapple_dp.schemas.settings import tiers, yaml_text
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.section import JobSettings, Section, Whole
from dapple_dp.schemas.trusted_zone.sweep_config import load_sweep_config
from docs import generated
from tests.scenes import lake
from tests.seams import fits
from tests.seams.places import Place

JOB = """
algorithm: dp_lloyd
data: {path: lake, features: [age, hours]}
n_clusters: 5
privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}
clipping: {norm: domain, center: none}
dp_lloyd: {domain: [0, 100], VARIED}
"""
WORD = "experimental: true"
REFUSAL = "^{} is {}; write experimental: true into the job to use it, or choose what is supported"


FIT_KINDS = {"AutoFit", *(kind.__name__ for kind in FITS.values())}


def choices(kind=Choice):
    """All lists of words that settings may hold."""
    return [each for below in kind.__subclasses__() for each in (below, *choices(below))]


@pytest.mark.parametrize(
    ("varied", "name", "tier"),
    [
        ("init: central_tree", "dp_lloyd.init: central_tree", Tier.EXPERIMENTAL),
        ("init: feddp_init", "dp_lloyd.init: feddp_init", Tier.EXPERIMENTAL),
    ],
)
def test_unsupported_settings_are_refused_without_the_word(varied, name, tier):
    text = JOB.replace("VARIED", varied).replace("n_clusters", "server_data: {path: s.parquet}\nn_clusters")
    with pytest.raises(ConfigError, match=REFUSAL.format(name, tier)):
        load_config(text)
    assert [tuple(each) for each in tiers.unsupported(load_config(f"{WORD}{text}"))] == [(name, tier)]


def test_a_default_that_is_written_out_needs_no_word():
    config = load_config(JOB.replace("VARIED", "init: best, steps: auto"))
    assert not list(tiers.unsupported(config))
    assert not list(tiers.unsupported(load_config(f"{WORD}{JOB.replace(', VARIED', '')}")))


def test_the_word_is_no_part_of_what_a_run_is_known_by():
    """A run that began before there were tiers goes on when the word is added."""
    plain, worded = (load_config(f"{word}{JOB.replace(', VARIED', '')}") for word in ("", WORD))
    assert config_digest(plain) == config_digest(worded)
    assert settings_digest(plain) == settings_digest(worded)
    assert validated(worded.model_dump(mode="json")) == worded


def test_code_that_makes_a_job_is_asked_for_the_word_too():
    config = validated(lake.job("rows", None, privacy__allocation="paper"))
    parts = {name: getattr(config, name) for name in FedDPKMeansFit.model_fields}
    assert FedDPKMeansFit(**parts) == config
    with pytest.raises(ConfigError, match=REFUSAL.format("privacy.allocation", "paper only")):
        FedDPKMeansFit(**(parts | {"experimental": False}))


def test_a_sweep_asks_for_the_word_of_the_method_that_needs_it():
    base = JOB.replace(", VARIED", "") + "sweep: {epsilons: [1], seeds: 1, methods: {here: {}, other: METHOD}}\n"
    with pytest.raises(
        ConfigError, match=r"^sweep\.methods\.other: dp_lloyd.init: central_tree is experimental; write"
    ):
        load_sweep_config(base.replace("METHOD", "{dp_lloyd: {init: central_tree}}"))
    found = load_sweep_config(base.replace("METHOD", "{experimental: true, dp_lloyd: {init: central_tree}}"))
    assert [each.config.experimental for each in found.cells] == [False, True]
    assert found.experimental


def test_the_estimator_asks_for_it_in_its_own_words():
    given = {"epsilon": 1.0, "delta": 1e-6, "domain": (0, 1), "settings": {"dp_lloyd": {"init": "central_tree"}}}
    rows = [[0.1], [0.9]]
    with pytest.raises(
        ConfigError, match=r"give settings=\{'experimental': True\} to use it, or choose what is supported"
    ):
        DPKMeans(1, **given).fit(rows)


@pytest.mark.parametrize("name", WORDS)
def test_a_word_of_the_command_has_the_tier_of_its_jobs(name):
    """Help and schema say it without the models; an example without the word shows that it is true."""
    word = WORDS[name]
    given = yaml_text.parse(word.example)
    assert ("experimental" in given) is (word.tier is not Tier.SUPPORTED)
    word.loaded(word.example)
    if word.tier is not Tier.SUPPORTED:
        with pytest.raises(ConfigError, match=f" is {word.tier}; write experimental: true"):
            word.loaded(word.example.replace("experimental: true\n", ""))
    assert job_schema(name)[TIER_KEY] == str(word.tier)
    assert word.line in str(job_page(name, lambda: None).help)


@pytest.mark.parametrize(
    ("runner", "refused"),
    [
        *((each.value, each.tier is not Tier.SUPPORTED) for each in Runner),
        ("flinkrunner", False),
        ("apache_beam.runners.direct.DirectRunner", False),
        ("SparkRunner", True),
        (None, False),
    ],
)
def test_a_runner_on_which_nobody_has_run_needs_the_word(runner, refused):
    tiers.check_runner(runner, True)
    if refused:
        with pytest.raises(ConfigError, match=REFUSAL.format(f"--runner={runner}", "experimental")):
            tiers.check_runner(runner, False)
    else:
        tiers.check_runner(runner, False)


def test_a_job_is_refused_on_such_a_runner_before_it_reads_a_row(tmp_path):
    settings = lake.job(lake.write_lake(tmp_path / "lake", lake.mixture(60)), None) | {"experimental": False}
    found = lake.run_job(settings, tmp_path, "--runner=DataflowRunner", "--project=p", "--region=r")
    assert (found.code, "--runner=DataflowRunner is experimental; write" in found.err) == (2, True), found.err


def marks(schema):
    """Words and settings that a schema says a tier of, wherever they are."""
    if isinstance(schema, list):
        yield from itertools.chain.from_iterable(map(marks, schema))
    if isinstance(schema, dict):
        yield from schema.get(TIERS_KEY, {})
        for name, each in schema.get("properties", {}).items():
            yield from [name] if isinstance(each, dict) and each.get(TIER_KEY) else []
        for each in schema.values():
            yield from marks(each)


def test_schema_and_page_say_every_tier():
    said = {each for name in WORDS for each in marks(job_schema(name))}
    page = generated.tiers_page()
    for each in choices():
        for word, tier in each.tiers().items():
            assert word in said or each is Runner, (each, word)
            assert f"{word}` | {tier} |" in page, (each, word)
    assert {"allocation"} <= said
    assert "All commands and runners are supported but these" in page
    for name, word in WORDS.items():
        assert (f"| `{spelled(name)}` | {word.tier} |" in page) == (word.tier is not Tier.SUPPORTED), name


def test_words_are_what_they_were():
    assert Algorithm("dp_medians") is Algorithm.DP_MEDIANS == "dp_medians"
    assert (f"{Algorithm.DP_MEDIANS}", Algorithm.DP_LLOYD.tier) == ("dp_medians", Tier.SUPPORTED)
    assert "experimental" in AnyFit.model_fields


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place"))


def test_rows_of_the_table_have_the_word_where_they_need_it(place):
    """The table of fits says which levels are beyond what is supported."""
    for row in fits.TABLE.rows():
        given = fits.settings(row, place) | ({"recurring": None} if row["start"] == "fresh" else {})
        # What `auto` chooses leaves out the sections of others, and a sweep has methods.
        if row["start"] == "fresh" and row["algorithm"] != "auto" and row["command"] != "sweep":
            assert bool(list(tiers.unsupported(validated(given)))) is given["experimental"], row


def test_a_feature_enters_when_another_leaves():
    """Properties of the schema of a fit: those of all its algorithms once, and those of its sections."""
    sections = {name: each.get("properties", {}) for name, each in job_schema("fit")["$defs"].items()}
    fits_own = set().union(*(each for name, each in sections.items() if name in FIT_KINDS))
    assert len(fits_own) + sum(len(each) for name, each in sections.items() if name not in FIT_KINDS) <= 211


class Rounds(Section):
    """A section with a setting that is about to go."""

    number: Whole = Field(
        default=1, json_schema_extra=tiers.deprecated("use steps"), description="the number of rounds"
    )
    steps: Whole = Field(default=1, description="the number of steps")


class Job(JobSettings):
    """A job that has the section."""

    rounds: Rounds = Field(default=Rounds(), description="a section")
    privacy: PrivacyConfig = Field(description="a section")


def test_a_job_that_names_a_deprecated_setting_is_warned_and_runs():
    privacy = {"unit": "record", "epsilon": 1.0, "delta": 1e-6}
    assert forewarnings(Job(privacy=privacy, rounds={"steps": 2})) == ()
    assert forewarnings(Job(privacy=privacy, rounds={"number": 1})) == (
        "rounds.number will be removed in the next version: use steps",
    )
    found = Job.model_json_schema()["$defs"]["Rounds"]["properties"]["number"]
    assert (found["deprecated"], found[tiers.INSTEAD_KEY]) == (True, "use steps")
