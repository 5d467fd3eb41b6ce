"""Settings of a `decode` job for reports that arrive over time: those of a decode, and a calendar of windows."""

import dataclasses
import functools
from typing import Annotated, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.arrivals.topic import TopicConfig, check_settle
from dapple_dp.schemas.choices import ReportMode
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import DecodeConfig, load_collected, load_decode_config
from dapple_dp.schemas.reports.rows import PARAMETERS_FILE
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.settings.calendar import MOST_WINDOWS, Calendar, Date
from dapple_dp.schemas.settings.section import Section

_WORD = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
_SEPARATOR = "/"
_SECTION = "windows"
_MOST_SETTLE = 30 * 86_400


class WindowsOptions(Section):
    """Calendar for reports in folders named by date, or in a topic."""

    name: Annotated[str, Field(strict=True, pattern=_WORD)] = Field(
        description="a name for the runs of the windows, NAME-DATE: letters, digits, '-', '_' and '.'"
    )
    column: Annotated[str, Field(strict=True, pattern=_WORD)] = Field(
        description="the Hive partition column whose folders are dates like dt=2026-01-31"
    )
    first: Date = Field(description="the date of the first window")
    days: Annotated[int, Field(strict=True, ge=1, le=MOST_WINDOWS)] = Field(
        default=1, description="from one window's date to that of the next, an integer >= 1"
    )
    windows: Annotated[int, Field(strict=True, ge=1, le=MOST_WINDOWS)] = Field(
        description="how many windows there are, an integer from 1 to 10000"
    )
    settle: Annotated[int, Field(strict=True, ge=0, le=_MOST_SETTLE)] = Field(
        default=60,
        description="how many seconds after the end of its days a window is decoded, an integer from 0 to 2592000",
    )
    kafka: TopicConfig | None = Field(
        default=None,
        description="a section with servers and topic if reports are messages; reports.path is then a folder of its "
        "own for copies of them; or leave it out",
    )


class WindowedDecode(DecodeConfig):
    """A `decode` job with a model for each window; `reports.path` holds the folders of the dates."""

    windows: WindowsOptions = Field(description="the section of the windows with name, column, first and windows")

    @pydantic.model_validator(mode="after")
    def _messages_can_be_read(self) -> Self:
        if self.windows.kafka is None:
            return self
        check_settle("windows.settle", self.windows.settle)
        if self.reports.parameters is None:
            raise ConfigError(
                f"reports.parameters is required for reports from a topic; give the path of {PARAMETERS_FILE}, "
                "outside of reports.path."
            )
        if self.reports.mode is ReportMode.SHUFFLE:
            raise ConfigError(topic_refusal())
        return self

    @property
    def calendar(self) -> Calendar:
        """Calendar of the windows."""
        given = self.windows
        return Calendar(first=given.first, days=given.days, windows=given.windows, settle=given.settle)

    @property
    def root(self) -> str:
        """Parent of the folders of the dates."""
        path = str(self.reports.path)
        return path.rstrip(_SEPARATOR) or path

    def window(self, index: int) -> "DecodeWindow":
        """Returns the decode of one window; by default, the parameters file is beside the folders of the dates."""
        date = self.calendar.date(index)
        reports = self.reports.model_copy(
            update={
                "path": f"{self.root}/{self.windows.column}={date}",
                "parameters": self.reports.parameters or f"{self.root}/{PARAMETERS_FILE}",
            }
        )
        config = DecodeConfig(experimental=self.experimental, reports=reports, seed=self.seed, job=self.job)
        return DecodeWindow(config=config, root=self.root, column=self.windows.column, date=date)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecodeWindow:
    """Decode of one window.

    Attributes:
      config: settings of its decode.
      root: parent of the folders of the dates.
      column: column of the dates, part of the folders' names.
      date: date of the window.
      parameters_digest: digest in the manifests of already decoded windows; None if there are none.
    """

    config: DecodeConfig
    root: str
    column: str
    date: str
    parameters_digest: str | None = None


def topic_refusal() -> str:
    """Returns the error message for shuffled reports in a topic."""
    return (
        "reports.mode must be 'local' for reports from a topic, got 'shuffle'; a topic keeps the order of the "
        "reports, so run shuffle on those of each window, and decode its folders."
    )


def has_windows(text: str) -> bool:
    """Returns whether the settings have a section `windows`; raises ConfigError if the text isn't YAML."""
    settings = yaml_text.parse(text)
    return isinstance(settings, dict) and _SECTION in settings


load_windowed_decode = functools.partial(load_collected, WindowedDecode)
"""Parses a job with windows from YAML text, with or without its `encode` job; raises ConfigError."""


def load_any_decode(text: str) -> DecodeConfig:
    """Parses a `decode` job, with or without windows; raises ConfigError, one sentence."""
    return load_windowed_decode(text) if has_windows(text) else load_decode_config(text)
