"""A worker process that ends, ends the job in a sentence, and nobody waits for one that stands still."""

import os
import signal
import threading
import types

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from dapple_dp.pipelines.run import watched_worker
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.errors import RunnerError
from tests.scenes import lake

pytestmark = pytest.mark.slow

PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
UNWATCHED = "multi_processing doesn't work with this version of Beam"


class _Still(watched_worker.WatchedWorker):
    """A process that stands still, and so does the thread that waits for its end."""

    def __init__(self):
        self.over = threading.Event()

    def _close(self):
        self.over.wait(600)


def test_interrupting_a_run_does_not_wait_for_a_process_that_stands_still(monkeypatch):
    monkeypatch.setattr(watched_worker, "_HASTE_SECONDS", 0.1)
    worker = _Still()
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        worker.close()
    assert not worker.over.is_set()
    worker.over.set()
    worker.close()


def test_waiting_ends_for_a_worker_that_stands_still(monkeypatch):
    monkeypatch.setattr(watched_worker, "_PATIENCE_SECONDS", 0.1)
    worker = _Still()
    worker.close()
    assert not worker.over.is_set()
    worker.over.set()


# Beam's threads lose the streams and the end of a worker that is gone.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_process_that_ends_ends_the_job_in_a_sentence():
    """Beam itself waits forever for what it would have said."""

    def end(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    def build(root):
        numbers = root | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(end)
        _ = numbers | beam.GroupBy(lambda number: number % 2)

    said = "A worker process ended before the job was over"
    watched_worker.register()
    with pytest.raises(RunnerError, match=said):
        lake.run_unchecked(build, beam_options(PROCESSES))


def test_a_beam_that_lets_no_worker_be_watched_is_refused_before_it_runs(monkeypatch):
    """Another version may have moved what is private."""
    monkeypatch.delattr(worker_handlers.WorkerHandler, "register_environment")
    with pytest.raises(RunnerError, match=UNWATCHED):
        run_graph(lambda root: None, beam_options(PROCESSES), Promise(zone=Zone.TRUSTED))


def test_a_worker_whose_questions_nobody_knows_is_not_started():
    worker = _Still()
    worker.control_conn = types.SimpleNamespace()
    with pytest.raises(RunnerError, match=UNWATCHED):
        worker.start_worker()
