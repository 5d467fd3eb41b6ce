"""A standalone Flink cluster: one JobManager, two TaskManagers, Beam's job server, a pool of workers elsewhere."""

import dataclasses
import socket
import time

import pytest

from deploy.local import downloads
from deploy.local.flink_cluster import FlinkCluster, Ports
from pipelines.jobs import on_flink
from tests.scenes import brokers, lake
from tests.scenes.conformance import REFERENCE, Conformance, needed
from tests.scenes.faults import FaultBench

pytestmark = [pytest.mark.runner, pytest.mark.flink]


@pytest.fixture(scope="module")
def fetched():
    """All that a cluster needs."""
    with needed("flink"):
        downloads.flink_home()
        downloads.flink_runner()


@pytest.fixture(scope="module")
def shared(fetched, tmp_path_factory):
    """One cluster for all jobs, with ports of its own, gone at the end: a start costs more than a job."""
    cluster = FlinkCluster(tmp_path_factory.mktemp("cluster"), Ports.free())
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def cluster(shared):
    """The cluster; what a test has killed is started again, and jobs that go on are canceled."""
    yield shared
    shared.up()
    shared.cancel_jobs()
    wait_until(lambda: not on_flink.running_jobs(master(shared)))


def master(cluster):
    return f"127.0.0.1:{cluster.ports.rest}"


def wait_until(condition):
    """Waits for something that takes a moment, or minutes on a busy machine."""
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def half_done(cluster):
    """Whether a job runs of whose tasks half are over."""
    running = [job["tasks"] for job in cluster.jobs() if job["state"] == "RUNNING"]
    return any(2 * tasks["finished"] >= tasks["total"] for tasks in running)


def task_managers(cluster, job):
    """The TaskManagers that had tasks of a job."""
    vertices = [each["id"] for each in cluster.overview(f"jobs/{job}")["vertices"]]
    found = [cluster.overview(f"jobs/{job}/vertices/{each}/taskmanagers")["taskmanagers"] for each in vertices]
    # Tasks that a failed job never started are nowhere.
    return {each["taskmanager-id"] for part in found for each in part} - {"(unassigned)"}


class TestFlink(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def flags(cls, shared):
        return shared.flags

    def test_both_task_managers_had_tasks(self, bench, shared):
        """Each has two slots, and jobs ask for four: what is shuffled goes from one to the other."""
        assert "--parallelism=4" in shared.flags
        if not (jobs := shared.jobs()):
            bench.publish("record", bench.split, *shared.flags)
            jobs = shared.jobs()
        assert max(len(task_managers(shared, job["jid"])) for job in jobs) == 2

    def test_no_jar_travels_with_a_job(self, bench, shared):
        """The classes are in Flink's lib; what a TaskManager is sent stays in its folder for an hour."""
        if not shared.jobs():
            bench.publish("record", bench.split, *shared.flags)
        sent = [path for path in (shared.folder / "tmp").rglob("blob_*") if path.is_file()]
        assert shared.jobs()
        assert len(list((shared.folder / "tmp").rglob("blobStorage"))) == 3
        assert not [path for path in sent if path.read_bytes()[:2] == b"PK"]

    @pytest.mark.parametrize(("algorithm", "steps", "n_jobs"), [("dp_lloyd", 40, 4), ("dp_medians", 12, 2)])
    def test_many_rounds_run_in_jobs_of_ten(self, algorithm, steps, n_jobs, bench, shared):
        """In one graph Flink would plan them for longer than anybody waits."""
        settings = lake.job(bench.split, bench.server, "record", key_uri=bench.key_uri, algorithm=algorithm)
        settings |= {"dp_lloyd": {"domain": [-8, 8], "init": "sphere_packing", "steps": steps}}
        settings |= {"clipping": {"norm": "domain", "center": "none"}}
        before = len(shared.jobs())
        outcome, output = bench.run("fit", settings, *shared.flags)
        assert outcome.code == 0, outcome.err
        assert len(shared.jobs()) == before + n_jobs
        _, reference = bench.run("fit", settings, *REFERENCE)
        assert lake.released(output) == lake.released(reference)

    def test_nobody_else_can_reach_the_cluster(self, shared):
        """Whoever reaches a job server or a pool can run code; on Linux this is another address than 127.0.0.1."""
        for port in dataclasses.astuple(shared.ports):
            with socket.socket() as probe:
                probe.settimeout(5)
                assert probe.connect_ex(("127.0.0.2", port)) != 0


@pytest.mark.kafka
def test_windows_of_a_topic(broker, shared, tmp_path):
    """Workers of the pool read the broker, and the copies lie where all can see them."""
    brokers.check_on_a_runner(broker, tmp_path, shared.flags)


@pytest.mark.slow
class TestFaults:
    """Flink tries again; a run that is disturbed ends right or leaves nothing."""

    @pytest.fixture(scope="class")
    @classmethod
    def faults(cls, fetched, tmp_path_factory):
        return FaultBench(tmp_path_factory.mktemp("faults"))

    def test_a_task_manager_is_killed_and_started_again(self, cluster, faults):
        run = faults.start(*cluster.flags)
        run.wait_until(lambda: half_done(cluster))
        cluster.processes["taskmanager-0"].kill()
        assert not cluster.complete
        cluster.up()
        faults.check(run)

    def test_the_pool_of_workers_is_killed_and_comes_back(self, cluster, faults):
        run = faults.start(*cluster.flags)
        run.wait_until(lambda: half_done(cluster))
        cluster.processes["worker-pool"].kill()
        cluster.up()
        faults.check(run)

    def test_the_pool_of_workers_is_killed_for_good(self, cluster, faults):
        run = faults.start(*cluster.flags)
        run.wait_until(lambda: half_done(cluster))
        cluster.processes["worker-pool"].kill()
        assert not faults.check(run)

    def test_the_driver_is_killed(self, cluster, faults):
        """Flink goes on with the job, whose files stay in the private staging folder; it is found and canceled."""
        run = faults.start(*cluster.flags)
        run.wait_until(lambda: half_done(cluster))
        run.kill()
        for job in on_flink.running_jobs(master(cluster)):
            assert job.name.startswith("dapple-fit-")
            on_flink.cancel(master(cluster), job)
        run.check_killed()
        wait_until(lambda: not on_flink.running_jobs(master(cluster)))
        assert faults.finish(faults.start(*cluster.flags)) == faults.reference


@pytest.mark.slow
def test_a_cluster_comes_up_is_found_again_and_goes(tmp_path):
    """Without the job server, so that it runs wherever there is Java."""
    with needed("flink"):
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
