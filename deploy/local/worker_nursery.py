"""A process that has imported what workers need, and forks one for each request: `python worker_nursery.py MODULE...`.

A worker that starts from nothing spends a second of processor time on imports before it is given any work. Requests are
lines of its standard input, each is answered by a line, and workers end when there are no more requests. It never runs
a job itself, so nothing of one run comes into the memory of another.

Threads do not survive a fork. The only ones here are those of OpenBLAS and of Arrow's allocator, which both end or hold
them before a fork and start them again after it. gRPC has none before its first channel, and only workers open one.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable

Stamp = dict[str, tuple[int, int] | None]


def main(modules: list[str], work: Callable[[dict[str, str]], None] | None = None) -> None:
    """Serves until its standard input ends.

    Args:
      modules: are imported first; one that this environment lacks is left to the workers.
      work: what a worker does with the request that it was started by; by default it is one of Beam's.
    """
    # A pool blocks what stops it, and its children inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    # Workers read nothing, and what they print goes where their complaints go.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    nursery = Nursery(work or serve, (requests.fileno(), answers.fileno()))
    try:
        for line in requests:
            answers.write(nursery.answer(json.loads(line)) + "\n")
            answers.flush()
    finally:
        nursery.end()


def serve(request: dict[str, str]) -> None:
    """Is one of Beam's workers, until the runner has no more work."""
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    SdkHarness(request["control"], worker_id=request["worker"], state_cache_size=0, data_buffer_time_limit_ms=0).run()


class Nursery:
    """Workers that were forked from this process.

    Args:
      work: what a worker does.
      private: descriptors that workers must not have.
    """

    def __init__(self, work: Callable[[dict[str, str]], None], private: tuple[int, ...]):
        self._work = work
        self._private = private
        self._sources = sources()
        self._workers: dict[int, str] = {}

    def answer(self, request: dict[str, str]) -> str:
        """Starts a worker, or looks which ones are of no use any more.

        Nobody can say which worker to stop: two TaskManagers give theirs the same names. A worker ends by itself when
        its runner has hung up, and one that is busy then is ended here with the next request.

        Args:
          request: `control` is where a new worker asks for work, `host:port`; none for no new worker.

        Returns:
          "done", or "no" if the sources of what this process has imported are others now, or it cannot fork.
        """
        self._sweep()
        if "control" not in request:
            return "done"
        if changed(self._sources):
            return "no"
        try:
            self._workers[self._forked(request)] = request["control"]
        except OSError:
            return "no"
        return "done"

    def end(self) -> None:
        """Ends all workers."""
        for pid in list(self._workers):
            self._stop(pid)

    def _sweep(self) -> None:
        """Forgets workers that have ended, before the system gives their numbers away, and ends those of no runner."""
        for pid, control in list(self._workers.items()):
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                del self._workers[pid]
            elif not listens(control):
                self._stop(pid)

    def _stop(self, pid: int) -> None:
        """Ends a worker; it has nothing to save."""
        del self._workers[pid]
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def _forked(self, request: dict[str, str]) -> int:
        """The number of a new worker; in that worker this never returns."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            for descriptor in self._private:
                os.close(descriptor)
            _draw_apart()
            self._work(request)
            code = 0
        except BaseException:  # noqa: BLE001 - nothing of a worker may go on in here
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


def _draw_apart() -> None:
    """Gives NumPy's global generator, which copies of a process share, new numbers; Python's own gets them by itself.

    No noise comes from either, but code of others may draw from them what must differ between workers.
    """
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def listens(address: str) -> bool:
    """Whether somebody listens at `host:port`; where it cannot be known, somebody does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except ConnectionRefusedError:
        return False
    except (OSError, ValueError):
        return True
    return True


def sources() -> Stamp:
    """Of the file of every module that is imported, time of change and size; None of one that is not there."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {path: _stamp(path) for path in paths if isinstance(path, str)}


def changed(since: Stamp) -> bool:
    """Whether a file is another one now."""
    return any(_stamp(path) != stamp for path, stamp in since.items())


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


if __name__ == "__main__":
    main(sys.argv[1:])
