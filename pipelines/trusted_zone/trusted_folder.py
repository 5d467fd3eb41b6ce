"""Graphs of the trusted zone on a job's rows, and the manifest entry of the applied model."""

import functools
from collections.abc import Callable
from typing import Any

from dapple_dp.pipelines.jobs.job import Run
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.tables.private_source import private_source, staged_listing
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.kmeans.jobs.model_job import ModelJob
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.transforms.files.saved_model import SavedModel


def run_on_rows(run: Run[Any], build: Callable[..., None], **given: Any) -> None:
    """Runs a graph of the trusted zone on the rows of a job.

    Args:
      run: run of the job, whose files are listed.
      build: adds the graph to an empty pipeline; called with `source`, `folder` (private staging folder) and `given`.
      given: further arguments of `build`.
    """
    folder = run.folder.staging
    with staged_listing(private_source(run.settings), folder) as source:
        add = functools.partial(build, source=source, folder=folder, **given)
        run_graph(add, run.options.beam, TRUSTED_ZONE)


def model_manifest(job: str, config: ModelJob, model: SavedModel) -> dict[str, Any]:
    """Entries of `run.json` on the model that a job applied."""
    return {
        "job": job,
        "model": {"folder": model.folder, "digest": model.digest},
        "config_digest": config_digest(config),
    }
