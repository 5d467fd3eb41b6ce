"""A pipeline checked and run to its end on any runner, its errors told in one sentence."""

from collections.abc import Callable

import apache_beam as beam
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
        with threadpool_limits(limits=1):
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
