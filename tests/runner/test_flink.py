"""A standalone Flink cluster: one JobManager, two TaskManagers, Beam's job server, a pool of workers elsewhere."""

import contextlib

import pytest

from examples.runners import downloads
from examples.runners.flink_cluster import FlinkCluster, Ports
from tests.scenes.conformance import Conformance, needed
from tests.scenes.faults import FaultBench

pytestmark = [pytest.mark.runner, pytest.mark.flink]


@pytest.fixture(scope="module")
def fetched():
    """All that a cluster needs."""
    with needed():
        downloads.flink_home()
        downloads.flink_runner()


@contextlib.contextmanager
def running(folder):
    """A cluster of its own ports, gone at the end."""
    cluster = FlinkCluster(folder, Ports.free())
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


def half_done(cluster):
    """Whether a job runs of whose tasks half are over."""
    running = [job["tasks"] for job in cluster.jobs() if job["state"] == "RUNNING"]
    return any(2 * tasks["finished"] >= tasks["total"] for tasks in running)


class TestFlink(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def flags(cls, fetched, logs):
        with running(logs) as cluster:
            yield cluster.flags


@pytest.mark.slow
class TestFaults:
    """Flink tries again; a run that is disturbed ends right or leaves nothing."""

    @pytest.fixture(scope="class")
    @classmethod
    def faults(cls, fetched, tmp_path_factory):
        return FaultBench(tmp_path_factory.mktemp("faults"))

    @pytest.fixture
    def cluster(self, fetched, tmp_path):
        with running(tmp_path / "cluster") as cluster:
            yield cluster

    def test_a_task_manager_is_killed(self, cluster, faults):
        run = faults.start(*cluster.flags)
        run.wait_until(lambda: half_done(cluster))
        cluster.processes["taskmanager-0"].kill()
        faults.check(run)
        assert faults.finish(faults.start(*cluster.flags)) == faults.reference

    def test_the_pool_of_workers_is_killed_and_comes_back(self, cluster, faults):
        run = faults.start(*cluster.flags)
        run.wait_until(lambda: half_done(cluster))
        cluster.processes["worker-pool"].kill()
        cluster.start_pool()
        faults.check(run)

    def test_the_pool_of_workers_is_killed_for_good(self, cluster, faults):
        run = faults.start(*cluster.flags)
        run.wait_until(lambda: half_done(cluster))
        cluster.processes["worker-pool"].kill()
        assert not faults.check(run)

    def test_the_driver_is_killed(self, cluster, faults):
        """Flink goes on with the job, whose files stay in the private staging folder."""
        run = faults.start(*cluster.flags)
        run.wait_until(lambda: half_done(cluster))
        run.kill()
        cluster.cancel_jobs()
        run.check_killed()
        assert faults.finish(faults.start(*cluster.flags)) == faults.reference


@pytest.mark.slow
def test_a_cluster_comes_up_is_found_again_and_goes(tmp_path):
    """Without the job server, so that it runs wherever there is Java."""
    with needed():
        home = downloads.flink_home()
    cluster = FlinkCluster(tmp_path, Ports.free())
    try:
        cluster.start_flink(home)
        cluster.start_pool()
        again = FlinkCluster(tmp_path)
        assert again.complete
        assert again.ports == cluster.ports
        found = cluster.overview()
        assert (found["taskmanagers"], found["slots-total"], found["flink-version"]) == (2, 4, downloads.FLINK_VERSION)
        assert cluster.cancel_jobs() == 0
        cluster.processes["taskmanager-0"].kill()
        assert not again.complete
    finally:
        cluster.down()
    assert cluster.overview() is None
    assert not FlinkCluster(tmp_path).processes
