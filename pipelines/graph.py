"""A pipeline run to its end on any runner, its errors told in one sentence."""

from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from threadpoolctl import threadpool_limits

from pipelines.failures import original_error


def run_graph(build: Callable[[beam.Pipeline], None], options: PipelineOptions) -> None:
    """Builds and runs; workers of this process set BLAS to one thread, and it has its own again afterwards.

    Args:
      build: adds the job to an empty pipeline.
      options: for Beam.

    Raises:
      DappleError: what stopped the run.
    """
    try:
        with threadpool_limits(limits=1):
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            pipeline.run().wait_until_finish()
    except Exception as error:
        known = original_error(error)
        if known is None:
            raise
        raise known from error
