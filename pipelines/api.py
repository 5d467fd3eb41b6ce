"""Dapple from Python: the same jobs, with configs in and schema objects out."""

import tempfile

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import fit as fit_job
from pipelines.estimator import DPKMeans
from pipelines.options import beam_options
from pipelines.prepared_fit import FitResult, prepare
from schemas.config import FitConfig

__all__ = ["DPKMeans", "FitResult", "fit"]


def fit(config: FitConfig, options: PipelineOptions | None = None) -> FitResult:
    """Clusters privately, without an output folder.

    Args:
      config: the job, as in the YAML file of `dapple fit`.
      options: for Beam; None runs on this machine.

    Returns:
      The released model, its guarantee, and the keyed fingerprint of the input.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        return fit_job.execute(prepare(config), beam_options([]) if options is None else options, folder)
