"""Worker processes of this machine whose end is announced to all waiters: Beam's own has them wait forever."""

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
    """Has Beam start its worker processes as watched ones, from now on in all of this process.

    Raises:
      AttributeError: if this Beam starts them in another way.
    """
    worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)(WatchedWorker)


class WatchedWorker(worker_handlers.SubprocessSdkWorkerHandler):
    """A worker process, and a thread that waits for its end."""

    def start_worker(self) -> None:
        """Starts both; raises RunnerError if nobody can say what the worker has not answered."""
        if not hasattr(self.control_conn, "_futures_by_id"):
            raise RunnerError(UNWATCHED)
        self._over = threading.Event()
        super().start_worker()
        threading.Thread(target=self._watch, name="watch_worker", daemon=True).start()

    def _watch(self) -> None:
        self.worker_thread.join()
        # It may be given work after its end, until someone has looked at an answer.
        while not self._over.wait(_WATCH_SECONDS):
            for future in self._unanswered():
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=future.instruction_id, error=_LOST))

    def _unanswered(self) -> list[Any]:
        return [each for each in list(self.control_conn._futures_by_id.values()) if not each.is_done()]

    def close(self) -> None:
        """Ends it, in ten minutes at most, since a process may stand still; who is interrupted waits for a moment."""
        closing = threading.Thread(target=self._close, name="close_worker", daemon=True)
        closing.start()
        interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
        closing.join(_HASTE_SECONDS if interrupted else _PATIENCE_SECONDS)

    def _close(self) -> None:
        """Ends it, when it has done what it is at: it would wait forever for the rest of its input."""
        while self.worker_thread.is_alive() and self._unanswered():
            time.sleep(_WATCH_SECONDS)
        self._over.set()
        super().close()
