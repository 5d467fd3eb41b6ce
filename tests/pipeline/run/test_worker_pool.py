"""Workers of a pool do a job, and go with its runner or with the pool."""

import socket
import subprocess
import sys
import time

import apache_beam as beam
import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from dapple_dp.pipelines.run.options import beam_options
from deploy.local import processes
from deploy.local.worker_environment import start_pool
from tests.scenes import lake
from tests.scenes.faults import workers

pytestmark = pytest.mark.runner


def wait_until(condition):
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def pool(tmp_path):
    (port,) = processes.free_ports(1)
    pool = start_pool(sys.executable, port, tmp_path / "pool.log")
    yield pool, f"127.0.0.1:{port}"
    pool.stop()


def test_a_job_is_done_by_workers_that_go_with_it(pool):
    process, address = pool

    def build(root):
        _ = root | beam.Create(range(8)) | beam.Reshuffle() | beam.GroupBy(lambda number: number % 2)

    flags = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=EXTERNAL"]
    lake.run_unchecked(build, beam_options([*flags, f"--environment_config={address}"]))
    wait_until(lambda: not workers(process))


def test_no_runner_stops_the_worker_of_another(pool):
    """Two TaskManagers give their workers the same names."""
    process, address = pool
    with socket.create_server(("127.0.0.1", 0)) as silent, grpc.insecure_channel(address) as channel:
        service = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        request = beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1")
        request.control_endpoint.url = f"127.0.0.1:{silent.getsockname()[1]}"
        for _ in range(2):
            service.StartWorker(request)
        both = workers(process)
        assert len(both) == 2
        service.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
        assert workers(process) == both
        process.stop()
    words = ["ps", "-o", "stat=", "-p", ",".join(map(str, both))]
    wait_until(lambda: not subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip("Z+<Nls \n"))
