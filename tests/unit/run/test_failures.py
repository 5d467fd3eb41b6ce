"""One sentence out of what a runner says when a worker fails."""

import errno

import grpc
import pytest

from dapple_dp.pipelines.run import failures
from dapple_dp.schemas.errors import ConfigError, InputError, LatticeOverflowError, RunnerError, SchemaMismatchError

SENTENCE = "column 'age' of lake/a.parquet, row group 0 must hold finite numbers only, got a null; correct the data."
WORKER_TEXT = f"""Error received from SDK harness for instruction 7: Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1512, in apache_beam.runners.common.DoFnRunner.process
  File "/site/transforms/read.py", line 60, in read_block
    return contract.to_block(read_columns(shard, contract.types), _where(shard))
dapple_dp.schemas.errors.InputError: {SENTENCE}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/site/apache_beam/runners/worker/sdk_worker.py", line 310, in _execute
    response = task()
dapple_dp.schemas.errors.InputError: {SENTENCE} [while running 'FedDPKMeans/Weights/Statistic-ptransform-12']

"""


def test_the_sentence_is_read_from_the_text_of_a_worker():
    found = failures.original_error(RuntimeError(WORKER_TEXT))
    assert type(found) is InputError
    assert str(found) == SENTENCE
    assert found.exit_code == 2


@pytest.mark.parametrize("kind", [ConfigError, SchemaMismatchError, LatticeOverflowError])
def test_the_class_is_read_too(kind):
    found = failures.original_error(RuntimeError(WORKER_TEXT.replace("InputError", kind.__name__)))
    assert type(found) is kind


def test_the_sentence_is_found_in_a_traceback_escaped_onto_one_line():
    found = failures.original_error(RuntimeError("failed: " + WORKER_TEXT.replace("\n", "\\n")))
    assert type(found) is InputError
    assert str(found) == SENTENCE


def test_an_error_of_this_process_loses_the_name_of_the_step():
    found = failures.original_error(InputError(f"{SENTENCE} [while running 'CheckRows/Check']"))
    assert type(found) is InputError
    assert str(found) == SENTENCE


def test_an_error_of_this_process_loses_what_follows_the_first_line():
    found = failures.original_error(InputError(f"{SENTENCE}\nTraceback (most recent call last): ..."))
    assert str(found) == SENTENCE


def test_a_runner_that_gave_up_is_named_without_its_message():
    found = failures.original_error(RuntimeError("Pipeline job-1_2 failed in state FAILED: KeyError: 'patient 42'"))
    assert type(found) is RunnerError
    assert str(found).startswith("the runner ended the job in state FAILED; its logs")
    assert "patient" not in str(found)
    assert found.exit_code == 1
    known = failures.original_error(RuntimeError(f"Pipeline job-1 failed in state FAILED: {WORKER_TEXT}"))
    assert str(known) == SENTENCE


def test_a_job_server_that_does_not_answer_is_named():
    found = failures.original_error(grpc.FutureTimeoutError())
    assert type(found) is RunnerError
    assert "--job_endpoint" in str(found)


def test_causes_and_contexts_are_searched():
    with pytest.raises(RuntimeError) as from_cause:
        raise RuntimeError("pipeline failed") from InputError(SENTENCE)
    assert str(failures.original_error(from_cause.value)) == SENTENCE
    error = RuntimeError("pipeline failed")
    error.__context__ = RuntimeError(WORKER_TEXT)
    assert str(failures.original_error(error)) == SENTENCE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: row 17 is 42",
        "dapple_dp.schemas.errors.releases_to_table: not a class of errors",
        "dapple_dp.schemas.errors.NoSuchError: unknown",
        "the words dapple_dp.schemas.errors.InputError: in the middle of a line",
    ],
)
def test_other_texts_hold_no_error_of_dapple(text):
    assert failures.original_error(RuntimeError(text)) is None


def test_an_unexpected_error_shows_its_type_and_no_message():
    sentence = failures.describe_unexpected(KeyError("patient 42"))
    assert sentence.startswith("unexpected KeyError at ")
    assert sentence.endswith("; run again with --verbose for the traceback.")
    assert "patient" not in sentence
    assert "42" not in sentence


def test_the_place_is_where_it_was_raised():
    def deep():
        raise OSError("secret")

    with pytest.raises(OSError, match="secret") as raised:
        deep()
    place = failures.describe_unexpected(raised.value).split(" at ")[1].split(";")[0]
    assert place == f"{__file__}:{deep.__code__.co_firstlineno + 1}"


class _LostError(Exception):
    """Error of grpc that says that nobody is there any more."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("x: NoResourceAvailableException: Could not acquire the minimum required resources.", "fewer free slots"),
        ("x: java.util.concurrent.TimeoutException: Timeout has occurred: 30000 ms", "fewer free slots"),
        ("java.lang.RuntimeException: io.grpc.StatusRuntimeException: UNAVAILABLE: io exception", "--environment_conf"),
        ("java.net.ConnectException: finishConnect(..) failed: Connection refused", "--environment_conf"),
        ("java.net.ConnectException: Connection refused", "The JobManager of the cluster stopped answering"),
        (
            "OSError: [Errno 28] No space left on device [while running 'Publish']",
            "The disk of --output, or one for temporary files, is full",
        ),
    ],
)
def test_a_loss_with_a_remedy_has_a_sentence_of_its_own(said, sentence):
    found = failures.original_error(RuntimeError(f"Pipeline job-1 failed in state FAILED: patient 42 {said}"))
    assert type(found) is RunnerError
    assert sentence in str(found)
    assert "patient" not in str(found)


def test_an_error_of_dapple_counts_more_than_what_the_runner_lost():
    text = f"io.grpc.StatusRuntimeException: CANCELLED\n{WORKER_TEXT}"
    assert str(failures.original_error(RuntimeError(text))) == SENTENCE


def test_a_lost_job_server_is_named_with_the_job_that_may_go_on():
    found = failures.original_error(_LostError("details with patient 42"))
    assert type(found) is RunnerError
    assert "The job server at --job_endpoint was lost" in str(found)
    assert "cancel it there" in str(found)
    assert "patient" not in str(found)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_of_the_launcher_is_named(number):
    error = RuntimeError("publish")
    error.__cause__ = OSError(number, "secret")
    assert failures.describe_unexpected(error) == str(failures.FULL_DISK)
    many = RuntimeError("files of a store")
    many.exception_details = {"file": OSError(number, "secret")}
    assert failures.describe_unexpected(many) == str(failures.FULL_DISK)
    assert "unexpected" in failures.describe_unexpected(OSError(errno.EIO, "secret"))
