"""A pipeline checked and run to its end on any runner, its errors told in one sentence."""

import contextlib
from collections.abc import Callable, Iterator

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
        with threadpool_limits(limits=1), _outside_of_notebooks():
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


@contextlib.contextmanager
def _outside_of_notebooks() -> Iterator[None]:
    """Lets Beam build and run a graph in a notebook as it does elsewhere.

    In a notebook Beam looks for the user's own pipelines, to give their steps other names: it needs pandas then, and
    leaves its temporary folder behind. The pipelines here are not the user's.
    """
    names = {"alter_label_if_ipython": lambda *_: None, "is_in_ipython": lambda: False}
    own = {name: getattr(beam_pipeline, name) for name in names}
    try:
        vars(beam_pipeline).update(names)
        yield
    finally:
        vars(beam_pipeline).update(own)
