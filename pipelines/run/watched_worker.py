"""Local worker processes whose end is announced to everyone waiting for them; Beam would wait forever."""

import sys
import threading
import time
from typing import Any

from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from dapple_dp.pipelines.run.failures import LOST_WORKER, UNWATCHED
from dapple_dp.schemas.errors import RunnerError

_WATCH_SECONDS, _HASTE_SECONDS, _PATIENCE_SECONDS = 0.5, 2.0, 600.0
_LOST = f"dapple_dp.schemas.errors.RunnerError: {LOST_WORKER}"


def register() -> None:
    """Makes Beam start watched worker processes in this process from now on.

    Raises:
      AttributeError: if this version of Beam starts workers differently.
    """
    worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)(WatchedWorker)


class WatchedWorker(worker_handlers.SubprocessSdkWorkerHandler):
    """A worker process, and a thread that waits for its end."""

    def start_worker(self) -> None:
        """Starts both; raises RunnerError if the worker's unanswered requests can't be inspected."""
        if not hasattr(self.control_conn, "_futures_by_id"):
            raise RunnerError(UNWATCHED)
        self._over = threading.Event()
        super().start_worker()
        threading.Thread(target=self._watch, name="watch_worker", daemon=True).start()

    def _watch(self) -> None:
        self.worker_thread.join()
        # It may still receive requests after its end, until one of the error answers is read.
        while not self._over.wait(_WATCH_SECONDS):
            for future in self._unanswered():
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=future.instruction_id, error=_LOST))

    def _unanswered(self) -> list[Any]:
        return [each for each in list(self.control_conn._futures_by_id.values()) if not each.is_done()]

    def close(self) -> None:
        """Stops the worker within ten minutes, since it may hang; within seconds after an interruption."""
        closing = threading.Thread(target=self._close, name="close_worker", daemon=True)
        closing.start()
        interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
        closing.join(_HASTE_SECONDS if interrupted else _PATIENCE_SECONDS)

    def _close(self) -> None:
        """Stops the worker once its current requests are answered; otherwise it would wait forever for input."""
        while self.worker_thread.is_alive() and self._unanswered():
            time.sleep(_WATCH_SECONDS)
        self._over.set()
        super().close()
