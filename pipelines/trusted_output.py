"""Outputs that stay in the trusted zone: kept apart from released files, and marked as not private."""

import os
from collections.abc import Iterator
from typing import Any

from apache_beam.io.filesystems import FileSystems

from pipelines.versions import versions
from schemas.config import config_digest
from schemas.errors import ConfigError
from schemas.model_job import NOT_PRIVATE, ModelJob
from transforms.publish import RELEASED_FILES
from transforms.saved_model import SavedModel


def check_apart(output: str, job: str | None = None, *, beside_released: bool = False) -> None:
    """Refuses an output folder in or below a fit's, whose files may be handed out as a whole.

    Args:
      output: folder on any Beam filesystem; need not exist.
      job: name of the section in which a job may allow it; None if it may not.
      beside_released: whether the job allows it.

    Raises:
      ConfigError: if a fit's centers lie there.
    """
    if beside_released:
        return
    remedy = "choose another one" if job is None else f"choose another one or set {job}.beside_released to true"
    for folder in _upward(output):
        for name in RELEASED_FILES:
            if FileSystems.exists(FileSystems.join(folder, name)):
                raise ConfigError(
                    f"--output must be a folder outside of released outputs, got {output} with {name} in {folder}; "
                    f"{remedy}."
                )


def _upward(folder: str) -> Iterator[str]:
    """The folder and all above it."""
    if FileSystems.get_scheme(folder) in (None, "file"):
        folder = os.path.abspath(folder.removeprefix("file://"))
    while folder.strip("/") and not folder.endswith(":/"):
        yield folder
        folder = folder.rpartition("/")[0]


def manifest(job: str, config: ModelJob, model: SavedModel, run_id: str) -> dict[str, Any]:
    """Content of `run.json` of a job that is not private, without the list of files."""
    return NOT_PRIVATE | {
        "run_id": run_id,
        "job": job,
        "model": {"folder": model.folder, "digest": model.digest},
        "config_digest": config_digest(config),
        "versions": versions(),
    }
