"""A standalone Flink cluster: one JobManager, two TaskManagers, Beam's job server, a pool of workers elsewhere."""

import dataclasses
import itertools
import json
import re
import socket
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.run import on_flink
from deploy.local import downloads
from deploy.local.flink_cluster import FlinkCluster, Ports
from tests.pipeline.beam.test_beam_windows import check_windows, models_of, streamed
from tests.scenes import brokers, installed, lake
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
    """Returns whether a job runs of whose tasks half are over."""
    running = [job["tasks"] for job in cluster.jobs() if job["state"] == "RUNNING"]
    return any(2 * tasks["finished"] >= tasks["total"] for tasks in running)


def task_managers(cluster, job):
    """The TaskManagers that had tasks of a job."""
    vertices = [each["id"] for each in cluster.overview(f"jobs/{job}")["vertices"]]
    found = [cluster.overview(f"jobs/{job}/vertices/{each}/taskmanagers")["taskmanagers"] for each in vertices]
    # Tasks that a failed job never started are nowhere.
    return {each["taskmanager-id"] for part in found for each in part} - {"(unassigned)"}


def check_rounds_are_logged(log, n_rounds, n_jobs):
    """A job has its id and page, and rounds of its own while it runs, in order; at its end all of them are told.

    A job may be over before a look sees one of its rounds, and a short one before any look sees it.
    """
    told = re.findall(
        r"its id on Flink is ([0-9a-f]{32}), its page http://[\d.:]+/#/job/running/\1|round (\d+) of (\d+)", log
    )
    assert {total for _, _, total in told if total} <= {str(n_rounds)}
    parts = [[int(number) for _, number, _ in part if number] for part in _from_each_id(told)]
    assert 1 <= len(parts) <= n_jobs
    for rounds in parts:
        assert rounds == sorted(set(rounds))
        assert len({(each - 1) // 10 for each in rounds}) <= 1
    assert [each for rounds in parts for each in rounds] == sorted({each for rounds in parts for each in rounds})
    done = [(10 * place + 1, min(n_rounds, 10 * (place + 1)), n_rounds) for place in range(n_jobs)]
    found = re.findall(r"rounds (\d+) to (\d+) of (\d+) are done", log)
    assert [tuple(map(int, each)) for each in found] == done


def _from_each_id(told):
    """Lines from each that has an id to the next one."""
    starts = [place for place, (name, _, _) in enumerate(told) if name]
    assert starts[0] == 0
    return [told[start:end] for start, end in itertools.pairwise([*starts, len(told)])]


@pytest.mark.slow
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

    @pytest.mark.parametrize(("algorithm", "steps", "n_jobs"), [("dp_lloyd", 24, 3), ("dp_medians", 12, 2)])
    def test_many_rounds_run_in_jobs_of_ten(self, algorithm, steps, n_jobs, bench, shared):
        """In one graph Flink would plan them for longer than anybody waits."""
        settings = lake.job(bench.split, bench.server, "record", key_uri=bench.key_uri, algorithm=algorithm)
        settings |= {"dp_lloyd": {"domain": [-8, 8], "init": "sphere_packing", "steps": steps}}
        settings |= {"clipping": {"norm": "domain", "center": "none"}}
        check_rounds_are_logged(self._check(bench, shared, "fit", settings, n_jobs), steps, n_jobs)

    def test_topics_of_terms(self, bench, shared, tmp_path):
        """Rows of a public vocabulary and their names, by clients: 13 rounds in two jobs, and two that group."""
        rows = pq.read_table(bench.split)
        terms = [[f"t{int(abs(each[0]))}", "all"] for each in rows["x"].to_pylist()]
        path = lake.write_files(tmp_path / "rows", [rows.append_column("tags", pa.array(terms))], 200)
        words = ["all", *(f"t{index}" for index in range(9))]
        settings = lake.job(path, None, "client", key_uri=bench.key_uri, algorithm="spherical")
        settings.pop("lloyd", None)
        settings |= {"clipping": {"client_rows": 10}, "spherical": {"steps": 12}}
        settings |= {"encode": {"tags": {"kind": "terms", "words": words, "width": 16}}}
        settings["data"] |= {"features": ["tags"]}
        settings |= {"names": {"column": "tags", "words": words}}
        self._check(bench, shared, "topics", settings, 4)

    def _check(self, bench, shared, job, settings, n_jobs):
        """A job takes this many jobs of Flink, and releases what the reference does; returns its log."""
        before = len(shared.jobs())
        outcome, output = bench.run(job, settings, *shared.flags)
        assert outcome.code == 0, outcome.err
        assert len(shared.jobs()) == before + n_jobs
        _, reference = bench.run(job, settings, *REFERENCE)
        assert lake.released(output) == lake.released(reference)
        return outcome.err

    def test_nobody_else_can_reach_the_cluster(self, shared):
        """Anyone who reaches a job server or a pool can run code; on Linux this is another address than 127.0.0.1."""
        for port in dataclasses.astuple(shared.ports):
            with socket.socket() as probe:
                probe.settimeout(5)
                assert probe.connect_ex(("127.0.0.2", port)) != 0


@pytest.mark.kafka
@pytest.mark.nightly
def test_windows_of_a_topic(broker, shared, tmp_path):
    """Workers of the pool read the broker, and the copies are where all can see them."""
    brokers.check_on_a_runner(broker, tmp_path, shared.flags)


@pytest.mark.nightly
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
def test_a_project_with_packages_called_as_folders_of_dapple(cluster, tmp_path):
    """The driver has both, and workers of other processes find Dapple's."""
    project = installed.acme_project(tmp_path)
    path = lake.write_lake(project / "lake", lake.mixture(300))
    (project / "job.yaml").write_text(json.dumps(lake.job(path, None, **lake.packed(1))))
    theirs = ", ".join(f"{name}.mine" for name in installed.ACME)
    script = f"import sys, {theirs}\nfrom dapple_dp.command import main\nsys.exit(main())\n"
    (project / "run.py").write_text(script)
    words = [sys.executable, "run.py", "fit", "--config", "job.yaml", "--output", str(project / "out"), *cluster.flags]
    variables = installed.clean_environment({"PYTHONPATH": str(downloads.ROOT)})
    done = subprocess.run(words, cwd=project, env=variables, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert (project / "out" / "centers.parquet").exists()


@pytest.mark.slow
def test_windows_of_a_stream_have_a_model_each(cluster, tmp_path, monkeypatch):
    """`dapple_dp.beam.KMeans` on a stream. A late row counts if it is in one bundle with rows that are in time."""
    with lake.written_keys_draw():
        found = models_of(
            streamed(with_late=False), tmp_path, lake.write_key(tmp_path / "key"), (*cluster.flags, "--streaming")
        )
    assert sorted(found) == [0, 60, 120]
    check_windows(found, monkeypatch)


@pytest.mark.slow
def test_a_cluster_comes_up_is_found_again_and_goes(tmp_path):
    """Without the job server, so that it runs wherever there is Java. One TaskManager starts sooner than two."""
    with needed("flink"):
        home = downloads.flink_home()
    cluster = FlinkCluster(tmp_path, Ports.free(), task_managers=1)
    try:
        cluster.start_flink(home)
        cluster.start_pool()
        again = FlinkCluster(tmp_path, task_managers=1)
        assert again.complete
        assert again.ports == cluster.ports
        found = cluster.overview()
        assert (found["taskmanagers"], found["slots-total"], found["flink-version"]) == (1, 2, downloads.FLINK_VERSION)
        assert cluster.cancel_jobs() == 0
        cluster.processes["taskmanager-0"].kill()
        assert not again.complete
    finally:
        cluster.down()
    assert cluster.overview() is None
    assert not FlinkCluster(tmp_path).processes
