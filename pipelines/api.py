"""Dapple from Python: the same jobs, with configs in and schema objects out."""

import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import assign as assign_job
from pipelines import decode as decode_job
from pipelines import evaluate as evaluate_job
from pipelines import fit as fit_job
from pipelines import profile as profile_job
from pipelines.decode import DecodeResult
from pipelines.estimator import DPKMeans
from pipelines.options import beam_options, new_run_id
from pipelines.prepared_fit import FitResult, prepare
from pipelines.spending import charge_of, spending
from schemas.assign_config import AssignConfig
from schemas.config import FitConfig
from schemas.evaluate_config import EvaluateConfig
from schemas.metrics import Metrics
from schemas.profile import ProfileResult
from schemas.profile_config import ProfileConfig
from schemas.report_config import DecodeConfig
from transforms.profile_accounting import statement
from transforms.saved_model import load_model

__all__ = [
    "DPKMeans",
    "DecodeResult",
    "FitResult",
    "ProfileResult",
    "assign",
    "decode",
    "evaluate",
    "fit",
    "profile",
]


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
    prepared = prepare(config)
    charge = charge_of(prepared.statement, config.data, "fit", prepared.plan.rounds)
    with spending(config.ledger, charge, new_run_id()), tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        return fit_job.execute(prepared, beam_options([]) if options is None else options, folder)


def assign(config: AssignConfig, options: PipelineOptions | None = None) -> pa.Table:
    """The nearest center of every row, without an output folder. Not private: keep the table in the trusted zone.

    Args:
      config: the job, as in the YAML file of `dapple assign`.
      options: for Beam; None runs on this machine.

    Returns:
      Ids and the column `cluster` of all rows, in memory.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    model = load_model(config.model)
    with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        assign_job.execute(config, model, beam_options([]) if options is None else options, folder)
        return pq.read_table(FileSystems.join(folder, assign_job.ASSIGNMENTS), memory_map=False)


def evaluate(config: EvaluateConfig, options: PipelineOptions | None = None) -> Metrics:
    """Scores of a released model, without an output folder. Not private: keep them in the trusted zone.

    Args:
      config: the job, as in the YAML file of `dapple evaluate`.
      options: for Beam; None runs on this machine.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    model = load_model(config.model)
    with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        return evaluate_job.execute(config, model, beam_options([]) if options is None else options, folder)


def profile(config: ProfileConfig, options: PipelineOptions | None = None) -> ProfileResult:
    """A private description of each cluster of a released model, without an output folder.

    Args:
      config: the job, as in the YAML file of `dapple profile`.
      options: for Beam; None runs on this machine.

    Returns:
      The released table, its guarantee, and the keyed fingerprint of the input.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    prepared = profile_job.prepare(config, load_model(config.model))
    charge = charge_of(statement(prepared.params.plan), config.data, "profile")
    with spending(config.ledger, charge, new_run_id()), tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        return profile_job.execute(prepared, beam_options([]) if options is None else options, folder)


def decode(config: DecodeConfig, options: PipelineOptions | None = None) -> DecodeResult:
    """A model from private reports, without an output folder.

    Args:
      config: the job, as in the YAML file of `dapple decode`.
      options: for Beam; None runs on this machine.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    job = decode_job.prepare(config)
    with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        return decode_job.execute(job, beam_options([]) if options is None else options, folder)
