"""A report as a page: sections of plots, tables and words, each labeled with what it may be shown to.

Any job can render one; `fit` shows releases and public data only, `evaluate` and `sweep` label what is neither.
"""

import dataclasses
import enum
import functools
import itertools
import logging
import math
import pathlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from dapple_dp.pipelines.page.numbers import at_most, on_points
from dapple_dp.pipelines.page.stamp import RunStamp, css_string
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.privacy.noise_shares import ZEROED_OUT
from dapple_dp.schemas.privacy.statement import PrivacyStatement, computational, odds

if TYPE_CHECKING:
    import jinja2

    from dapple_dp.pipelines.page.svg import Figure

_LOGGER = logging.getLogger(__name__)


def change_words(change: str, seen: str, guess: str, epsilon: float, delta: float, drawn_from: str) -> str:
    """What a guarantee means; bounds are rounded up.

    Args:
      change: what neighbors differ in, such as "Adding or removing one row".
      seen: whose probability changes, such as "any result".
      guess: what an observer guesses, with its prior.
      epsilon: of the guarantee.
      delta: of the guarantee; 0 for none.
      drawn_from: where the noise comes from, as of `computational`.
    """
    factor = at_most(math.exp(epsilon)) if epsilon < 12 else f"e^{at_most(epsilon)}"
    right = odds(epsilon, delta)
    rightly = (
        f"is right with probability at most {at_most(100.0 * right)}%" if right < 0.995 else "may be all but certain"
    )
    slack = f", up to {at_most(delta)}" if delta else ""
    return (
        f"{change} changes the probability of {seen} by at most a factor of {factor}{slack}. An observer who gives "
        f"even odds to {guess}, and knows everything else, {rightly} after seeing it. {computational(drawn_from)}"
    )


def meaning(statement: PrivacyStatement, drawn_from: str) -> str:
    """What it means that one unit is added or removed; where who sends is public, left out of what its sender sends."""
    unit = UNITS[statement.unit]
    moved = "Leaving out" if statement.neighboring_relation == ZEROED_OUT else "Adding or removing"
    guess = f"whether the {unit.word} took part"
    return change_words(f"{moved} {unit.whole}", "any result", guess, statement.epsilon, statement.delta, drawn_from)


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

    @property
    def height(self) -> float:
        """About how high it and its caption are, in units of the view box."""
        found = re.search(r'viewBox="[^"]* ([\d.]+)"', self.svg)
        return (float(found.group(1)) if found else 0.0) + 60.0 + 20.0 * (len(self.caption) / 58.0)


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
      most: columns of numbers side by side; further ones follow in parts below, so that a printed page holds them.
    """

    kind: ClassVar[str] = "table"
    title: str
    badge: Badge
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    words: int = 1
    folded: bool = False
    note: str = ""
    most: int = 10

    @property
    def parts(self) -> "tuple[TablePart, ...]":
        """Tables that fit a page, numbers with their points in line."""
        n_numbers = max(len(self.columns) - self.words, 1)
        n_parts = -(-n_numbers // self.most)
        ends = [self.words + round(index * n_numbers / n_parts) for index in range(n_parts + 1)]
        return tuple(self._part(low, high) for low, high in itertools.pairwise(ends))

    def _part(self, low: int, high: int) -> "TablePart":
        """The columns of words, and those from `low` to `high`."""
        kept = (*range(self.words), *range(low, min(high, len(self.columns))))
        columns = [tuple(row[index] for row in self.rows) for index in kept]
        lined = [
            column if index < self.words else _in_line(column) for index, column in zip(kept, columns, strict=True)
        ]
        rows = tuple(zip(*lined, strict=True)) if self.rows else ()
        return TablePart(tuple(self.columns[index] for index in kept), rows)


class TablePart(NamedTuple):
    """Headings, and a cell per heading in every row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]


def _in_line(column: tuple[str | Bar, ...]) -> tuple[str | Bar, ...]:
    """The cells of a column; texts are filled up so that their decimal points lie in line."""
    texts = iter(on_points([cell for cell in column if isinstance(cell, str)]))
    return tuple(next(texts) if isinstance(cell, str) else cell for cell in column)


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

    @property
    def plots(self) -> tuple[tuple[Plot, ...], ...]:
        """Its plots in two columns of about equal heights, each in order; one column of a single plot."""
        found = [block for block in self.blocks if isinstance(block, Plot)]
        if len(found) < 2:
            return ((found[0],),) if found else ()
        sides = itertools.product((True, False), repeat=min(len(found), 12) - 1)
        best = min(sides, key=lambda side: abs(sum(_signed_heights(found, (True, *side)))))
        lefts = (True, *best, *(False,) * (len(found) - len(best) - 1))
        return (
            tuple(each for each, left in zip(found, lefts, strict=True) if left),
            tuple(each for each, left in zip(found, lefts, strict=True) if not left),
        )


def _signed_heights(plots: list[Plot], lefts: tuple[bool, ...]) -> list[float]:
    """Heights of plots, those of the right column negative."""
    return [each.height if left else -each.height for each, left in zip(plots, lefts, strict=False)]


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
      stamp: of the run; None where a page is drawn for no run.
    """

    title: str
    lead: str
    tags: tuple[str, ...]
    label: PrivacyLabel | None
    sections: tuple[Section, ...]
    stamp: RunStamp | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts of all warnings that it shows."""
        blocks = (block for each in self.sections for block in each.blocks)
        return tuple(block.text for block in blocks if isinstance(block, Notice) and block.level is Level.WARNING)

    @property
    def all_tags(self) -> tuple[str, ...]:
        """Its tags, and how many warnings it shows; "no warnings" only of a page that says what it has checked."""
        if not self.warnings and all(each.name != "warnings" for each in self.sections):
            return self.tags
        number = len(self.warnings)
        return (*self.tags, f"{number or 'no'} warning{'s' if number != 1 else ''}")

    @property
    def print_head(self) -> str:
        """Style of the head and foot of printed pages: what the page is, and of which run."""
        line = "" if self.stamp is None else self.stamp.line
        return (
            "@page { size: A4; margin: 18mm 13mm 15mm; "
            f"@top-left {{ {_PRINT_FONT} content: {css_string(_shortened(self.title, 60))}; }} "
            f"@top-right {{ {_PRINT_FONT} content: {css_string(_shortened(line, 90))}; }} "
            f'@bottom-right {{ {_PRINT_FONT} content: counter(page) " / " counter(pages); }} }}'
        )


_PRINT_FONT = "font: 8pt sans-serif;"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


@functools.cache
def _environment() -> "jinja2.Environment":
    """The templates; fits in memory show no page, and need no Jinja."""
    import jinja2

    found = jinja2.Environment(
        # By file, not by the name of a package: another `pipelines` may be on the path.
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"unbroken": _unbroken, "breakable": _breakable}
    return found


def _unbroken(text: str) -> str:
    """Escaped text in which no line ends inside a number like 1e-06."""
    from jinja2.filters import do_forceescape, do_mark_safe

    escaped = str(do_forceescape(text))
    return do_mark_safe(re.sub(r"\b\d[\d.,]*e[+-]?\d+\b", r'<span class="number">\g<0></span>', escaped))


def _breakable(text: str) -> str:
    """Escaped text that may go on in a new line where a part of a long name ends."""
    from jinja2.filters import do_forceescape, do_mark_safe

    return do_mark_safe(re.sub(r"[_/](?=\w)", r"\g<0><wbr>", str(do_forceescape(text))))


class Drawn(NamedTuple):
    """A page as a file.

    Attributes:
      html: its content.
      warnings: how many it shows; None of one that only says that it could not be drawn.
    """

    html: str
    warnings: int | None


def html(page: Page) -> str:
    """The page as one self-contained file: no script, no request to any network; equal pages give equal text."""
    return _environment().get_template("report.html.j2").render(page=page, badges=tuple(Badge))


_UNWRITTEN = "This report could not be written; the other files of the run are whole."


def render_page(title: str, build: Callable[[], Page], lead: str = _UNWRITTEN, stamp: RunStamp | None = None) -> Drawn:
    """The page that `build` gives; if it fails, one under the same title that says so by its lead.

    What a run has spent must not be lost to its report.
    """
    try:
        page = build()
        return Drawn(html(page), len(page.warnings))
    except Exception as error:  # noqa: BLE001 - any failure; its message may hold a value
        _LOGGER.warning("the report could not be written: %s", describe_unexpected(error))
        return Drawn(html(Page(title=title, lead=lead, tags=(), label=None, sections=(), stamp=stamp)), None)


def plot(
    name: str, title: str, description: str, badge: Badge, draw: "Callable[[], Figure]", caption: str = ""
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
    from dapple_dp.pipelines.page.svg import inline_svg

    try:
        svg = inline_svg(draw(), name, title, description)
    except Exception as error:  # noqa: BLE001 - any failure; its message may hold a value
        _LOGGER.warning("the plot %s could not be drawn: %s", name, describe_unexpected(error))
        return Notice(level=Level.NOTE, text=f"The plot “{title}” could not be drawn.", badge=badge)
    return Plot(title=title, badge=badge, svg=svg, caption=caption)
