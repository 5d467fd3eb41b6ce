"""Steps of every job: load, check, plan, charge, work, write, publish."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from apache_beam.options.pipeline_options import StandardOptions

from dapple_dp.pipelines.jobs.forewarnings import forewarnings
from dapple_dp.pipelines.jobs.job import Job, JobChoice, Planned, Result, Run, Settings
from dapple_dp.pipelines.jobs.place import Summary
from dapple_dp.pipelines.jobs.warned import with_warnings
from dapple_dp.pipelines.run.options import JobOptions, check_in_process, is_dry_run, parse_job, read_text
from dapple_dp.pipelines.run.run_keys import keys_left
from dapple_dp.pipelines.run.signals.exports import EXPORTS
from dapple_dp.pipelines.run.signals.log_lines import of_run
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.pipelines.run.versions import versions
from dapple_dp.schemas.core.plan import Zone
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.tiers import check_runner
from dapple_dp.transforms.files.signals.measures import EPSILON, MEASURES, WARNINGS
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.tables.source import would_find

_LOGGER = logging.getLogger(__name__)


def run_job(asked: Job[Any, Any, Any] | JobChoice, argv: Sequence[str]) -> Summary:
    """Runs a job from its command line to its end.

    Args:
      asked: the job, or the jobs that share its name.
      argv: words after the name.

    Returns:
      The summary that is printed last.

    Raises:
      DappleError: if the run fails; nothing is published then.
    """
    options = parse_job(asked.name, argv, asked.flags)
    text = read_text(options.config)
    job = asked.choose(text) if isinstance(asked, JobChoice) else asked
    return run_settings(job, job.load(text), options)


def run_settings(job: Job[Settings, Planned, Result], settings: Settings, options: JobOptions) -> Summary:
    """Runs a job with parsed settings and returns its summary; raises DappleError if it fails."""
    if is_dry_run(options.beam):
        from dapple_dp.pipelines.jobs.dry_run import dry_run

        with of_run(job.name, options.run_id):
            return dry_run(job, _checked(job, settings, options)[0], options)
    EXPORTS.beside(options.output)
    public = options.output if job.zone is Zone.PUBLIC else ""
    with of_run(job.name, options.run_id), reporting(job.name, options, settings, public) as summary:
        settings, warned = _checked(job, settings, options)
        place = job.place(settings, options)
        complete = place.complete()
        if complete is not None:
            summary |= with_warnings(complete, warned)
            return summary
        run = Run(settings=settings, options=options, place=place)
        with carry_out(job, run) as (planned, result):
            with MEASURES.phase("write"):
                outcome = job.write(run, planned, result)
            head = {"run_id": options.run_id, "started": run.started, "versions": versions()}
            with MEASURES.phase("publish"):
                place.publish(head | outcome.manifest)
        summary |= with_warnings(place.summary | outcome.summary, warned)
        if job.shows is not None:
            where = join(options.output, job.shows) if job.shows else options.output
            private = "; it is as private as the input" if job.zone is Zone.TRUSTED else ""
            _LOGGER.info("done: %s%s", where, private)
        return summary


def _checked(
    job: Job[Settings, Any, Any], settings: Settings, options: JobOptions
) -> tuple[Settings, tuple[str, ...] | None]:
    """Returns the resolved settings and their warnings, which it logs."""
    check_stores(settings)
    warned = forewarnings(settings)
    for each in warned or ():
        _LOGGER.warning("warning: %s", each)
    settings = job.resolve(settings)
    _check_outside(settings, options.output)
    return settings, warned


@contextlib.contextmanager
def reporting(job: str, options: JobOptions, settings: Any, public: str = "") -> Iterator[Summary]:
    """Reports a run to metrics and lineage.

    Args:
      job: name of the command.
      options: options of the command line, with the run id and the output.
      settings: settings of the run, which name its input and its ledger.
      public: folder of its released output, if the plan alone determines the requests to it.

    Yields:
      The summary of the run, to be filled in; keys that could not be deleted are added at the end.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(MEASURES.run(job, options.run_id, public))
        if EXPORTS.wanted.lineage:
            from dapple_dp.pipelines.jobs.lineage import report_lineage

            stack.enter_context(report_lineage(job, options.run_id, settings, options.output, options.begun))
        before, summary = len(keys_left()), Summary()
        yield summary
        if left := keys_left()[before:]:
            summary["keys_left"] = list(left)
        for name, metric in (("epsilon", EPSILON), ("warnings", WARNINGS)):
            if summary.get(name) is not None:
                MEASURES.put(metric, summary[name])


@contextlib.contextmanager
def carry_out(job: Job[Settings, Planned, Result], run: Run[Settings]) -> Iterator[tuple[Planned, Result]]:
    """Plans, charges and works; staged files exist only inside this context, so publish or use them there.

    Yields:
      The plan and the result of the work.

    Raises:
      DappleError: if a step fails.
    """
    if is_dry_run(run.options.beam):
        raise ConfigError(f"--dry_run works only in commands such as `dapple {job.name}`; leave it out here.")
    check_stores(run.settings)
    check_runner(run.options.beam.view_as(StandardOptions).runner, getattr(run.settings, "experimental", False))
    check_in_process(job.name, run.options.beam, job.in_process)
    run = dataclasses.replace(run, settings=job.resolve(run.settings))
    run.place.check()
    with MEASURES.phase("plan"):
        planned = job.plan(run)
    with contextlib.ExitStack() as opened:
        with MEASURES.phase("charge"):
            opened.enter_context(run.place.opened(job.reservation(run, planned)))
        with MEASURES.phase("work"):
            result = job.work(run, planned)
        yield planned, result


def _check_outside(settings: Any, output: str) -> None:
    """Refuses an output inside the input folder, since later jobs would read its files as rows."""
    path = getattr(getattr(settings, "data", None), "path", None)
    if output and isinstance(path, str) and would_find(path, output):
        raise ConfigError(
            f"--output must be outside of data.path, got {output}, where jobs would look for rows; choose another one."
        )
