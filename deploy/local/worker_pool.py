"""A pool of Beam workers on loopback, for runners that take an external one: `python worker_pool.py PORT`.

Beam's own command, `python -m apache_beam.runners.worker.worker_pool_main --service_port=PORT`, listens on every
network interface, starts whatever `python` is first on PATH, and stops workers by names that two TaskManagers give
alike. A pool runs any code it is sent, so this one listens on 127.0.0.1 only, and its workers are of the environment
that it runs in. Workers go when their runner or the pool goes.
"""

import multiprocessing
import os
import resource
import signal
import sys
from multiprocessing.process import BaseProcess
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.utils import thread_pool_executor

_FORKED = multiprocessing.get_context("forkserver")
"""Workers are forked from a process that has imported what they need and runs nothing else."""
_FORKED.set_forkserver_preload(["apache_beam.runners.worker.sdk_worker", "dapple_dp.pipelines.kmeans.fit"])


def work(url: str, worker_id: str) -> None:
    """Asks for work until its runner hangs up."""
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    SdkHarness(url, worker_id=worker_id, state_cache_size=0, data_buffer_time_limit_ms=0).run()


class Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """The service that runners ask for workers; each is a process."""

    def __init__(self) -> None:
        self._workers: list[BaseProcess] = []

    def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the service
        """Starts a process that asks Flink's task manager for work, and drops those that have ended."""
        self._workers = [each for each in self._workers if each.is_alive()]
        worker = _FORKED.Process(target=work, args=(request.control_endpoint.url, request.worker_id))
        worker.start()
        self._workers.append(worker)
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the service
        """Leaves it to the worker, which ends when its runner hangs up: another runner's may have the same name."""
        return beam_fn_api_pb2.StopWorkerResponse()

    def end(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            worker.kill()
            worker.join()


def main(port: str) -> None:
    """Serves until it is asked to stop."""
    # Rows and keys in the memory of workers would be in a core dump; one byte is heeded by dumps to a program, too.
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))
    pool = Pool()
    server = grpc.server(thread_pool_executor.shared_unbounded_instance())
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    if not server.add_insecure_port(f"127.0.0.1:{port}"):
        raise SystemExit(f"port {port} is taken")
    server.start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stop(0)
    pool.end()
    # Beam's executor keeps threads that would hold up an orderly end.
    os._exit(0)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(sys.argv[1])
