"""Checks a pipeline and runs it to its end on any runner; its errors become one sentence."""

import contextlib
import logging
import shutil
import threading
import types
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam import pipeline as beam_pipeline
from apache_beam.options.pipeline_options import DirectOptions, GoogleCloudOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult
from apache_beam.transforms import userstate

from dapple_dp.pipelines.run import run_keys
from dapple_dp.pipelines.run.failures import UNWATCHED, reported
from dapple_dp.pipelines.run.options import is_dry_run, is_on
from dapple_dp.schemas.choices import Runner
from dapple_dp.schemas.core.plan import GraphPrivacy, Promise
from dapple_dp.schemas.errors import RunnerError
from dapple_dp.transforms.files.signals.progress import PROGRESS
from dapple_dp.transforms.numerics.one_thread import one_thread
from dapple_dp.transforms.on_beam.checker import check_graph

_LOGGER = logging.getLogger(__name__)
_CANCEL_SECONDS = 20.0


class NotSubmittedError(Exception):
    """A pipeline that a dry run has built and checked, but not submitted.

    Attributes:
      n_steps: number of leaf steps.
      n_bytes: size of the graph.
    """

    def __init__(self, graph: Any):
        super().__init__()
        self.n_steps = sum(not transform.subtransforms for transform in graph.components.transforms.values())
        self.n_bytes = graph.ByteSize()


def _inspecting_once(inspect: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns Beam's search for state and timers, which inspects steps of the same class once.

    A method among the attributes of a step may have state that other steps of its class don't have.
    """
    found: dict[type, Any] = {}

    def specs(step: Any) -> Any:
        if any(isinstance(value, types.MethodType) for value in vars(step).values()):
            return inspect(step)
        if type(step) not in found:
            found[type(step)] = inspect(step)
        return found[type(step)]

    return specs


_REPLACED: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (beam_pipeline, "alter_label_if_ipython", lambda _: lambda *_: None),
    (userstate, "get_dofn_specs", _inspecting_once),
)
"""Functions of Beam by module and name, and what makes their replacements of them."""


class _Adapted:
    """Replaces functions of Beam while graphs are built and run, in any number of threads.

    Beam's code for labels of notebook cells needs pandas, and fails with pandas 3. Its search for state and timers
    inspects all methods of each step eight times, 5% of the CPU time of a small fit. No option of Beam helps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._own = [(module, name, vars(module).get(name)) for module, name, _ in _REPLACED]
                for (module, name, own), (_, _, replacement) in zip(self._own, _REPLACED, strict=True):
                    if own is not None:
                        setattr(module, name, replacement(own))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            for module, name, own in () if self._inside else self._own:
                if own is not None:
                    setattr(module, name, own)


ADAPTED = _Adapted()


def run_graph(build: Callable[[beam.Pipeline], None], options: PipelineOptions, promise: Promise) -> GraphPrivacy:
    """Builds a graph, checks the flow of private data, and runs it.

    BLAS uses one thread meanwhile; its own setting is restored afterwards.

    Args:
      build: adds the job to an empty pipeline.
      options: Beam options.
      promise: plan of the job, and the zone of its outputs.

    Returns:
      The privacy spending of the graph's noise stages.

    Raises:
      PrivacyFlowError: before anything is read, if the graph breaks the promise or would draw with a kept key.
      DappleError: if the run fails.
      NotSubmittedError: in a dry run.
    """
    with reported(), one_thread(), ADAPTED:
        _watch_workers(options)
        pipeline = beam.Pipeline(options=options)
        try:
            build(pipeline)
            result = check_graph(pipeline, promise)
            run_keys.check_held_keys(pipeline)
            if is_dry_run(options):
                raise NotSubmittedError(_translated(pipeline, options))
            with PROGRESS.pipeline():
                running = pipeline.run()
                with _followed(options, promise):
                    _wait(running)
        finally:
            # Beam doesn't remove it in a notebook.
            shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
        return result


def _translated(pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
    """The graph in the form for the runner; Beam translates it for Dataflow without sending anything."""
    return pipeline.run().job.proto_pipeline if is_on(Runner.DATAFLOW, options) else pipeline.to_runner_api()


def _watch_workers(options: PipelineOptions) -> None:
    """Watches local worker processes if the job has any; raises RunnerError if that isn't possible."""
    if options.view_as(DirectOptions).direct_running_mode != "multi_processing":
        return
    try:
        # It imports private modules of Beam.
        from dapple_dp.pipelines.run import watched_worker

        watched_worker.register()
    except (ImportError, AttributeError) as error:
        raise RunnerError(UNWATCHED) from error


def _followed(options: PipelineOptions, promise: Promise) -> contextlib.AbstractContextManager[None]:
    """Logs the name of a pipeline in a cluster; follows its rounds if the flags name the cluster."""
    name = options.view_as(GoogleCloudOptions).job_name
    if name is None:
        return contextlib.nullcontext()
    _LOGGER.info("the pipeline is in the cluster as %s", name)
    master = options.get_all_options().get("flink_master")
    if not master or str(master).startswith("["):
        return contextlib.nullcontext()

    from dapple_dp.pipelines.run import on_flink

    return on_flink.follow(str(master), name, on_flink.Rounds.of(promise))


def _wait(running: PipelineResult) -> None:
    """Waits for a job, and cancels it if the wait is interrupted, since a cluster would continue it."""
    try:
        running.wait_until_finish()
    except BaseException:
        # A job server that was stopped never answers.
        canceling = threading.Thread(target=_cancel, args=(running,), daemon=True)
        canceling.start()
        canceling.join(_CANCEL_SECONDS)
        raise


def _cancel(running: PipelineResult) -> None:
    """Cancels a job; ignores a job that is over or can't be reached."""
    with contextlib.suppress(Exception):
        running.cancel()
