"""Outputs that stay in the trusted zone: kept apart from released files, and marked as not private."""

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from dapple_dp.pipelines.jobs.job import Run
from dapple_dp.pipelines.jobs.place import OutputFolder
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import JobOptions
from dapple_dp.pipelines.tables.private_source import private_source, staged_listing
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.model_job import ModelJob
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES
from dapple_dp.schemas.trusted_zone.metrics import NOT_PRIVATE
from dapple_dp.transforms.files.saved_model import SavedModel
from dapple_dp.transforms.files.stores import STORE, is_local, join


class TrustedFolder(OutputFolder):
    """An output folder outside of released ones, whose manifest says that nothing in it is private.

    Args:
      options: of the run.
      section: of the job's settings in which it may allow a place in a released folder; None if it may not.
      beside_released: whether it allows it.
    """

    def __init__(self, options: JobOptions, section: str | None = None, *, beside_released: bool = False):
        super().__init__(options)
        self._section = section
        self._beside_released = beside_released

    def check(self) -> None:
        """Refuses a folder that holds something, or is in or below a fit's, which may be handed out as a whole."""
        check_apart(self._options.output, self._section, beside_released=self._beside_released)
        super().check()

    def publish(self, manifest: dict[str, Any]) -> None:
        """Marks the output as not private and makes it complete."""
        super().publish(NOT_PRIVATE | manifest)


def apart(section: str) -> Callable[[Any, JobOptions], TrustedFolder]:
    """Where a job writes that may be allowed a place in a released folder, by `beside_released` of this section."""

    def place(config: Any, options: JobOptions) -> TrustedFolder:
        return TrustedFolder(options, section, beside_released=getattr(config, section).beside_released)

    return place


def run_on_rows(run: Run[Any], build: Callable[..., None], **given: Any) -> None:
    """Runs a graph of the trusted zone on the rows of a job.

    Args:
      run: of the job; its files are listed.
      build: adds the graph to an empty pipeline, with `source`, `folder` (staged, private) and what is given.
      given: further arguments of `build`.
    """
    folder = run.folder.staging
    with staged_listing(private_source(run.settings), folder) as source:
        add = functools.partial(build, source=source, folder=folder, **given)
        run_graph(add, run.options.beam, TRUSTED_ZONE)


def check_apart(output: str, job: str | None = None, *, beside_released: bool = False) -> None:
    """Refuses an output folder in or below a fit's, whose files may be handed out as a whole.

    Args:
      output: folder on any Beam filesystem; need not exist.
      job: name of the section in which a job may allow it; None if it may not.
      beside_released: whether the job allows it.

    Raises:
      ConfigError: if a fit's centers are there.
    """
    if beside_released:
        return
    remedy = "choose another one" if job is None else f"choose another one or set {job}.beside_released to true"
    for folder in _upward(output):
        for name in RELEASED_FILES:
            if STORE.exists(join(folder, name)):
                raise ConfigError(
                    f"--output must be a folder outside of released outputs, got {output} with {name} in {folder}; "
                    f"{remedy}."
                )


def _upward(folder: str) -> Iterator[str]:
    if is_local(folder):
        folder = os.path.abspath(folder.removeprefix("file://"))
    while folder.strip("/") and not folder.endswith(":/"):
        yield folder
        folder = folder.rpartition("/")[0]


def model_manifest(job: str, config: ModelJob, model: SavedModel) -> dict[str, Any]:
    """What `run.json` of a job says of the model that it applied."""
    return {
        "job": job,
        "model": {"folder": model.folder, "digest": model.digest},
        "config_digest": config_digest(config),
    }
