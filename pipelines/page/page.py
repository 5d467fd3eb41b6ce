"""A report as a page: sections of plots, tables and text, each labeled with its source.

Any job can render one. `fit` shows only releases and public data; `evaluate` and `sweep` label everything else.
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


def change_words(
    change: str, seen: str, guess: str, epsilon: float, delta: float, drawn_from: str, masks: bool = False
) -> str:
    """Explains a guarantee in plain words; bounds are rounded up.

    Args:
      change: difference between neighbors, such as "Adding or removing one row".
      seen: the event whose probability changes, such as "any result".
      guess: an observer's guess, with its prior.
      epsilon: epsilon of the guarantee.
      delta: delta of the guarantee; 0 for none.
      drawn_from: source of the noise, as for `computational`.
      masks: likewise.
    """
    factor = at_most(math.exp(epsilon)) if epsilon < 12 else f"e^{at_most(epsilon)}"
    right = odds(epsilon, delta)
    rightly = (
        f"is right with probability at most {at_most(100.0 * right)}%" if right < 0.995 else "may be all but certain"
    )
    slack = f", up to {at_most(delta)}" if delta else ""
    return (
        f"{change} changes the probability of {seen} by at most a factor of {factor}{slack}. An observer who gives "
        f"even odds to {guess}, and knows everything else, {rightly} after seeing it. "
        f"{computational(drawn_from, masks)}"
    )


def meaning(statement: PrivacyStatement, drawn_from: str) -> str:
    """Explains a guarantee for adding or removing a unit, or for leaving one out if the senders are public."""
    unit = UNITS[statement.unit]
    moved = "Leaving out" if statement.neighboring_relation == ZEROED_OUT else "Adding or removing"
    guess = f"whether the {unit.word} took part"
    spent = statement.epsilon, statement.delta
    return change_words(
        f"{moved} {unit.whole}", "any result", guess, *spent, drawn_from, masks=statement.masked is not None
    )


class Badge(enum.StrEnum):
    """Source of the numbers shown."""

    RELEASED = "released"
    PUBLIC = "public data"
    EVALUATION = "evaluation (not private)"

    @property
    def style(self) -> str:
        """Class in the style sheet."""
        return self.name.lower()


class Level(enum.StrEnum):
    """Importance of a notice."""

    GOOD = "good"
    NOTE = "note"
    WARNING = "warning"


class Bar(NamedTuple):
    """A table cell drawn as a bar.

    Attributes:
      text: number shown in the bar.
      share: width of the bar, from 0 to 1.
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
        """Approximate height with the caption, in units of the view box."""
        found = re.search(r'viewBox="[^"]* ([\d.]+)"', self.svg)
        return (float(found.group(1)) if found else 0.0) + 60.0 + 20.0 * (len(self.caption) / 58.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table in a scrollable box.

    Attributes:
      title: caption of the table.
      badge: source of the numbers.
      columns: headings.
      rows: one cell per column: text or a bar.
      words: number of columns, from the left, that hold text; the others hold numbers.
      folded: whether it is collapsed at first.
      note: text below the table.
      most: number columns side by side; further ones follow in parts below, to fit a printed page.
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
        """Parts that fit a page, with aligned decimal points."""
        n_numbers = max(len(self.columns) - self.words, 1)
        n_parts = -(-n_numbers // self.most)
        ends = [self.words + round(index * n_numbers / n_parts) for index in range(n_parts + 1)]
        return tuple(self._part(low, high) for low, high in itertools.pairwise(ends))

    def _part(self, low: int, high: int) -> "TablePart":
        """The text columns, and the number columns from `low` to `high`."""
        kept = (*range(self.words), *range(low, min(high, len(self.columns))))
        columns = [tuple(row[index] for row in self.rows) for index in kept]
        lined = [
            column if index < self.words else _in_line(column) for index, column in zip(kept, columns, strict=True)
        ]
        rows = tuple(zip(*lined, strict=True)) if self.rows else ()
        return TablePart(tuple(self.columns[index] for index in kept), rows)


class TablePart(NamedTuple):
    """Headings, and one cell per heading in every row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]


def _in_line(column: tuple[str | Bar, ...]) -> tuple[str | Bar, ...]:
    """Aligns the decimal points of a column's texts."""
    texts = iter(on_points([cell for cell in column if isinstance(cell, str)]))
    return tuple(next(texts) if isinstance(cell, str) else cell for cell in column)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names with values, or terms with explanations."""

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
      name: anchor, letters only, unique within the page.
      title: heading.
      lead: one or two sentences below the title.
      blocks: blocks in order.
    """

    name: str
    title: str
    lead: str
    blocks: tuple[Block, ...]

    @property
    def plots(self) -> tuple[tuple[Plot, ...], ...]:
        """Plots in two columns of similar heights, each in order; one column for a single plot."""
        blocks = [block for block in self.blocks if isinstance(block, Plot)]
        if len(blocks) < 2:
            return ((blocks[0],),) if blocks else ()
        sides = itertools.product((True, False), repeat=min(len(blocks), 12) - 1)
        best = min(sides, key=lambda side: abs(sum(_signed_heights(blocks, (True, *side)))))
        lefts = (True, *best, *(False,) * (len(blocks) - len(best) - 1))
        return (
            tuple(each for each, left in zip(blocks, lefts, strict=True) if left),
            tuple(each for each, left in zip(blocks, lefts, strict=True) if not left),
        )


def _signed_heights(plots: list[Plot], lefts: tuple[bool, ...]) -> list[float]:
    """Heights of plots, negative in the right column."""
    return [each.height if left else -each.height for each, left in zip(plots, lefts, strict=False)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyLabel:
    """The card that shows the guarantee.

    Attributes:
      epsilon: as text.
      delta: as text.
      meaning: explanation in plain words.
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
      title: heading and window title.
      lead: one sentence on the run.
      tags: short facts under the heading.
      label: the privacy label; None for a page without a guarantee.
      sections: sections in order.
      stamp: run id and versions of the run; None if the page belongs to no run.
    """

    title: str
    lead: str
    tags: tuple[str, ...]
    label: PrivacyLabel | None
    sections: tuple[Section, ...]
    stamp: RunStamp | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts of all warnings on the page."""
        blocks = (block for section in self.sections for block in section.blocks)
        return tuple(block.text for block in blocks if isinstance(block, Notice) and block.level is Level.WARNING)

    @property
    def all_tags(self) -> tuple[str, ...]:
        """Tags with the number of warnings; "no warnings" appears only if the page has a section on its checks."""
        if not self.warnings and all(section.name != "warnings" for section in self.sections):
            return self.tags
        number = len(self.warnings)
        return (*self.tags, f"{number or 'no'} warning{'s' if number != 1 else ''}")

    @property
    def print_head(self) -> str:
        """Style of printed headers and footers: the title, and the run."""
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
    """The templates; loaded on demand, since fits in memory need no Jinja."""
    import jinja2

    environment = jinja2.Environment(
        # Located by file, since another package named `pipelines` may be on the path.
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"unbroken": _unbroken, "breakable": _breakable}
    return environment


def _unbroken(text: str) -> str:
    """Escaped text without line breaks inside numbers like 1e-06."""
    from jinja2.filters import do_forceescape, do_mark_safe

    escaped = str(do_forceescape(text))
    return do_mark_safe(re.sub(r"\b\d[\d.,]*e[+-]?\d+\b", r'<span class="number">\g<0></span>', escaped))


def _breakable(text: str) -> str:
    """Escaped text that may break after the parts of a long name."""
    from jinja2.filters import do_forceescape, do_mark_safe

    return do_mark_safe(re.sub(r"[_/](?=\w)", r"\g<0><wbr>", str(do_forceescape(text))))


class Drawn(NamedTuple):
    """A page as a file.

    Attributes:
      html: content of the file.
      warnings: number of warnings shown; None if the page could not be drawn.
    """

    html: str
    warnings: int | None


def html(page: Page) -> str:
    """Renders the page as one self-contained file without scripts or network requests; the output is deterministic."""
    return _environment().get_template("report.html.j2").render(page=page, badges=tuple(Badge))


_UNWRITTEN = "This report could not be written; the other files of the run are whole."


def render_page(title: str, build: Callable[[], Page], lead: str = _UNWRITTEN, stamp: RunStamp | None = None) -> Drawn:
    """Renders the page from `build`; if that fails, a page with the same title and an explanation.

    A failed report must not lose the results of a run that has spent its budget.
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
    """Draws a plot, or returns a notice if that fails, since a picture must not fail a run that has spent its budget.

    Args:
      name: name with letters and dashes, unique within the page.
      title: title of the plot.
      description: alternative text for readers who can't see the plot.
      badge: source of the numbers.
      draw: returns the figure.
      caption: explanation of the plot.
    """
    from dapple_dp.pipelines.page.svg import inline_svg

    try:
        svg = inline_svg(draw(), name, title, description)
    except Exception as error:  # noqa: BLE001 - any failure; its message may hold a value
        _LOGGER.warning("the plot %s could not be drawn: %s", name, describe_unexpected(error))
        return Notice(level=Level.NOTE, text=f"The plot “{title}” could not be drawn.", badge=badge)
    return Plot(title=title, badge=badge, svg=svg, caption=caption)
