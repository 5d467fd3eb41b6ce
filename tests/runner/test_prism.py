"""Prism, Beam's portable runner in Go."""

import logging
import os
import signal
import sys

import pytest

from deploy.local import downloads, processes
from deploy.local.worker_environment import start_pool
from tests.pipeline.beam.test_beam_windows import check_windows, models_of, streamed
from tests.scenes import brokers, lake
from tests.scenes.conformance import Conformance, needed
from tests.scenes.faults import FaultBench, children, workers
from tests.scenes.nights import run_two_nights, two_nights

pytestmark = [
    pytest.mark.runner,
    pytest.mark.prism,
    # Where a job fails, Beam's worker in the driver loses its stream in a thread that nobody waits for.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module")
def prism():
    with needed("prism"):
        binary = downloads.prism_binary()
    # Jobs of one process share a server, also one that Beam could not download when another test named no runner.
    own = "--experiments=disable_prism_server_singleton"
    yield ("--runner=PrismRunner", f"--prism_location={binary}", own)
    # Beam stops Prism when this process ends, and says so on a stream that pytest has closed; a worker of pytest-xdist
    # ends without a word, and Prism would stay.
    logging.getLogger("apache_beam.utils.subprocess_server").disabled = True
    for child in children(os.getpid(), binary.name):
        os.kill(child, signal.SIGTERM)


@pytest.mark.slow
class TestPrism(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def flags(cls, prism):
        return prism


@pytest.mark.slow
def test_a_new_night_goes_live_while_the_pipeline_runs(prism, tmp_path):
    """Side inputs in windows bring it."""
    run_two_nights(two_nights(tmp_path), [*prism, "--no_pipeline_type_check", "--no_save_main_session"])


@pytest.mark.slow
def test_windows_of_a_stream_have_a_model_each(prism, tmp_path, monkeypatch):
    """`dapple_dp.beam.KMeans` on a stream with late rows."""
    with lake.written_keys_draw():
        found = models_of(streamed(), tmp_path, lake.write_key(tmp_path / "key"), (*prism, "--streaming"))
    assert sorted(found) == [0, 60, 120]
    check_windows(found, monkeypatch)


@pytest.mark.kafka
@pytest.mark.nightly
def test_windows_of_a_topic(broker, prism, tmp_path):
    brokers.check_on_a_runner(broker, tmp_path, prism)


@pytest.mark.nightly
class TestFaults:
    """Prism does not try again; a run that is disturbed publishes nothing.

    It fails, as a rule at once. Prism 2.77 waits a minute for a worker that was killed before it had registered, and
    now and then forever if a worker is killed at work: it goes round in a loop in which no message is left to come.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def faults(cls, prism, tmp_path_factory):
        return FaultBench(tmp_path_factory.mktemp("faults"))

    @pytest.fixture
    def pool(self, tmp_path):
        (port,) = processes.free_ports(1)
        pool = start_pool(sys.executable, port, tmp_path / "pool.log")
        yield pool, ("--environment_type=EXTERNAL", f"--environment_config=127.0.0.1:{port}")
        pool.stop()

    def test_the_pool_of_workers_is_killed(self, faults, prism, pool):
        process, environment = pool
        run = faults.start(*prism, *environment)
        run.wait_until_under_way(process)
        process.kill()
        faults.check_without_an_end(run)

    def test_a_worker_is_killed(self, faults, prism, pool):
        process, environment = pool
        run = faults.start(*prism, *environment)
        run.wait_until_under_way(process)
        for worker in workers(process):
            os.kill(worker, signal.SIGKILL)
        faults.check_without_an_end(run)

    def test_the_driver_is_killed(self, faults, prism, pool):
        """Only the private staging folder is left, and the next run under the same key publishes the same bytes."""
        process, environment = pool
        run = faults.start(*prism, *environment)
        run.wait_until_under_way(process)
        run.kill()
        run.check_killed()
        assert faults.finish(faults.start(*prism, *environment)) == faults.reference
