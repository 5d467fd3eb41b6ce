"""A pipeline checked and run to its end on any runner, its errors reported in one sentence."""

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam import pipeline as beam_pipeline
from apache_beam.options.pipeline_options import DirectOptions, GoogleCloudOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult

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
_NAME = "alter_label_if_ipython"
_CANCEL_SECONDS = 20.0


class NotSubmittedError(Exception):
    """A pipeline that was built and checked in a dry run, and not submitted.

    Attributes:
      n_steps: steps without parts.
      n_bytes: of its graph.
    """

    def __init__(self, graph: Any):
        super().__init__()
        self.n_steps = sum(not each.subtransforms for each in graph.components.transforms.values())
        self.n_bytes = graph.ByteSize()


class _Unlabeled:
    """Beam that gives steps no names of cells, while graphs are built and run here, in however many threads at once.

    For such names it imports what fails without pandas, and with pandas 3. No option of Beam prevents it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._own = vars(beam_pipeline).get(_NAME)
                if self._own is not None:
                    setattr(beam_pipeline, _NAME, lambda *_: None)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._own is not None:
                setattr(beam_pipeline, _NAME, self._own)


UNLABELED = _Unlabeled()


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
      NotSubmittedError: in a dry run.
    """
    with reported(), one_thread(), UNLABELED:
        _watch_workers(options)
        pipeline = beam.Pipeline(options=options)
        try:
            build(pipeline)
            found = check_graph(pipeline, promise)
            run_keys.check_held_keys(pipeline)
            if is_dry_run(options):
                raise NotSubmittedError(_translated(pipeline, options))
            with PROGRESS.pipeline():
                running = pipeline.run()
                with _followed(options, promise):
                    _wait(running)
        finally:
            # In a notebook Beam leaves it behind.
            shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
        return found


def _translated(pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
    """What a runner would be given; Beam's code for Dataflow translates it without sending anything."""
    return pipeline.run().job.proto_pipeline if is_on(Runner.DATAFLOW, options) else pipeline.to_runner_api()


def _watch_workers(options: PipelineOptions) -> None:
    """Has worker processes of this machine watched, if the job has some; raises RunnerError if they cannot be."""
    if options.view_as(DirectOptions).direct_running_mode != "multi_processing":
        return
    try:
        # Beam's modules behind it are private.
        from dapple_dp.pipelines.run import watched_worker

        watched_worker.register()
    except (ImportError, AttributeError) as error:
        raise RunnerError(UNWATCHED) from error


def _followed(options: PipelineOptions, promise: Promise) -> contextlib.AbstractContextManager[None]:
    """Says under which name a pipeline is in a cluster, and in which round, where the job's flags say how to ask."""
    name, master = options.view_as(GoogleCloudOptions).job_name, options.get_all_options().get("flink_master")
    if name is None:
        return contextlib.nullcontext()
    _LOGGER.info("the pipeline is in the cluster as %s", name)
    if not master or str(master).startswith("["):
        return contextlib.nullcontext()

    from dapple_dp.pipelines.run import on_flink

    return on_flink.follow(str(master), name, on_flink.Rounds.of(promise))


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
