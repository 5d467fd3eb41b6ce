"""A pool of Beam workers on loopback, for runners that take an external one: `python worker_pool.py PORT`.

Beam's own command, `python -m apache_beam.runners.worker.worker_pool_main --service_port=PORT`, listens on every
network interface and starts whatever `python` is first on PATH. A pool runs any code it is sent, so this one listens on
127.0.0.1 only, and its workers are of the environment that it runs in. They are forked from a process that has imported
what they need. Workers go when the pool goes.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.utils import thread_pool_executor

_NURSERY = pathlib.Path(__file__).with_name("worker_nursery.py")
_MODULES = ("apache_beam.runners.worker.sdk_worker", "pipelines.kmeans.fit", "pyarrow.parquet")
"""What workers import anyway."""


class ForkingPool(BeamFnExternalWorkerPoolServicer):
    """Beam's service, whose workers come from a nursery; where that cannot serve, they start from nothing."""

    def __init__(self) -> None:
        super().__init__(use_process=True)
        self._lock = threading.Lock()
        words = [sys.executable, "-P", str(_NURSERY), *_MODULES]
        self._nursery = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the service
        """Starts a worker."""
        if self._asked(worker=request.worker_id, control=request.control_endpoint.url):
            return beam_fn_api_pb2.StartWorkerResponse()
        return super().StartWorker(request, context)

    def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the service
        """Stops workers whose runner has gone, whatever their name is; see `worker_nursery`."""
        self._asked()
        return super().StopWorker(request, context)

    def end(self) -> None:
        """Ends all workers."""
        for worker in self._worker_processes.values():
            worker.kill()
        self._nursery.communicate()

    def _asked(self, **request: str) -> bool:
        """Whether the nursery has done what it was asked for."""
        asks, hears = self._nursery.stdin, self._nursery.stdout
        with self._lock, contextlib.suppress(OSError, ValueError):
            if asks is not None and hears is not None:
                asks.write(json.dumps(request) + "\n")
                asks.flush()
                return hears.readline() == "done\n"
        return False


def main(port: str) -> None:
    """Serves until it is told to stop."""
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    pool = ForkingPool()
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
