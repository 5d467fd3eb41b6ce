"""The `Job` record: functions that load, plan, charge, run and write a job."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from dapple_dp.pipelines.jobs.place import WHOLE, Place, Summary
from dapple_dp.pipelines.ledger.spending import Reservation
from dapple_dp.pipelines.run.flags import OUTPUT_FLAGS
from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.pipelines.run.options import JobOptions
from dapple_dp.schemas.core.plan import Zone
from dapple_dp.schemas.privacy.charge import Charge

Settings = TypeVar("Settings")
Planned = TypeVar("Planned")
Result = TypeVar("Result")
UNPROTECTED: Summary = {"epsilon": None, "delta": None}
"""Guarantee in the summary of a trusted-zone job, which has none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run(Generic[Settings]):
    """One run of a job.

    Attributes:
      settings: settings from the config file.
      options: options of the command line.
      place: output of the run.
    """

    settings: Settings
    options: JobOptions
    place: Place

    @property
    def started(self) -> str:
        """Start time in UTC, ISO 8601, before any row is read; the end time would reveal how long the rows took."""
        return self.options.begun.isoformat(timespec="seconds")

    @property
    def folder(self) -> RunFolder:
        """Folder in which files are staged; unused by jobs without `--output`."""
        return self.place.folder


class Outcome(NamedTuple):
    """Result of a run whose files are all staged.

    Attributes:
      summary: printed last, with run id and output; holds what was spent.
      manifest: content of `run.json` except the run id, versions and the list of files.
    """

    summary: Summary
    manifest: dict[str, Any] = {}  # noqa: RUF012 - never changed


def _as_they_are(settings: Settings) -> Settings:
    return settings


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Job(Generic[Settings, Planned, Result]):
    """A job of the command; always run by `run_job`.

    Attributes:
      name: name of the command.
      load: parses the text of the config file; raises ConfigError.
      plan: plans the run and its privacy cost; reads public data only.
      work: reads private rows, draws noise, and stages the files that graphs write.
      write: stages the other files.
      zone: whether outputs are released or stay in the trusted zone.
      shows: file or folder of the output that the last log line names; "" for the output itself, None for no line.
      flags: flags besides `--config` and Beam's.
      place: output of the run; by default a folder that is complete or absent.
      reserve: charge of a plan, reserved before private rows are read; None if nothing is charged, or if each part of
        the work is charged separately.
      resolve: fills in settings that need a schema, such as column patterns; applying it twice changes nothing.
      in_process: whether it runs with `--runner=InProcess`.
    """

    name: str
    load: Callable[[str], Settings]
    plan: Callable[[Run[Settings]], Planned]
    work: Callable[[Run[Settings], Planned], Result]
    write: Callable[[Run[Settings], Planned, Result], Outcome]
    zone: Zone
    shows: str | None = None
    flags: tuple[str, ...] = OUTPUT_FLAGS
    place: Callable[[Settings, JobOptions], Place] = WHOLE.place
    reserve: Callable[[Run[Settings], Planned], Reservation | None] | None = None
    resolve: Callable[[Settings], Settings] = _as_they_are
    in_process: bool = False

    def reservation(self, run: Run[Settings], planned: Planned) -> Reservation | None:
        """Returns the reservation for a plan; None if nothing is charged."""
        return None if self.reserve is None else self.reserve(run, planned)


def charging(charge: Callable[[Planned], Charge]) -> Callable[[Run[Any], Planned], Reservation | None]:
    """Makes a `reserve` function that charges a plan under the run's id, if the settings name a ledger."""

    def reserve(run: Run[Any], planned: Planned) -> Reservation | None:
        ledger = run.settings.ledger
        return None if ledger is None else Reservation(ledger=ledger, charge=charge(planned), run=run.options.run_id)

    return reserve


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobChoice:
    """Several jobs under one command, with the same flags.

    Attributes:
      name: name of the command.
      choose: picks the job from the text of the config file.
    """

    name: str
    choose: Callable[[str], Job[Any, Any, Any]]
    flags: tuple[str, ...] = OUTPUT_FLAGS
