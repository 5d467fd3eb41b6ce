"""Processes that hold rows or keys are killed by SIGABRT where core dumps would land, and leave none.

Each runs in a folder of its own, under a soft limit that lets dumps be as large as they like.
"""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from deploy.local import processes
from deploy.local.worker_environment import start_pool
from tests.scenes.faults import workers

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]
_HARD = resource.getrlimit(resource.RLIMIT_CORE)[1]
_HEAD = f"""
import os, resource, sys
sys.path.insert(0, {str(ROOT)!r})
resource.setrlimit(resource.RLIMIT_CORE, ({_HARD}, {_HARD}))
"""
_COMMAND = """
from dapple_dp.pipelines.command import main
def work():
    {work}
main.main = work
import runpy
sys.argv = ["dapple", *{words!r}]
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
_WORKERS = """
    import apache_beam as beam
    from dapple_dp.pipelines.run import watched_worker
    from dapple_dp.pipelines.run.options import beam_options
    from tests.scenes import lake
    watched_worker.register()
    def add(root):
        _ = root | beam.Create(range(4)) | beam.Reshuffle() | beam.Map(lambda number: os.abort())
    lake.run_unchecked(add, beam_options(["--direct_num_workers=2", "--direct_running_mode=multi_processing"]))
"""


def crashed(folder: pathlib.Path, code: str) -> tuple[int, str, list[pathlib.Path]]:
    """Exit code of a process, the end of its stderr, and the dumps in the folder that it ran in."""
    words = [sys.executable, "-c", _HEAD + code]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stderr[-2000:], list(folder.glob("core*"))


@pytest.fixture(autouse=True)
def _dumps_land(tmp_path):
    """Tests that a careless process leaves a dump, else the tests would show nothing."""
    folder = tmp_path / "control"
    folder.mkdir()
    if not crashed(folder, "os.abort()")[2]:
        pytest.skip("this machine puts core dumps elsewhere, or allows none")


def command(work: str, *words: str, module: str = "dapple_dp") -> str:
    return _COMMAND.format(work=work.strip(), words=words, module=module)


@pytest.mark.parametrize("module", ["dapple_dp", "dapple_dp.pipelines"])
def test_the_process_of_a_job_leaves_none(tmp_path, module):
    code, _, dumps = crashed(tmp_path, command("os.abort()", "fit", module=module))
    assert (code, dumps) == (-6, [])


@pytest.mark.parametrize("word", ["upload", "unmask", "aggregate", "party", "stream", "decode", "clustered_fl"])
def test_no_word_of_the_command_leaves_one(tmp_path, word):
    """Words have one process: what stops here is what is asked for last."""
    code, _, dumps = crashed(tmp_path, command("os.abort()", word))
    assert (code, dumps) == (-6, [])


def test_the_installed_command_is_that_process():
    text = (ROOT / "setup.py").read_text()
    assert '"console_scripts": ["dapple = dapple_dp.command:main"]' in text.replace("'", '"')


def test_worker_processes_of_the_local_runner_leave_none(tmp_path):
    code, said, dumps = crashed(tmp_path, command(_WORKERS, "fit"))
    assert "A worker process ended before the job was over" in said
    assert (code, dumps) == (1, [])


@pytest.mark.runner
def test_workers_of_a_pool_leave_none(tmp_path):
    """A worker that waits for its runner is one as any."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (_HARD, _HARD))
    try:
        (port,) = processes.free_ports(1)
        pool = start_pool(sys.executable, port, tmp_path / "pool.log")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            request = beam_fn_api_pb2.StartWorkerRequest(worker_id="1")
            request.control_endpoint.url = "127.0.0.1:9"
            beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel).StartWorker(request)
        (worker,) = workers(pool)
        assert os.readlink(f"/proc/{worker}/cwd") == str(tmp_path)
        os.kill(worker, signal.SIGABRT)
        end = time.monotonic() + 60
        while workers(pool):
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        pool.stop()
    assert list(tmp_path.glob("core*")) == []
