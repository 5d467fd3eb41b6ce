"""Jobs that go on in a Flink cluster: found by the names of their runs, and canceled."""

import http.server
import json
import threading

import pytest

from pipelines.run.jobs import on_flink
from pipelines.run.options import job_name, parse_job
from schemas.errors import RunnerError

PORTABLE = ("--config", "c", "--output", "o", "--runner=PortableRunner", "--job_endpoint=localhost:1")


class _Flink(http.server.BaseHTTPRequestHandler):
    """A JobManager of canned answers that remembers what it is asked to cancel."""

    jobs: tuple[tuple[str, str, str], ...] = (
        ("a1", job_name("fit", "night-1"), "RUNNING"),
        ("a2", job_name("fit", "Night-1"), "RESTARTING"),
        ("a3", job_name("fit", "night-1"), "FINISHED"),
        ("a4", "another-job", "RUNNING"),
    )
    canceled: list[str]
    code = 202

    def do_GET(self):
        found = [dict(zip(("jid", "name", "state"), each, strict=True)) for each in self.jobs]
        self._answer(200, {"jobs": found})

    def do_PATCH(self):
        self.canceled.append(self.path)
        self._answer(self.code, {})

    def _answer(self, code, content):
        octets = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(octets)))
        self.end_headers()
        self.wfile.write(octets)

    def log_message(self, *_):
        pass


@pytest.fixture
def flink():
    kind = type("Flink", (_Flink,), {"canceled": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_port}", kind
    server.shutdown()
    server.server_close()
    thread.join()


def test_only_jobs_of_dapple_that_are_not_over_are_found(flink):
    assert [job.id for job in on_flink.running_jobs(flink[0])] == ["a1", "a2"]


def test_a_run_is_told_from_one_whose_id_differs_in_a_letter(flink):
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


def test_jobs_of_clusters_are_named_by_their_runs():
    options = parse_job("fit", (*PORTABLE, "--run_id", "Night_1.b")).beam.get_all_options()
    assert options["job_name"] == job_name("fit", "Night_1.b")
    assert options["job_name"].startswith("dapple-fit-night-1-b-")
    assert parse_job("fit", (*PORTABLE, "--job_name", "mine")).beam.get_all_options()["job_name"] == "mine"
    assert parse_job("fit", PORTABLE[:4]).beam.get_all_options()["job_name"] is None
