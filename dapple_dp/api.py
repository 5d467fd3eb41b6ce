"""Jobs as Python functions, with configs as arguments and schema objects as results."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.estimator.dp_kmeans import DPKMeans
from dapple_dp.estimator.dp_topics import DPTopics
from dapple_dp.estimator.private_scaler import PrivateScaler
from dapple_dp.pipelines.jobs.job import Job, Result, Run, Settings
from dapple_dp.pipelines.jobs.place import Place
from dapple_dp.pipelines.jobs.run_job import carry_out
from dapple_dp.pipelines.kmeans import fit as fit_job
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult
from dapple_dp.pipelines.profile import job as profile_job
from dapple_dp.pipelines.reports import decode as decode_job
from dapple_dp.pipelines.reports.decode import DecodeResult
from dapple_dp.pipelines.run.folder import RunFolder, new_run_id
from dapple_dp.pipelines.run.options import JobOptions, beam_options
from dapple_dp.pipelines.trusted_zone import assign as assign_job
from dapple_dp.pipelines.trusted_zone import evaluate as evaluate_job
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.profile.plan import ProfileResult
from dapple_dp.schemas.reports.config import DecodeConfig
from dapple_dp.schemas.trusted_zone.job_configs import AssignConfig, EvaluateConfig
from dapple_dp.schemas.trusted_zone.metrics import Metrics
from dapple_dp.transforms.privacy.extensions import register_audited

__all__ = [
    "DPKMeans",
    "DPTopics",
    "DecodeResult",
    "FitResult",
    "PrivateScaler",
    "ProfileResult",
    "assign",
    "decode",
    "evaluate",
    "fit",
    "profile",
    "register_audited",
]


@contextlib.contextmanager
def _in_memory(
    job: Job[Settings, Any, Result], settings: Settings, beam: PipelineOptions | None
) -> Iterator[tuple[Result, RunFolder]]:
    """Runs a job in a temporary private folder; yields its result and the folder, which is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
        options = JobOptions(
            config="",
            output=os.path.join(folder, "run"),
            run_id=new_run_id(),
            beam=beam_options([]) if beam is None else beam,
        )
        run = Run(settings=settings, options=options, place=Place(options))
        with carry_out(job, run) as (_, result):
            yield result, run.folder


def fit(config: FitConfig, options: PipelineOptions | None = None) -> FitResult:
    """Clusters privately, without an output folder.

    Args:
      config: settings of the job, as in the YAML file of `dapple fit`.
      options: Beam options; None runs on this machine.

    Returns:
      The released model, its guarantee, and the keyed fingerprint of the input.

    Raises:
      DappleError: if the run fails; one sentence.
    """
    with _in_memory(fit_job.JOB, config, options) as (result, _):
        return result


def assign(config: AssignConfig, options: PipelineOptions | None = None) -> pa.Table:
    """Assigns every row to its nearest center, without an output folder. Not private: keep it in the trusted zone.

    Args:
      config: settings of the job, as in the YAML file of `dapple assign`.
      options: Beam options; None runs on this machine.

    Returns:
      A table, in memory, with the ids and the column `cluster` of all rows.

    Raises:
      DappleError: if the run fails; one sentence.
    """
    with _in_memory(assign_job.JOB, config, options) as (_, folder):
        return pq.read_table(folder.path(assign_job.ASSIGNMENTS), memory_map=False)


def evaluate(config: EvaluateConfig, options: PipelineOptions | None = None) -> Metrics:
    """Scores a released model, without an output folder. Not private: keep the scores in the trusted zone.

    Args:
      config: settings of the job, as in the YAML file of `dapple evaluate`.
      options: Beam options; None runs on this machine.

    Raises:
      DappleError: if the run fails; one sentence.
    """
    with _in_memory(evaluate_job.JOB, config, options) as (metrics, _):
        return metrics


def profile(config: ProfileConfig, options: PipelineOptions | None = None) -> ProfileResult:
    """Describes each cluster of a released model privately, without an output folder.

    Args:
      config: settings of the job, as in the YAML file of `dapple profile`.
      options: Beam options; None runs on this machine.

    Returns:
      The released table, its guarantee, and the keyed fingerprint of the input.

    Raises:
      DappleError: if the run fails; one sentence.
    """
    with _in_memory(profile_job.JOB, config, options) as (result, _):
        return result


def decode(config: DecodeConfig, options: PipelineOptions | None = None) -> DecodeResult:
    """Computes a model from private reports, without an output folder.

    Args:
      config: settings of the job, as in the YAML file of `dapple reports decode`.
      options: Beam options; None runs on this machine.

    Raises:
      DappleError: if the run fails; one sentence.
    """
    with _in_memory(decode_job.JOB, config, options) as (result, _):
        return result
