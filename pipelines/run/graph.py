"""A pipeline checked and run to its end on any runner, its errors told in one sentence."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
from apache_beam import pipeline as beam_pipeline
from apache_beam.options.pipeline_options import PipelineOptions
from threadpoolctl import threadpool_limits

from pipelines.run import run_keys
from pipelines.run.failures import original_error
from schemas.privacy.flow import GraphPrivacy, Promise
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
        with threadpool_limits(limits=1), _OUTSIDE_OF_NOTEBOOKS:
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            found = check_graph(pipeline, promise)
            run_keys.check_held_keys(pipeline)
            pipeline.run().wait_until_finish()
            return found
    except Exception as error:
        known = original_error(error)
        if known is None:
            raise
        raise known from error


class _OutsideOfNotebooks:
    """Lets Beam build and run graphs in a notebook as it does elsewhere, in however many threads at once.

    In a notebook Beam looks for the user's own pipelines, to give their steps other names: it needs pandas then, and
    leaves its temporary folder behind. The pipelines here are not the user's.
    """

    _CHANGED: Mapping[str, Any] = {"alter_label_if_ipython": lambda *_: None, "is_in_ipython": lambda: False}

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._own: dict[str, Any] = {}

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._own = {name: getattr(beam_pipeline, name) for name in self._CHANGED}
                vars(beam_pipeline).update(self._CHANGED)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                vars(beam_pipeline).update(self._own)


_OUTSIDE_OF_NOTEBOOKS = _OutsideOfNotebooks()
