"""The `evaluate` job: scores a released model on private rows, for the trusted zone."""

import logging

import apache_beam as beam
import numpy as np

from dapple_dp.pipelines.jobs.job import UNPROTECTED, Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.trusted_zone.trusted_folder import model_manifest, run_on_rows
from dapple_dp.schemas.core.plan import Zone
from dapple_dp.schemas.trusted_zone.job_configs import EvaluateConfig, load_evaluate_config
from dapple_dp.schemas.trusted_zone.metrics import METRICS_FILE, NOT_PRIVATE, Metrics
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.saved_model import SavedModel, load_model, read_reference
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.tables.read import ListShards
from dapple_dp.transforms.tables.source import Source
from dapple_dp.transforms.trusted_zone.evaluate_models import ScoreModels, ScoreParams, WriteMetrics

_LOGGER = logging.getLogger(__name__)


def build(root: beam.Pipeline, source: Source, params: ScoreParams, centers: np.ndarray, folder: str) -> None:
    """Adds the job to an empty pipeline; `folder` is an existing private folder."""
    shards = root | "List" >> ListShards(
        source=source, contract=params.contract, others=() if params.label is None else (params.label,)
    )
    models = root | "Model" >> beam.Create([(0, centers)], reshuffle=False)
    _ = shards | "Score" >> ScoreModels(models=models, params=params) | "Publish" >> WriteMetrics(folder=folder)


def _score_params(config: EvaluateConfig, model: SavedModel) -> ScoreParams:
    """Parameters of the scores, with the reference centers; raises ConfigError if settings don't fit the model."""
    wanted, n_features = config.evaluate, model.centers.shape[1]
    return ScoreParams(
        contract=model.contract(config.data),
        label=wanted.label,
        sample_rows=wanted.silhouette_rows,
        reference=None if wanted.reference is None else read_reference(wanted.reference, n_features),
    )


def _work(run: Run[EvaluateConfig], model: SavedModel) -> Metrics:
    """Computes the scores; `metrics.json` is in the staging folder afterwards."""
    config, folder = run.settings, run.folder.staging
    params = _score_params(config, model)
    run_on_rows(run, build, params=params, centers=model.centers)
    path = join(folder, METRICS_FILE)
    return Metrics.from_json(untrusted.read_bytes(path, untrusted.staged_refusal(path)))


def _plan(run: Run[EvaluateConfig]) -> SavedModel:
    model = load_model(run.settings.model)
    _LOGGER.info("run %s: %s", run.options.run_id, NOT_PRIVATE["label"])
    return model


def _write(run: Run[EvaluateConfig], model: SavedModel, _: Metrics) -> Outcome:
    run.folder.adopt(METRICS_FILE)
    return Outcome(UNPROTECTED, model_manifest("evaluate", run.settings, model))


JOB = Job(
    "evaluate",
    load_evaluate_config,
    _plan,
    _work,
    _write,
    Zone.TRUSTED,
    shows=METRICS_FILE,
    place=OutputKind(mark=NOT_PRIVATE, allowed_by="evaluate").place,
    resolve=with_features,
)
