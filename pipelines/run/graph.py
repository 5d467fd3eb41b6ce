"""A pipeline checked and run to its end on any runner, its errors told in one sentence."""

import bz2
import contextlib
import contextvars
import sys
import threading
import time
import types
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam import pipeline as beam_pipeline
from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, PortableOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.runner import PipelineResult
from apache_beam.transforms import core, userstate
from apache_beam.typehints import decorators

from pipelines.run import run_keys
from pipelines.run.failures import LOST_WORKER, original_error
from pipelines.run.options import shuffles_in_memory
from schemas.privacy.flow import GraphPrivacy, Promise
from transforms.files.progress import PROGRESS
from transforms.numerics.one_thread import one_thread
from transforms.privacy_flow.checker import check_graph


def run_graph(build: Callable[[beam.Pipeline], None], options: PipelineOptions, promise: Promise) -> GraphPrivacy:
    """Builds, checks the flow of private data, and runs.

    Workers of this process set BLAS to one thread, and it has its own again afterwards.

    Args:
      build: adds the job to an empty pipeline.
      options: for Beam.
      promise: what the job has planned, and where its outputs may go.

    Returns:
      What the graph spends by its own noise stages.

    Raises:
      PrivacyFlowError: if the graph does not keep the promise, or would draw under a kept key; nothing has been read
        then.
      DappleError: what stopped the run.
    """
    try:
        with one_thread(), _OTHER_BEAM, _packed_lightly(options):
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            found = check_graph(pipeline, promise)
            run_keys.check_held_keys(pipeline)
            with PROGRESS.pipeline():
                _wait(pipeline.run())
            return found
    except Exception as error:
        known = original_error(error)
        if known is None:
            raise
        raise known from error


def _wait(running: PipelineResult) -> None:
    """Waits for a job, and cancels it if this process stops waiting: a cluster would go on with it."""
    try:
        running.wait_until_finish()
    except BaseException:
        # A job server that is gone never answers.
        canceling = threading.Thread(target=_cancel, args=(running,), daemon=True)
        canceling.start()
        canceling.join(_CANCEL_SECONDS)
        raise


def _cancel(running: PipelineResult) -> None:
    """Cancels a job; one that is over, or out of reach, is left alone."""
    with contextlib.suppress(Exception):
        running.cancel()


class _WatchedWorker(worker_handlers.SubprocessSdkWorkerHandler):
    """A worker process of this machine, whose end is told to all that wait for it: Beam's own waits for ever."""

    def start_worker(self) -> None:
        """Starts it, and a thread that waits for its end."""
        self._over = threading.Event()
        super().start_worker()
        threading.Thread(target=self._watch, name="watch_worker", daemon=True).start()

    def _watch(self) -> None:
        self.worker_thread.join()
        # It may be given work after its end, until somebody has looked at an answer.
        while not self._over.wait(_WATCH_SECONDS):
            for future in self._unanswered():
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=future.instruction_id, error=_LOST))

    def _unanswered(self) -> list[Any]:
        return [each for each in list(self.control_conn._futures_by_id.values()) if not each.is_done()]

    def close(self) -> None:
        """Ends it; who is interrupted waits for a moment only, since a process may stand still."""
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
            self._close()
            return
        closing = threading.Thread(target=self._close, name="close_worker", daemon=True)
        closing.start()
        closing.join(_HASTE_SECONDS)

    def _close(self) -> None:
        """Ends it, when it has done what it is at: it would wait for ever for the rest of its input."""
        while self.worker_thread.is_alive() and self._unanswered():
            time.sleep(_WATCH_SECONDS)
        self._over.set()
        super().close()


_CANCEL_SECONDS, _WATCH_SECONDS, _HASTE_SECONDS = 20.0, 0.5, 2.0
_LOST = f"schemas.errors.RunnerError: {LOST_WORKER}"


_SEEN: weakref.WeakKeyDictionary[types.FunctionType, tuple[list[str], list[Any]]] = weakref.WeakKeyDictionary()
_OWN_ARGUMENTS = core.get_function_args_defaults


def _arguments(function: Callable[..., Any]) -> tuple[list[str], list[Any]]:
    """As `get_function_args_defaults` of Beam; a method's are looked up once, not for every object of its class."""
    behind = function.__func__ if isinstance(function, types.MethodType) else None
    if not isinstance(behind, types.FunctionType):
        return _OWN_ARGUMENTS(function)
    if behind not in _SEEN:
        _SEEN[behind] = _OWN_ARGUMENTS(function)
    names, defaults = _SEEN[behind]
    return names[:], defaults[:]


_STATES: weakref.WeakKeyDictionary[beam.DoFn, Any] = weakref.WeakKeyDictionary()
_read_state = userstate.get_dofn_specs


def _state_of(dofn: beam.DoFn) -> Any:
    """What a DoFn says of its state and timers, which follows from its methods."""
    found = _STATES.get(dofn)
    if found is None:
        found = _STATES[dofn] = _read_state(dofn)
    return found


_STAYS_HERE = contextvars.ContextVar("stays_here", default=False)
"""Whether what this thread pickles for workers is read by this process alone."""


@contextlib.contextmanager
def _packed_lightly(options: PipelineOptions) -> Iterator[None]:
    """Packs what this thread hands to workers as `_pack` does, if the workers are threads of this process."""
    elsewhere = options.view_as(DirectOptions).direct_running_mode == "multi_processing"
    elsewhere |= options.view_as(PortableOptions).environment_type is not None
    before = _STAYS_HERE.set(shuffles_in_memory(options) and not elsewhere)
    try:
        yield
    finally:
        _STAYS_HERE.reset(before)


def _pack(octets: bytes, compresslevel: int = 9) -> bytes:
    """What Beam packs by bzip2 for its workers, which takes longer than all else that is done to run a small graph."""
    return zlib.compress(octets, 1) if _STAYS_HERE.get() else bz2.compress(octets, compresslevel)


def _unpack(packed: bytes) -> bytes:
    """What was packed by `_pack`, or by Beam itself."""
    return bz2.decompress(packed) if packed.startswith(b"BZh") else zlib.decompress(packed)


class _OtherBeam:
    """Beam as it is while graphs are built and run here, in however many threads at once, and its own afterwards.

    In a notebook Beam looks for the user's own pipelines, to give their steps other names: it needs pandas then, and
    leaves its temporary folder behind. The pipelines here are not the user's. And worker processes are watched.

    Beam asks every DoFn six times whether it keeps state, and looks at the arguments of all its methods a dozen times;
    here, once. For messages that nobody reads it parses the source of every function, and writes down from where each
    type was declared; here it does not. Pickles that stay in this process are packed quickly.
    """

    _CHANGED: tuple[tuple[dict[str, Any], str, Any], ...] = (
        (vars(beam_pipeline), "alter_label_if_ipython", lambda *_: None),
        (vars(beam_pipeline), "is_in_ipython", lambda: False),
        (vars(core), "get_function_args_defaults", _arguments),
        (vars(core), "_check_fn_use_yield_and_return", lambda _: False),
        (vars(cloudpickle_pickler), "bz2", types.SimpleNamespace(compress=_pack, decompress=_unpack)),
        (vars(decorators), "traceback", types.SimpleNamespace(format_stack=lambda limit: [])),
        (vars(userstate), "get_dofn_specs", _state_of),
        (
            worker_handlers.WorkerHandler._registered_environments,
            python_urns.SUBPROCESS_SDK,
            (_WatchedWorker, bytes),
        ),
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._own: list[Any] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._own = [holder[name] for holder, name, _ in self._CHANGED]
                for holder, name, other in self._CHANGED:
                    holder[name] = other
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                for (holder, name, _), own in zip(self._CHANGED, self._own, strict=True):
                    holder[name] = own


_OTHER_BEAM = _OtherBeam()
