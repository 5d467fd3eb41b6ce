"""A pool of Beam workers on loopback, for runners that take an external one: `python worker_pool.py PORT`.

Beam's own command, `python -m apache_beam.runners.worker.worker_pool_main --service_port=PORT`, listens on every
network interface and starts whatever `python` is first on PATH. A pool runs any code it is sent, so this one listens on
127.0.0.1 only, and its workers are of the environment that it runs in. Workers go when it goes.
"""

import os
import signal
import sys

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.utils import thread_pool_executor


def main(port: str) -> None:
    """Serves until it is told to stop."""
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    server = grpc.server(thread_pool_executor.shared_unbounded_instance())
    pool = BeamFnExternalWorkerPoolServicer(use_process=True)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    if not server.add_insecure_port(f"127.0.0.1:{port}"):
        raise SystemExit(f"port {port} is taken")
    server.start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stop(0)
    for worker in pool._worker_processes.values():
        worker.kill()
    # Beam's executor keeps threads that would hold up an orderly end.
    os._exit(0)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(sys.argv[1])
