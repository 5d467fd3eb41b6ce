"""A report as a page: sections of plots, tables and words, each labeled with what it may be shown to.

Any job can render one; `fit` shows releases and public data only, `evaluate` and `sweep` label what is neither.
"""

import dataclasses
import enum
import logging
import pathlib
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jinja2
from matplotlib.figure import Figure

from pipelines.page.svg import inline_svg, plot_style
from pipelines.run.failures import describe_unexpected

_LOGGER = logging.getLogger(__name__)
_ENVIRONMENT = jinja2.Environment(
    # By file, not by the name of a package: another `pipelines` may be on the path.
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


class Badge(enum.StrEnum):
    """Where what is shown comes from."""

    RELEASED = "released"
    PUBLIC = "public data"
    EVALUATION = "evaluation (not private)"

    @property
    def style(self) -> str:
        """Class in the style sheet."""
        return self.name.lower()


class Level(enum.StrEnum):
    """How much a reader should mind."""

    GOOD = "good"
    NOTE = "note"
    WARNING = "warning"


class Bar(NamedTuple):
    """A cell of a table that is drawn as a bar.

    Attributes:
      text: the number in it.
      share: width, from 0 to 1.
    """

    text: str
    share: float

    @property
    def percent(self) -> str:
        """Width for the style sheet."""
        return f"{100 * min(max(self.share, 0.0), 1.0):.1f}%"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """An inline SVG with its caption."""

    kind: ClassVar[str] = "plot"
    title: str
    badge: Badge
    svg: str
    caption: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that scrolls in a box of its own.

    Attributes:
      title: its caption.
      badge: where its numbers come from.
      columns: headings.
      rows: a cell per column: text, or a bar.
      words: how many columns, from the left, hold words; the others hold numbers.
      folded: whether it is closed until a reader opens it.
      note: below it.
    """

    kind: ClassVar[str] = "table"
    title: str
    badge: Badge
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    words: int = 1
    folded: bool = False
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and values, or words and what they mean."""

    kind: ClassVar[str] = "facts"
    title: str
    badge: Badge | None
    pairs: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A sentence that a reader should see."""

    kind: ClassVar[str] = "notice"
    level: Level
    text: str
    badge: Badge | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Lines to copy."""

    kind: ClassVar[str] = "code"
    title: str
    text: str


Block = Plot | Table | Facts | Notice | Code


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page.

    Attributes:
      name: anchor, letters only, unique in the page.
      title: heading.
      lead: one or two sentences under it.
      blocks: in order.
    """

    name: str
    title: str
    lead: str
    blocks: tuple[Block, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyLabel:
    """The card that says what is guaranteed.

    Attributes:
      epsilon: as text.
      delta: as text.
      meaning: what they mean, in plain words.
      pairs: names and values.
    """

    epsilon: str
    delta: str
    meaning: str
    pairs: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole report.

    Attributes:
      title: heading, and title of the window.
      lead: what was run, in a sentence.
      tags: short facts under the heading.
      label: the privacy label; None for a page without a guarantee.
      sections: in order.
    """

    title: str
    lead: str
    tags: tuple[str, ...]
    label: PrivacyLabel | None
    sections: tuple[Section, ...]


def html(page: Page) -> str:
    """The page as one self-contained file: no script, no request to any network; equal pages give equal text."""
    return _ENVIRONMENT.get_template("report.html.j2").render(page=page, badges=tuple(Badge))


def rendered(title: str, build: Callable[[], Page]) -> str:
    """The page that `build` gives, as HTML; if it fails, one under the same title that says so.

    What a run has spent must not be lost to its report.
    """
    try:
        return html(build())
    except Exception as error:  # noqa: BLE001 - any failure; its message may hold a value
        _LOGGER.warning("the report could not be written: %s", describe_unexpected(error))
        lead = "This report could not be written; the other files of the run are whole."
        return html(Page(title=title, lead=lead, tags=(), label=None, sections=()))


def plot(
    name: str, title: str, description: str, badge: Badge, draw: Callable[[], Figure], caption: str = ""
) -> Plot | Notice:
    """A plot; or a notice if it cannot be drawn, because what a run has spent must not be lost to a picture.

    Args:
      name: unique in the page, letters and dashes.
      title: what it is.
      description: what it shows, for those who do not see it.
      badge: where its numbers come from.
      draw: gives the figure.
      caption: how to read it.
    """
    try:
        with plot_style():
            svg = inline_svg(draw(), name, title, description)
    except Exception as error:  # noqa: BLE001 - any failure of the drawing library; its message may hold a value
        _LOGGER.warning("the plot %s could not be drawn: %s", name, describe_unexpected(error))
        return Notice(level=Level.NOTE, text=f"The plot “{title}” could not be drawn.", badge=badge)
    return Plot(title=title, badge=badge, svg=svg, caption=caption)
