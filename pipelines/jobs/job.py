"""What a job is: a record that says how it is asked for, planned, charged, worked and written."""

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
"""What a job of the trusted zone says of its guarantee: there is none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run(Generic[Settings]):
    """One run of a job.

    Attributes:
      settings: of its config file.
      options: of its command line.
      place: where it writes.
    """

    settings: Settings
    options: JobOptions
    place: Place

    @property
    def started(self) -> str:
        """UTC, ISO 8601, before any row is read; when it ended would reveal how long the rows took."""
        return self.options.begun.isoformat(timespec="seconds")

    @property
    def folder(self) -> RunFolder:
        """Where files are staged; of no use to a job without `--output`."""
        return self.place.folder


class Outcome(NamedTuple):
    """What a job says of a run when all of its files are staged.

    Attributes:
      summary: printed last, beside run id and output; with what was spent.
      manifest: content of `run.json` but for run id, versions and the list of files.
    """

    summary: Summary
    manifest: dict[str, Any] = {}  # noqa: RUF012 - never changed


def _as_they_are(settings: Settings) -> Settings:
    return settings


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Job(Generic[Settings, Planned, Result]):
    """A job of the command; `run_job` is the one way through it.

    Attributes:
      name: word of the command.
      load: settings from the text of the config file; raises ConfigError.
      plan: what the run will do and spend; reads public data only.
      work: reads private rows, draws noise, and stages what graphs write.
      write: stages the other files.
      zone: whether outputs are released or stay in the trusted zone.
      shows: file or folder of the output that the last line of the log names; "" for the output, None for no line.
      flags: of its command line, besides `--config` and Beam's.
      place: where it writes; by default a folder that is complete or absent.
      reserve: what the ledger holds for a plan before private rows are read; None where nothing is charged, or where
        every part of the work is charged on its own.
      resolve: settings with what only a schema says, such as columns of patterns; a second time it changes nothing.
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
        """The charge of a plan; None if nothing is."""
        return None if self.reserve is None else self.reserve(run, planned)


def charging(charge: Callable[[Planned], Charge]) -> Callable[[Run[Any], Planned], Reservation | None]:
    """Reserves what a plan costs under the id of the run, where the settings name a ledger."""

    def reserve(run: Run[Any], planned: Planned) -> Reservation | None:
        ledger = run.settings.ledger
        return None if ledger is None else Reservation(ledger=ledger, charge=charge(planned), run=run.options.run_id)

    return reserve


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobChoice:
    """Jobs under one word of the command, with equal flags.

    Attributes:
      name: the word.
      choose: says by the text of the config file which job it is.
    """

    name: str
    choose: Callable[[str], Job[Any, Any, Any]]
    flags: tuple[str, ...] = OUTPUT_FLAGS
