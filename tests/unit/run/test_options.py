"""The command line: what is Dapple's, what is Beam's, and what is a mistake."""

import copy
import pickle
import re

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
)
from apache_beam.transforms import environments

from dapple_dp.pipelines.run import options, round_driver
from dapple_dp.schemas.errors import ConfigError

NEEDED = ["--config", "job.yaml", "--output", "out"]


def test_own_flags_are_parsed():
    parsed = options.parse_job("fit", ["--config=job.yaml", "--output", "lake/out/", "--run_id=2026-11-20_a.1"])
    assert (parsed.config, parsed.output, parsed.run_id) == ("job.yaml", "lake/out", "2026-11-20_a.1")


def test_the_local_runner_is_the_default():
    assert options.parse_job("fit", NEEDED).beam.view_as(StandardOptions).runner == "FnApiRunner"
    assert options.beam_options([]).view_as(StandardOptions).runner == "FnApiRunner"


def test_stores_know_the_options_before_there_is_a_pipeline():
    beam = options.beam_options(["--s3_endpoint_url=http://127.0.0.1:1"])
    assert FileSystems._pipeline_options is beam


def test_beam_flags_pass_through():
    flags = ["--runner=PrismRunner", "--direct_num_workers", "2", "--no_save_main_session", "--streaming"]
    beam = options.parse_job("fit", NEEDED + flags).beam
    assert beam.view_as(StandardOptions).runner == "PrismRunner"
    assert beam.view_as(StandardOptions).streaming is True
    assert beam.view_as(DirectOptions).direct_num_workers == 2
    assert beam.view_as(SetupOptions).save_main_session is False


@pytest.mark.parametrize("runner", ["DataflowRunner", "FlinkRunner", "PortableRunner", "PrismRunner"])
def test_nothing_of_the_launcher_is_staged(runner):
    """Neither what its session holds, unless it is asked for, nor the list of its packages with their places."""
    given = options.beam_options([f"--runner={runner}", "--experiments=another"])
    assert given.view_as(SetupOptions).save_main_session is False
    assert environments.python_sdk_dependencies(given) == []
    assert given.view_as(DebugOptions).lookup_experiment("another")
    given = options.beam_options([f"--runner={runner}", "--save_main_session"])
    assert given.view_as(SetupOptions).save_main_session is True


def test_flags_are_parsed_once_for_a_class_of_options(monkeypatch):
    parsed = []
    own = PipelineOptions.__init__
    monkeypatch.setattr(
        PipelineOptions, "__init__", lambda self, *words: parsed.append(type(self)) or own(self, *words)
    )
    given = options.beam_options(["--direct_num_workers=2"])
    parsed.clear()
    for _ in range(3):
        assert given.view_as(DirectOptions).direct_num_workers == 2
        assert given.view_as(SetupOptions).save_main_session is None
    assert parsed == [DirectOptions, SetupOptions]


def test_an_option_set_in_one_view_is_in_all_views_and_not_in_other_options():
    """Beam's own options behave so: pipelines copy them and change the copy."""
    given, other = options.beam_options(["--streaming"]), options.beam_options(["--streaming"])
    given.view_as(StandardOptions).streaming = False
    copied = copy.deepcopy(given)
    pickled = pickle.loads(pickle.dumps(given))
    for each in (given, copied, pickled):
        assert each.view_as(StandardOptions).streaming is False
        assert each.get_all_options()["streaming"] is False
    given.view_as(StandardOptions).streaming = True
    assert [each.view_as(StandardOptions).streaming for each in (other, copied, pickled)] == [True, False, False]


@pytest.mark.parametrize("missing", ["--config", "--output"])
def test_a_missing_flag_is_named(missing):
    start = NEEDED.index(missing)
    words = NEEDED[:start] + NEEDED[start + 2 :]
    with pytest.raises(ConfigError, match=f"the following arguments are required: {missing}"):
        options.parse_job("fit", words)


@pytest.mark.parametrize(
    ("flag", "remedy"),
    [
        ("--runer=X", "did you mean --runner"),
        ("--confg=other.yaml", "did you mean --config"),
        ("--conf=other.yaml", "did you mean --config"),
        ("--ouput", "did you mean --output"),
        ("--runid=1", "did you mean --run_id"),
        ("--direct_num_worker=2", "did you mean --direct_num_workers"),
        ("--zzzqqq", "remove it"),
        ("stray", "remove it"),
    ],
)
def test_an_unknown_flag_is_an_error_with_the_nearest_known_one(flag, remedy):
    name = flag.split("=")[0]
    with pytest.raises(ConfigError, match=f"^{name} is not a flag of Dapple or Beam; {remedy}"):
        options.parse_job("fit", [*NEEDED, flag])


def test_the_value_of_an_unknown_flag_is_not_repeated():
    with pytest.raises(ConfigError) as refused:
        options.parse_job("fit", [*NEEDED, "--pasword=hunter2"])
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("flag", ["--run_id", "--config"])
def test_a_flag_is_not_the_value_of_another(flag):
    with pytest.raises(ConfigError, match=f": {flag} needs a value, got the flag --pasword\\.$"):
        options.parse_job("fit", [*NEEDED, flag, "--pasword=hunter2"])


def test_a_beam_flag_of_the_wrong_type_is_refused():
    with pytest.raises(ConfigError, match="--direct_num_workers: invalid int value"):
        options.parse_job("fit", [*NEEDED, "--direct_num_workers=two"])


@pytest.mark.parametrize("run_id", ["", ".hidden", "..", "a/b", "a b", "a\n", "a:b", "../up"])
def test_a_run_id_that_is_no_file_name_is_refused(run_id):
    with pytest.raises(ConfigError, match=f"run_id must be letters.* got {re.escape(repr(run_id))}"):
        options.parse_job("fit", [*NEEDED, f"--run_id={run_id}"])


def test_default_run_ids_differ():
    found = {options.parse_job("fit", NEEDED).run_id for _ in range(3)}
    assert len(found) == 3
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", run_id) for run_id in found)


def test_root_stays_root():
    assert options.parse_job("fit", ["--config", "job.yaml", "--output", "/"]).output == "/"


def test_a_config_file_is_read_as_text(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("name: café", encoding="utf-8")
    assert options.read_text(str(path)) == "name: café"


def test_a_config_file_that_is_missing_or_no_text_is_refused(tmp_path):
    binary = tmp_path / "job.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (binary, tmp_path / "missing.yaml"):
        with pytest.raises(ConfigError, match=r"--config must be a readable YAML file, got .*; check the path"):
            options.read_text(str(path))


@pytest.mark.parametrize(
    "runner",
    [
        "FlinkRunner",
        "PortableRunner",
        "flinkrunner",
        "PORTABLERUNNER",
        "apache_beam.runners.portability.flink_runner.FlinkRunner",
    ],
)
def test_more_rounds_than_flink_plans_are_refused(runner):
    """Its optimizer was seen at work on 31 rounds for minutes, without an end; 24 took one minute in all."""
    on_a_cluster = options.beam_options([f"--runner={runner}"])
    round_driver.check_rounds(on_a_cluster, round_driver.MOST_ROUNDS_ON_FLINK, "lloyd.steps")
    with pytest.raises(ConfigError, match=r"lloyd\.steps must leave at most 22 rounds .* got 23; lower it"):
        round_driver.check_rounds(on_a_cluster, round_driver.MOST_ROUNDS_ON_FLINK + 1, "lloyd.steps")


@pytest.mark.parametrize(
    "flags", [[], ["--runner=PrismRunner"], ["--runner=DirectRunner"], ["--runner=DataflowRunner"]]
)
def test_other_runners_take_any_number_of_rounds(flags):
    round_driver.check_rounds(options.beam_options(flags), 200, "lloyd.steps")


@pytest.mark.parametrize(
    ("flags", "wanted", "n_bytes", "rounds"),
    [
        ([], None, round_driver.LARGE_BYTES - 1, 40),
        ([], None, round_driver.LARGE_BYTES, 1),
        ([], 50, round_driver.LARGE_BYTES, 40),
        (["--runner=FlinkRunner"], None, round_driver.LARGE_BYTES, 10),
        (["--runner=FlinkRunner"], 4, 0, 4),
        (["--runner=DataflowRunner"], None, round_driver.LARGE_BYTES, 40),
    ],
)
def test_rounds_of_a_pipeline_follow_from_the_job_the_runner_and_the_rows(flags, wanted, n_bytes, rounds):
    assert round_driver.rounds_of_a_graph(options.beam_options(flags), 40, wanted, n_bytes) == rounds


def test_chunks_of_rounds_are_refused_before_a_run_is_charged():
    """Rounds of one chunk are one pipeline; fewer rounds than a chunk takes are no more than there are."""
    from types import SimpleNamespace as Some

    from dapple_dp.pipelines.clustered_fl.job import JOB

    flags = Some(run_id="r", beam=options.beam_options(["--runner=FlinkRunner"]))

    def planned(chunk, rounds):
        settings = Some(algorithm="r_dpcfl", chunks=Some(rounds=chunk), training=Some(rounds=rounds))
        return JOB.plan(Some(options=flags, settings=settings))

    assert planned(1000, 22).training.rounds == 22
    with pytest.raises(ConfigError, match=r"chunks\.rounds must leave at most 22 rounds .* got 23"):
        planned(23, 100)
