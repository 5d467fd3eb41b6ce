"""`--dry_run=True`: builds and checks a job's first pipeline, and translates it for Dataflow, without submitting it.

The job runs in a temporary folder with a temporary key and without its ledger, so nothing is reserved, charged or
written in the real output.
"""

import dataclasses
import logging
import os
import tempfile
from typing import Any

import pydantic
from apache_beam.options.pipeline_options import StandardOptions

from dapple_dp.pipelines.jobs.job import Job, Run
from dapple_dp.pipelines.jobs.place import Summary
from dapple_dp.pipelines.run.graph import NotSubmittedError
from dapple_dp.pipelines.run.options import JobOptions, check_in_process
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.tiers import check_runner

_LOGGER = logging.getLogger(__name__)


def dry_run(job: Job[Any, Any, Any], settings: Any, options: JobOptions) -> Summary:
    """Reports the first pipeline that a job would submit.

    Args:
      job: the job.
      settings: resolved settings.
      options: options of the command line.

    Returns:
      The summary that is printed last; it has no output and no epsilon.

    Raises:
      ConfigError: if the job doesn't write a single whole output.
      DappleError: if the run would fail before its first pipeline.
    """
    check_runner(options.beam.view_as(StandardOptions).runner, getattr(settings, "experimental", False))
    check_in_process(job.name, options.beam, job.in_process)
    apart = _without_keys(settings)
    place = job.place(apart, options)
    if not place.is_whole:
        raise ConfigError(
            f"--dry_run doesn't work for {job.name}, whose pipelines depend on what other parties or earlier parts "
            "have written; try the job on a copy."
        )
    place.check()
    with tempfile.TemporaryDirectory(prefix="dapple-dry-run-") as folder:
        there = dataclasses.replace(options, output=os.path.join(folder, "output"))
        run = Run(settings=apart, options=there, place=job.place(apart, there))
        try:
            planned = job.plan(run)
            with run.place.opened(None):
                job.work(run, planned)
        except NotSubmittedError as pipeline:
            _LOGGER.info(
                "dry run: %s would submit a pipeline of %d steps (%d kB) to %s; "
                "nothing was submitted, charged or written",
                *(job.name, pipeline.n_steps, -(-pipeline.n_bytes // 1000)),
                options.beam.view_as(StandardOptions).runner,
            )
            return Summary(dry_run=True, steps=pipeline.n_steps, bytes=pipeline.n_bytes)
    raise RuntimeError(f"{job.name} must build a pipeline.")


def _without_keys(settings: Any) -> Any:
    """Returns the settings without the ledger, and with keys in the folder of the run."""
    if not isinstance(settings, pydantic.BaseModel):  # Jobs of several parts are refused anyway.
        return settings
    changes = {name: None for name in ("ledger", "key_uri") if hasattr(settings, name)}
    masked = getattr(settings, "masked", None)
    if masked is not None:
        changes["masked"] = masked.model_copy(update={"secret_uri": None})
    return settings.model_copy(update=changes)
