"""Jobs that go on in a Flink cluster: found by the names of their runs, and canceled."""

import time

import pytest

from dapple_dp.pipelines.run import on_flink
from dapple_dp.pipelines.run.options import job_name, parse_job
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import InputError, RunnerError
from tests.scenes import lake
from tests.scenes.flink_jobs import canned_flink

PORTABLE = ("--config", "c", "--output", "o", "--runner=PortableRunner", "--job_endpoint=localhost:1")


@pytest.fixture
def flink():
    with canned_flink() as found:
        yield found


def test_only_jobs_of_dapple_that_are_not_over_are_found(flink):
    assert [job.id for job in on_flink.running_jobs(flink[0])] == ["a1", "a2"]


def test_a_run_is_distinguished_from_one_whose_id_differs_in_a_letter(flink):
    """Names have small letters only; another run must not be canceled for that."""
    (job,) = on_flink.running_jobs(f"http://{flink[0]}/", run=("fit", "Night-1"))
    assert job.id == "a2"
    assert on_flink.running_jobs(flink[0], run=("fit", "night")) == ()


@pytest.mark.parametrize("code", [202, 404, 409])
def test_a_job_is_canceled_and_one_that_is_over_left_alone(flink, code):
    flink[1].code = code
    on_flink.cancel(flink[0], on_flink.FlinkJob("a1", "dapple-fit-night-1", "RUNNING"))
    assert flink[1].canceled == ["/jobs/a1?mode=cancel"]


def test_a_cluster_that_does_not_answer_is_named(flink):
    flink[1].code = 500
    with pytest.raises(
        RunnerError, match=r"--flink_master must be the address of a Flink cluster, .* of 127\.0\.0\.1:"
    ):
        on_flink.cancel(flink[0], on_flink.FlinkJob("a1", "dapple-fit-night-1", "RUNNING"))
    with pytest.raises(RunnerError, match="--flink_master must be"):
        on_flink.running_jobs("127.0.0.1:1")


def test_what_speaks_no_http_is_no_cluster(flink):
    flink[1].speaks_http = False
    with pytest.raises(RunnerError, match="--flink_master must be the address of a Flink cluster"):
        on_flink.running_jobs(flink[0])


def test_jobs_of_clusters_are_named_by_their_runs():
    options = parse_job("fit", (*PORTABLE, "--run_id", "Night_1.b")).beam.get_all_options()
    assert options["job_name"] == job_name("fit", "Night_1.b")
    assert options["job_name"].startswith("dapple-fit-night-1-b-")
    assert parse_job("fit", (*PORTABLE, "--job_name", "mine")).beam.get_all_options()["job_name"] == "mine"
    assert parse_job("fit", PORTABLE[:4]).beam.get_all_options()["job_name"] is None


@pytest.mark.parametrize(
    "jobs",
    [
        (("a1", "dapple-fit-x\x1b[2J-00000000", "RUNNING"),),
        (("a1", "dapple-fit-night-1", "RUNNING"),),
        (("../a1", job_name("fit", "night-1"), "RUNNING"),),
    ],
    ids=["control characters", "no digest", "id that is a path"],
)
def test_a_name_that_dapple_did_not_make_is_of_no_run(flink, jobs):
    flink[1].jobs = jobs
    assert on_flink.running_jobs(flink[0]) == ()


@pytest.mark.parametrize("answer", [[], {}, {"jobs": 3}, {"jobs": [1]}, {"jobs": [{"jid": "a1"}]}])
def test_a_server_that_is_not_flink_is_reported(flink, answer, monkeypatch):
    monkeypatch.setattr(flink[1], "do_GET", lambda self: self._answer(200, answer))
    with pytest.raises(RunnerError, match="--flink_master must be the address of a Flink cluster"):
        on_flink.running_jobs(flink[0])


def test_whose_job_it_is_follows_from_the_whole_name():
    job = on_flink.FlinkJob("a1", job_name("clustered_fl", "a-b"), "RUNNING")
    assert job.is_of("a-b")
    assert not any(job.is_of(run) for run in ("a", "b", "A-b", "fl-a-b", "a-b-", "a_b", ""))


def test_a_job_that_does_not_end_is_reported(flink, monkeypatch):
    monkeypatch.setattr(on_flink, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(on_flink, "_SECONDS", 5.0)
    on_flink.stop(flink[0], on_flink.running_jobs(flink[0]))
    assert flink[1].canceled == ["/jobs/a1?mode=cancel", "/jobs/a2?mode=cancel"]
    flink[1].ends = False
    monkeypatch.setattr(on_flink.time, "monotonic", iter([0.0, 1.0, 9.0]).__next__)
    with pytest.raises(RunnerError, match=r"^dapple-fit-night-1-[0-9a-f]{8} still runs after it was canceled"):
        on_flink.stop(flink[0], on_flink.running_jobs(flink[0]))


ROUND = "CHAIN MapPartition (MapPartition at [3]Rounds/{}/{{Statistic, Aggregate}}) -> FlatMap (FlatMap at Output[0])"
"""As Flink names a task."""


def tasks(**states):
    return tuple((ROUND.format(label), state) for label, state in states.items())


@pytest.mark.parametrize(
    ("states", "reached"),
    [
        ({"Rows": "CREATED", "Mean": "CREATED", "Lloyd00": "CREATED"}, 0),
        ({"Rows": "RUNNING", "Mean": "CREATED", "Lloyd00": "CREATED"}, 3),
        ({"Rows": "FINISHED", "Mean": "RUNNING", "Lloyd00": "SCHEDULED"}, 4),
        ({"Rows": "FINISHED", "Mean": "FINISHED", "Lloyd00": "FINISHED"}, 5),
        ({"Lloyd001": "RUNNING"}, 0),
    ],
)
def test_the_round_follows_from_the_tasks_that_have_begun(states, reached):
    assert on_flink.Rounds(("Rows", "Mean", "Lloyd00"), 3, 9).reached(tasks(**states)) == reached


def test_rounds_are_those_of_the_graph_by_the_labels_that_it_has(tmp_path):
    planned = lake.planned(lake.job("lake", lake.write_server(tmp_path / "server.parquet"), lloyd__steps=3))
    found = on_flink.Rounds.of(planned.promise_of(2, 3))
    assert (found.first, found.total) == (2, len(planned.rounds))
    assert found.labels == tuple(each.plan.label for each in planned.rounds[1:3])
    assert on_flink.Rounds.of(TRUSTED_ZONE).labels == ()


def test_a_job_that_is_followed_is_named_with_its_page_and_its_round(flink, monkeypatch, caplog):
    monkeypatch.setattr(on_flink, "_FOLLOW_SECONDS", 0.01)
    caplog.set_level("INFO", logger="dapple_dp")
    flink[1].tasks = tasks(Rows="FINISHED", Mean="RUNNING")
    said = [
        f"its id on Flink is a1, its page http://{flink[0]}/#/job/running/a1",
        "round 4 of 9",
    ]
    with on_flink.follow(flink[0], job_name("fit", "night-1"), on_flink.Rounds(("Rows", "Mean"), 3, 9)):
        end = time.monotonic() + 600
        while len(caplog.messages) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert caplog.messages == said


def test_a_cluster_that_does_not_answer_is_not_followed_and_ends_nothing(monkeypatch, caplog):
    monkeypatch.setattr(on_flink, "_FOLLOW_SECONDS", 0.01)
    with on_flink.follow("127.0.0.1:1", job_name("fit", "night-1"), on_flink.Rounds((), 1, 0)):
        time.sleep(0.05)
    assert caplog.messages == []


SENTENCE = "column 'x' of lake/a.parquet, row group 0 must hold finite numbers only, got a null; correct the data."
FAILED = f"""java.lang.RuntimeException: Error received from SDK harness for instruction 7: Traceback:
  File "/site/transforms/read.py", line 60, in read_block
dapple_dp.schemas.errors.InputError: {SENTENCE} [while running 'Rounds/Rows/Statistic']

\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient.handle(FnApiControlClient.java:200)
"""
"""As Flink tells what a task failed with."""


def followed(flink, is_seen, end_of_wait="Pipeline job-1 failed in state FAILED: Job was cancelled."):
    """Follows the job of night-1 until something is seen; its wait ends as that of a failed job."""
    with on_flink.follow(flink[0], job_name("fit", "night-1"), on_flink.Rounds((), 1, 0)):
        end = time.monotonic() + 600
        while not is_seen() and time.monotonic() < end:
            time.sleep(0.01)
        raise RuntimeError(end_of_wait)


def test_a_job_that_would_repeat_a_refusal_is_canceled_and_ends_with_its_sentence(flink, monkeypatch):
    """Its wait takes until Flink has tried as often as it may otherwise."""
    monkeypatch.setattr(on_flink, "_FOLLOW_SECONDS", 0.01)
    flink[1].failed = (("a1", FAILED), ("a2", FAILED))
    with pytest.raises(InputError) as found:
        followed(flink, lambda: flink[1].canceled)
    assert str(found.value) == SENTENCE
    assert flink[1].canceled == ["/jobs/a1?mode=cancel"]


@pytest.mark.parametrize(
    "text",
    [
        FAILED.replace("InputError", "RunnerError"),
        FAILED.replace("InputError", "UnavailableError"),
        f"dapple_dp.schemas.errors.StoreAwayError: The store of s3://lake doesn't answer; run it later.\n{FAILED}",
        "org.apache.flink.runtime.jobmaster.JobMasterException: TaskManager with id 127.0.0.1:1 is no longer reachable",
        FAILED.replace("dapple_dp.schemas.errors.InputError", "KeyError"),
        FAILED.replace("dapple_dp", "OSError: [Errno 116] Stale file handle\\n\\ndapple_dp", 1),
    ],
    ids=["runner", "broker", "store", "lost", "other", "system"],
)
def test_a_job_that_may_come_right_when_it_is_tried_again_goes_on(flink, monkeypatch, text):
    monkeypatch.setattr(on_flink, "_FOLLOW_SECONDS", 0.01)
    flink[1].failed = (("a1", text), ("a2", FAILED))
    with pytest.raises(RuntimeError, match="Job was cancelled") as found:
        followed(flink, lambda: flink[1].asked.count("/jobs/a1/exceptions?maxExceptions=1") > 2)
    assert type(found.value) is RuntimeError
    assert flink[1].canceled == []


@pytest.mark.parametrize("code", [202, 500])
def test_a_job_whose_end_was_not_seen_has_no_final_error(flink, monkeypatch, code):
    """It may go on, and release what it was charged for."""
    monkeypatch.setattr(on_flink, "_FOLLOW_SECONDS", 0.01)
    flink[1].failed, flink[1].code = (("a1", FAILED),), code
    with pytest.raises(RuntimeError, match=r"^the job server is gone$") as found:
        followed(flink, lambda: flink[1].canceled, "the job server is gone")
    assert type(found.value) is RuntimeError


def test_a_job_that_is_over_before_it_is_canceled_has_its_own_end(flink, monkeypatch):
    """A task that was repeated may have come right after all."""
    monkeypatch.setattr(on_flink, "_FOLLOW_SECONDS", 0.01)
    flink[1].failed, flink[1].code = (("a1", FAILED),), 409
    with on_flink.follow(flink[0], job_name("fit", "night-1"), on_flink.Rounds((), 1, 0)):
        end = time.monotonic() + 600
        while not flink[1].canceled and time.monotonic() < end:
            time.sleep(0.01)
