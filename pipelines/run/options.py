"""Parses the command line into settings and Beam options."""

import argparse
import contextlib
import dataclasses
import datetime
import difflib
import functools
import hashlib
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
)

from dapple_dp.pipelines.run.flags import FORM, OUTPUT_FLAGS, parse_own
from dapple_dp.pipelines.run.folder import absolute, new_run_id
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.choices import Runner
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.places.beam import set_options
from dapple_dp.transforms.files.stores import is_local

View = TypeVar("View", bound=PipelineOptions)
DEFAULT_RUNNER = "FnApiRunner"
NAME_PREFIX = "dapple"
"""Prefix of job names in a cluster."""
MOST_CORES = 64
_CACHE_MEGABYTES = 8192


@contextlib.contextmanager
def spilling(folder: str, options: PipelineOptions) -> Iterator[str | None]:
    """Yields the folder if it and the runner are local, else None; removes files of rows at the end."""
    local = is_local(folder) and shuffles_in_memory(options)
    try:
        yield folder if local else None
    finally:
        if local:
            from dapple_dp.transforms.files import row_spill

            row_spill.remove(folder)


class GivenOptions(PipelineOptions):
    """Beam options that parse their flags once per class, since Beam asks for them at every step."""

    def view_as(self, cls: type[View]) -> View:
        """Returns the cached view of a class; all views share their values, as in Beam."""
        views = _VIEWS.setdefault(self, {})
        if cls not in views or views[cls]._all_options is not self._all_options:
            views[cls] = super().view_as(cls)
        return views[cls]


_VIEWS: weakref.WeakKeyDictionary[GivenOptions, dict[type[PipelineOptions], Any]] = weakref.WeakKeyDictionary()
"""Kept outside the options, which Beam copies and pickles."""


class WorkerOptions(PipelineOptions):
    """Resources of a worker process; they don't change results."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        """Adds the flags in Beam's way."""
        parser.add_argument("--cores", type=int, help="threads that add up rows; default: as many as cores")
        parser.add_argument(
            "--cache_megabytes",
            type=int,
            default=_CACHE_MEGABYTES,
            help="rows that a worker keeps between rounds; 0 for none",
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Parsed command line; flags that a job doesn't have are empty.

    Attributes:
      config: path of the job's YAML file.
      run_id: name of the run; a new one if none is given.
      beam: options passed through to Beam.
      output: folder of the results.
      exchange: folder that all roles of masked aggregation can reach.
      released: folder of the releases so far, for clients' jobs.
      client: name of the client that sends.
      level: number of clusters to keep in the tree of centers; None for all.
      least_size: noisy size below which a cluster joins its nearest relative; None for no limit.
      once: whether a job stops instead of waiting for more.
      drain: whether it stops after finishing what has begun.
      catch_up: date of the last of several windows that may be released at once; "" for one at a time.
      leaves: SHA-256 of private state that the job's caller keeps for later runs, by kind.
      begun: public start of the run in UTC: the command's start, or the time at which its window was due if later. The
        true start would reveal how long the rows of the previous window took.
    """

    config: str
    run_id: str
    beam: PipelineOptions
    output: str = ""
    exchange: str = ""
    released: str = ""
    client: str = ""
    level: int | None = None
    least_size: float | None = None
    once: bool = False
    drain: bool = False
    catch_up: str = ""
    leaves: Mapping[str, str] = dataclasses.field(default_factory=dict)
    begun: datetime.datetime = dataclasses.field(default_factory=functools.partial(datetime.datetime.now, datetime.UTC))


def parse_job(job: str, argv: Sequence[str], flags: Sequence[str] = OUTPUT_FLAGS) -> JobOptions:
    """Parses the flags of a job; all flags that aren't Dapple's must be known to Beam.

    Args:
      job: name of the job.
      argv: words after the name.
      flags: flags of this job besides --config; all are required except --run_id, --level, --least_size, --once,
        --drain and --catch_up.

    Raises:
      ConfigError: for a missing or unknown flag, with the nearest known one.
    """
    given, rest = parse_own(job, argv, flags)
    asked = {name for name in ("once", "drain") if given.pop(name, None) is not None}
    level, least_size = given.pop("level", None), given.pop("least_size", None)
    catch_up = given.pop("catch_up", "").partition(" ")[0]  # click has made a time of the date
    given.setdefault("run_id", new_run_id())
    check_stores({f"--{name}": text for name, text in given.items()})
    beam = beam_options(rest)
    if beam.view_as(GoogleCloudOptions).job_name is None and not shuffles_in_memory(beam):
        beam.view_as(GoogleCloudOptions).job_name = job_name(job, given["run_id"])
    shared = {name: absolute(given[name]) for name in ("exchange", "released") if name in given}
    texts: dict[str, Any] = given | shared
    return JobOptions(
        **texts,
        beam=beam,
        level=None if level is None else int(level),
        least_size=None if least_size is None else float(least_size),
        once="once" in asked,
        drain="drain" in asked,
        catch_up=catch_up,
    )


def job_name(job: str, run_id: str) -> str:
    """Unique name of a run's job in a cluster: lower case letters, digits and '-', as Dataflow requires."""
    digest = hashlib.sha256(f"{job} {run_id}".encode()).hexdigest()[:8]
    return "-".join([NAME_PREFIX, *re.findall("[a-z0-9]+", f"{job} {run_id}".lower()), digest])


def read_text(path: str) -> str:
    """Reads a config file on any Beam filesystem.

    Raises:
      ConfigError: if it can't be read as UTF-8 text.
    """
    refusal = Refusal(kind=ConfigError, rule="--config must be a readable YAML file", remedy="check the path")
    return untrusted.read_text(path, refusal)


def beam_options(flags: Sequence[str]) -> PipelineOptions:
    """Builds Beam options with Dapple's defaults: the local runner, and no upload of the launcher's session.

    Raises:
      ConfigError: for a flag unknown to Beam, or a worker limit out of range.
    """
    _refuse_unknown(flags)
    options = GivenOptions(list(flags))
    check_limits(options)
    standard = options.view_as(StandardOptions)
    if standard.runner is None:
        standard.runner = DEFAULT_RUNNER
    if not shuffles_in_memory(options):
        # Otherwise Beam sends the content of `__main__`, and the paths of the launcher's Python and packages.
        setup = options.view_as(SetupOptions)
        setup.save_main_session = bool(setup.save_main_session)
        options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
    # Stores that need options, such as s3:// and hdfs://, ask for them before the first pipeline is made.
    set_options(options)
    return options


def shuffles_in_memory(options: PipelineOptions) -> bool:
    """Returns whether the runner is local and shuffles in memory."""
    return options.view_as(StandardOptions).runner in (DEFAULT_RUNNER, "DirectRunner") or runs_in_process(options)


def is_on(runner: Runner, options: PipelineOptions) -> bool:
    """Returns whether a job uses this runner; like Beam, accepts any case and the path of the class."""
    return str(options.view_as(StandardOptions).runner).rpartition(".")[2].lower() == runner.lower()


def is_dry_run(options: PipelineOptions) -> bool:
    """Returns whether no pipeline is submitted; like Beam, any value of the flag counts."""
    return bool(options.view_as(TestOptions).dry_run)


def runs_in_process(options: PipelineOptions) -> bool:
    """Returns whether a job runs in this process, without Beam."""
    return str(options.view_as(StandardOptions).runner).lower() == Runner.IN_PROCESS.lower()


def check_in_process(job: str, options: PipelineOptions, serves: bool) -> None:
    """Refuses `--runner=InProcess` for a job that needs Beam, or together with Beam flags.

    Args:
      job: name of the job.
      options: options of the command line.
      serves: whether the job can run without Beam.

    Raises:
      ConfigError: with the name of the job or the flag.
    """
    if not runs_in_process(options):
        return
    if not serves:
        raise ConfigError(f"--runner=InProcess can't run {job}, which needs Beam; leave the flag out.")
    others = sorted(options.get_all_options(drop_default=True).keys() - {"runner"})
    if others:
        raise ConfigError(
            f"--{others[0]} has no meaning for --runner=InProcess, which runs in one process without Beam; leave one "
            "of them out."
        )


def check_limits(options: PipelineOptions) -> WorkerOptions:
    """Returns the given worker limits; raises ConfigError before anything is charged if one is out of range."""
    given = options.view_as(WorkerOptions)
    if given.cores is not None and not 1 <= given.cores <= MOST_CORES:
        raise ConfigError(f"--cores must be from 1 to {MOST_CORES}, got {given.cores}; leave it out to use them all.")
    if not 0 <= given.cache_megabytes <= 1 << 24:
        raise ConfigError(f"--cache_megabytes must be from 0 to {1 << 24}, got {given.cache_megabytes}; give fewer.")
    return given


def _refuse_unknown(flags: Sequence[str]) -> None:
    unknown = _beam_parser().parse_known_args(list(flags))[1]
    if unknown:
        flag = unknown[0].split("=")[0]
        own = ["--config", "--output", "--run_id"]
        near = difflib.get_close_matches(flag, [*known_flags(), *own], n=1)
        remedy = f"did you mean {near[0]}?" if near else "remove it."
        raise ConfigError(f"{flag} is not a flag of Dapple or Beam; {remedy}")


def known_flags() -> list[str]:
    """Lists all flags that Beam knows, including those of `WorkerOptions`."""
    return [text for action in _beam_parser()._actions for text in action.option_strings]


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are `ConfigError`s."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of exiting."""
        raise ConfigError(f"the command line must be `{FORM}`: {message}.")


def _beam_parser() -> _Parser:
    parser = _Parser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    for option_class in (PipelineOptions, *_subclasses(PipelineOptions)):
        option_class._add_argparse_args(parser)
    return parser


def _subclasses(base: type) -> list[type]:
    found: list[type] = []
    child: type
    for child in base.__subclasses__():
        found += [child, *_subclasses(child)]
    return found
