"""The `evaluate` job: scores of a released model on private rows, for the trusted zone."""

import functools
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text
from pipelines.run_folder import RunFolder
from pipelines.trusted_output import check_apart, manifest
from schemas.evaluate_config import EvaluateConfig, load_evaluate_config
from schemas.flow import TRUSTED_ZONE
from schemas.metrics import METRICS_FILE, Metrics
from schemas.model_job import NOT_PRIVATE
from transforms.evaluate_models import ScoreModel, ScoreParams, WriteMetrics
from transforms.numerics.nearest import NearestCenters
from transforms.publish import read_bytes
from transforms.read import ListShards
from transforms.saved_model import SavedModel, load_model, read_reference
from transforms.source import Source
from transforms.table_snapshots import resolve

_LOGGER = logging.getLogger(__name__)


def build(root: beam.Pipeline, source: Source, params: ScoreParams, folder: str) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      source: where the rows are.
      params: what is scored.
      folder: private; exists.
    """
    shards = root | "List" >> ListShards(source=source, contract=params.contract)
    _ = shards | "Score" >> ScoreModel(params=params) | "Publish" >> WriteMetrics(folder=folder)


def score_params(config: EvaluateConfig, model: SavedModel) -> ScoreParams:
    """What a job scores, reference centers read.

    Raises:
      ConfigError: if the settings do not fit the model.
    """
    wanted, n_features = config.evaluate, model.centers.shape[1]
    return ScoreParams(
        model=NearestCenters.of(model.centers),
        contract=model.contract(config.data),
        label=wanted.label,
        sample_rows=wanted.silhouette_rows,
        reference=None if wanted.reference is None else read_reference(wanted.reference, n_features),
    )


def execute(config: EvaluateConfig, model: SavedModel, options: PipelineOptions, folder: str) -> Metrics:
    """Runs a job to its end; `metrics.json` lies in the folder afterwards.

    Args:
      config: the job.
      model: what it scores.
      options: for Beam.
      folder: private; exists.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    params = score_params(config, model)
    add = functools.partial(build, source=resolve(config.data), params=params, folder=folder)
    run_graph(add, options, TRUSTED_ZONE)
    return Metrics.from_json(read_bytes(FileSystems.join(folder, METRICS_FILE)).decode())


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: scores, writes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been written then.
    """
    options = parse_job("evaluate", argv)
    config = load_evaluate_config(read_text(options.config))
    folder = RunFolder(options.output, options.run_id)
    check_apart(options.output, "evaluate", beside_released=config.evaluate.beside_released)
    folder.check()
    model = load_model(config.model)
    _LOGGER.info("run %s: %s", options.run_id, NOT_PRIVATE["label"])
    with folder.opened():
        execute(config, model, options.beam, folder.staging)
        folder.adopt(METRICS_FILE)
        folder.publish(manifest("evaluate", config, model, options.run_id))
    _LOGGER.info("done: %s; it is as private as the input", FileSystems.join(options.output, METRICS_FILE))
    return {"run_id": options.run_id, "output": options.output, "epsilon": None, "delta": None}
