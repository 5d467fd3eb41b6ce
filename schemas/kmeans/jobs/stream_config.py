"""Settings of a `stream` job: those of a fit, and a section `stream` with the calendar of windows."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from dapple_dp.schemas.arrivals.topic import MessageColumns, RowTopicConfig, check_settle
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.errors import ConfigError, LedgerRefusedError
from dapple_dp.schemas.kmeans.fit_config import FITS, of_kind, validated, with_algorithm
from dapple_dp.schemas.kmeans.windows_config import EpochTerms, WindowsFit
from dapple_dp.schemas.settings import rejection, tiers, yaml_text
from dapple_dp.schemas.settings.calendar import Calendar, Date
from dapple_dp.schemas.settings.section import Scalar, Text

_SEPARATOR = "/"
_DAY_SECONDS = 86_400
_WORDS = (
    (r"use algorithm (?:feddp_kmeans|dp_lloyd)\b", "use the fit job"),
    (r"\balgorithm windows\b", "a stream"),
    (r"\bepoch\.(?=\w)", "stream."),
    (r"(?<!with )recurring\.(?=memory\b)", "stream."),
    (r"recurring\.previous\b", "{place}"),
    (r"leave (?:recurring|memory) out", "choose another start"),
    (r"choose another run_id, which is charged again", "begin another epoch under another stream.name"),
    (r"(?:write )?recurring\.warm_start: false", "choose another start"),
)
"""Patterns in errors about the fit of a window, and their replacements in the words of a stream."""


class StreamOptions(EpochTerms):
    """The `stream` section: the calendar of an epoch, its start, and the memory of its centers."""

    start: Text = Field(description="the output folder of the fit whose centers the first window starts from")
    name: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = Field(
        description="a name that no other epoch of the data set has: letters, digits, '-', '_' and '.'"
    )
    until: Date | None = Field(
        default=None,
        description="the date of the last window to release now, or leave it out for all whose days are over (UTC)",
    )
    memory: Annotated[int, Field(strict=True, ge=2, le=10_000)] = Field(
        default=30, description="how many windows the centers remember, an integer from 2 to 10000"
    )
    settle: Annotated[int, Field(strict=True, ge=0, le=30 * _DAY_SECONDS)] = Field(
        default=60,
        description="how many seconds after the end of its days a window is released, an integer from 0 to 2592000",
    )
    expected_rows: Annotated[int, Field(strict=True, ge=2), Scalar] | None = Field(
        default=None,
        description="rows, or messages, that each window has at least while its producer works, an integer >= 2: the "
        "command ends with code 67 after the release of one that has fewer, which the guarantee does not cover; or "
        "leave it out",
    )
    kafka: RowTopicConfig | None = Field(
        default=None,
        description="a section with servers and topic if rows are messages; data.path is then a private folder of its "
        "own for copies of them; or leave it out",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """A `stream` job.

    Attributes:
      options: the section `stream`.
      base: settings of every window's fit, as plain data.
      template: the fit of the first window, validated.
    """

    options: StreamOptions
    base: dict[str, Any]
    template: WindowsFit

    @property
    def experimental(self) -> bool:
        """True if the job may use unsupported settings."""
        return self.template.experimental

    @property
    def ledger(self) -> str | None:
        """Path or URL of the ledger that is charged for the windows."""
        return self.template.ledger

    @property
    def calendar(self) -> Calendar:
        """The calendar of the windows."""
        given = self.options
        return Calendar(
            first=given.first, days=given.days, windows=given.windows, settle=given.settle, until=given.until
        )

    def window(self, index: int, output: str) -> WindowsFit:
        """Returns the fit of one window.

        Args:
          index: index of the window, from 0.
          output: folder of the job; each window has a subfolder named by its date.
        """
        return _fit(self.base, self.options, index, output)


def _fit(base: Mapping[str, Any], options: StreamOptions, index: int, output: str) -> WindowsFit:
    """Validates the fit of one window and returns it."""
    epoch = {name: getattr(options, name) for name in EpochTerms.model_fields}
    recurring = {
        "previous": options.start if index == 0 else f"{output.rstrip(_SEPARATOR)}/{options.date_of(index - 1)}",
        "memory": options.memory,
    }
    with in_stream_words(index):
        settings = with_algorithm(dict(base) | {"recurring": recurring})
        algorithm = settings.get("algorithm")
        if algorithm not in FITS:
            validated(settings)
        if algorithm != Algorithm.DP_LLOYD:
            raise ConfigError(
                f"algorithm must be dp_lloyd for a stream, got {algorithm}; use that, or use the fit job."
            )
        settings |= {"algorithm": "windows", "epoch": epoch | {"window": options.date_of(index)}}
        return of_kind(WindowsFit, settings)


def load_stream_config(text: str) -> StreamConfig:
    """Parses a job from YAML text; raises ConfigError like `stream_config`, or if the text isn't YAML."""
    return stream_config(yaml_text.parse(text))


def stream_config(settings: object) -> StreamConfig:
    """Validates plain data, with the fit of the first window, and returns the job.

    Raises:
      ConfigError: one sentence about the first wrong setting.
    """
    if not isinstance(settings, Mapping) or "stream" not in settings:
        raise ConfigError("stream is required; add a section with start, name, column, first and windows.")
    for name in ("recurring", "epoch"):
        if name in settings:
            raise ConfigError(
                f"{name} isn't supported in a stream; leave it out, since each window starts from the one before."
            )
    options = rejection.check_config(StreamOptions, settings["stream"], within="stream")
    base = {str(name): value for name, value in settings.items() if name != "stream"}
    template = _fit(base, options, 0, ".")
    tiers.check(options, template.experimental)
    if options.kafka is not None:
        _check_messages(options, options.kafka, template)
    return StreamConfig(options=options, base=base, template=template)


def _check_messages(options: StreamOptions, topic: RowTopicConfig, template: WindowsFit) -> None:
    """Refuses settings that rows from messages don't support.

    Raises:
      ConfigError: naming the setting.
    """
    MessageColumns.of(template.data, topic)
    if template.encode:
        raise ConfigError(
            "encode isn't supported for rows from a topic; leave it out, and send messages that hold numbers."
        )
    if template.data.missing:
        raise ConfigError(
            "data.missing isn't supported for rows from a topic; leave it out, and send messages that hold all numbers."
        )
    check_settle("stream.settle", options.settle)


@contextlib.contextmanager
def in_stream_words(index: int = 0) -> Iterator[None]:
    """Rewrites errors about the fit of a window in terms of the `stream` section.

    Args:
      index: index of the window; the first one follows `stream.start`, all others the window before.
    """
    try:
        yield
    except (ConfigError, LedgerRefusedError) as error:
        words = _in_words(str(error), "stream.start" if index == 0 else "the window before")
        raise type(error)(words) from error


def _in_words(sentence: str, place: str) -> str:
    for pattern, words in _WORDS:
        sentence = re.sub(pattern, words.format(place=place), sentence)
    return sentence
