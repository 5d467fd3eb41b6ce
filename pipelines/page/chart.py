"""A chart: axes, and marks drawn as SVG elements in the colors of the page."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dapple_dp.pipelines.page.axis import Axis, text_width

INK, MUTED, GRID, SURFACE = "var(--ink)", "var(--muted)", "var(--grid)", "var(--surface)"
ACCENT, WARM, COOL = "var(--accent)", "var(--warm)", "var(--cool)"
SERIES = tuple(f"var(--series-{index})" for index in range(8))
"""Colors, as variables of the page's style sheet."""

LINE = 1.1
"""Line spacing, in multiples of the letter size."""
_MOST_POINTS = 1500
"""Largest number of points in a line; longer lines are thinned without a visible difference."""
_ARM = ((-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4))
_SHAPES = {
    "s": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "^": ((0, -1), (1, 1), (-1, 1)),
    "v": ((0, 1), (1, -1), (-1, -1)),
    "<": ((-1, 0), (1, -1), (1, 1)),
    ">": ((1, 0), (-1, -1), (-1, 1)),
    "D": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "P": (*_ARM, *((-x, -y) for x, y in _ARM)),
    "|": ((-0.2, -1), (0.2, -1), (0.2, 1), (-0.2, 1)),
}
_TITLE = LINE * 12.0
"""Height of one line of a title."""
Shown = tuple[NDArray[np.float64], NDArray[np.float64]]


class Look(NamedTuple):
    """Style of a mark, also in the legend.

    Attributes:
      color: CSS variable of the page.
      width: width of the line; 0 for none.
      dash: dash pattern of the line.
      marker: shape of the points; "" for none, "box" for a filled square.
      opacity: from 0 to 1.
    """

    color: str
    width: float = 0.0
    dash: str = ""
    marker: str = ""
    opacity: float = 1.0


class View(NamedTuple):
    """Position of a chart in the view box, and the mapping of numbers to it."""

    x: Axis
    y: Axis
    left: float
    top: float
    width: float
    height: float

    def places(self, x: ArrayLike, y: ArrayLike) -> Shown:
        """Maps numbers to coordinates in the view box."""
        return self.left + self.x.shares(x) * self.width, self.top + (1.0 - self.y.shares(y)) * self.height


Draw = Callable[[View], Iterable[Element]]


def number(value: float) -> str:
    """Formats a length for SVG."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) >= 0.005 else "0"


def element(tag: str, style: str = "", **attributes: float | str) -> Element:
    """Creates an element with short numbers."""
    found = Element(tag, {key: each if isinstance(each, str) else number(each) for key, each in attributes.items()})
    if style:
        found.set("style", style)
    return found


def label(text: str, x: float, y: float, color: str = INK, anchor: str = "start", size: float = 12.0) -> Element:
    """A text centered vertically at `y`; line feeds start new lines."""
    style = f"font-size: {number(size)}px; text-anchor: {anchor}; fill: {color}"
    lines = ["".join(letter if letter.isprintable() else "?" for letter in line) for line in text.split("\n")]
    result = element("text", style, x=x, y=y + 0.35 * size - 0.5 * LINE * size * (len(lines) - 1))
    result.text = lines[0]
    for line in lines[1:]:
        part = element("tspan", x=x, dy=LINE * size)
        part.text = line
        result.append(part)
    return result


def path(x: NDArray[np.float64], y: NDArray[np.float64], *, closed: bool = False) -> str:
    """Path commands of a line, interrupted at values that aren't finite."""
    parts, pen = [], "M"
    for one, other in zip(x.tolist(), y.tolist(), strict=True):
        if math.isfinite(one) and math.isfinite(other):
            parts.append(f"{pen}{number(one)} {number(other)}")
            pen = "L"
        else:
            pen = "M"
    return " ".join([*parts, "Z"] if closed and parts else parts)


def stroke(look: Look) -> str:
    """Style of a line."""
    found = f"fill: none; stroke: {look.color}; stroke-width: {number(look.width)}"
    found += f"; stroke-dasharray: {look.dash}" if look.dash else ""
    return found + (f"; stroke-opacity: {look.opacity:g}" if look.opacity < 1.0 else "")


def fill(color: str, opacity: float = 1.0) -> str:
    """Style of an area."""
    return f"fill: {color}" + (f"; fill-opacity: {number(opacity)}" if opacity < 1.0 else "")


def point(marker: str, x: float, y: float, radius: float, style: str) -> Element:
    """A point with the given shape."""
    if marker in ("o", "box"):
        return element("circle", style, cx=x, cy=y, r=radius)
    corners = np.array(_SHAPES[marker]) * radius + (x, y)
    return element("path", style, d=path(*corners.T, closed=True))


def _thinned(x: NDArray[np.float64], y: NDArray[np.float64]) -> Shown:
    """Keeps the lowest and highest point of each half unit if there are many, in order."""
    if len(x) <= _MOST_POINTS:
        return x, y
    columns = np.floor(np.nan_to_num(x) * 2.0)
    starts = np.flatnonzero(np.diff(columns, prepend=-np.inf))
    kept = set()
    for start, end in zip(starts, [*starts[1:], len(x)], strict=True):
        part = np.nan_to_num(y[start:end])
        kept |= {start + int(part.argmin()), start + int(part.argmax())}
    order = sorted(kept)
    return x[order], y[order]


class Chart:
    """Axes with marks, drawn in the order in which they are added.

    Attributes:
      x: horizontal axis.
      y: vertical axis.
      title: title above the chart.
      right: space for text on the right.
      equal: whether x and y have the same scale.
    """

    def __init__(self) -> None:
        self.x, self.y = Axis(), Axis()
        self.title, self.right, self.equal = "", 12.0, False
        self.looks: list[tuple[str, Look]] = []
        self._inside: list[Draw] = []
        self._over: list[Draw] = []

    def _add(self, draw: Draw, x: ArrayLike, y: ArrayLike, name: str = "", look: Look | None = None) -> None:
        self.x.include(x)
        self.y.include(y)
        self._inside.append(draw)
        if name and look is not None:
            self.looks.append((name, look))

    def line(self, x: ArrayLike, y: ArrayLike, look: Look, name: str = "", radius: float = 2.6, every: int = 1) -> None:
        """Adds a line (none if its width is 0), with points if the look has a marker."""

        def draw(view: View) -> Iterable[Element]:
            at_x, at_y = view.places(x, y)
            commands = path(*_thinned(at_x, at_y)) if look.width else ""
            if commands:
                yield element("path", stroke(look), d=commands)

        def points(view: View) -> Iterable[Element]:
            at = np.stack(view.places(x, y), axis=1)[::every]
            for one, other in at[np.isfinite(at).all(axis=1)].tolist() if look.marker else ():
                yield point(look.marker, one, other, radius, fill(look.color, look.opacity))

        self._add(draw, x, y, name, look)
        self._over.append(points)

    def dots(self, x: ArrayLike, y: ArrayLike, radii: ArrayLike, styles: Sequence[str]) -> None:
        """Adds a point at each position, with a radius in units of the view box and a style."""

        def draw(view: View) -> Iterable[Element]:
            at_x, at_y = view.places(x, y)
            for one, other, radius, style in zip(at_x, at_y, np.broadcast_to(radii, at_x.shape), styles, strict=True):
                if math.isfinite(one) and math.isfinite(other):
                    yield element("circle", style, cx=float(one), cy=float(other), r=float(radius))

        self._add(lambda _: (), x, y)
        self._over.append(draw)

    def area(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, color: str, opacity: float) -> None:
        """Adds the area between two lines."""
        both = np.concatenate([np.asarray(low, float), np.asarray(high, float)])

        def draw(view: View) -> Iterable[Element]:
            lower, upper = (_thinned(*view.places(x, each)) for each in (low, high))
            corners = [np.concatenate([one, other[::-1]]) for one, other in zip(lower, upper, strict=True)]
            yield element("path", fill(color, opacity), d=path(*corners, closed=True))

        self._add(draw, x, both)

    def boxes(self, x: NDArray[np.float64], y: NDArray[np.float64], style: str) -> None:
        """Adds rectangles of one style by their ends along both axes, shapes (n, 2); infinite ends are the chart's."""
        if not len(x):
            return

        def draw(view: View) -> Iterable[Element]:
            sides = []
            for axis, ends in ((view.x, x), (view.y, y)):
                low, high = axis.limits()
                infinite = np.isinf(ends)
                shown = np.where(infinite, np.where(ends < 0, min(low, high), max(low, high)), ends)
                sides.append(np.clip(axis.shares(shown), -1.0, 2.0))
            across = view.left + sides[0] * view.width
            down = view.top + (1.0 - sides[1]) * view.height
            commands = (
                f"M{number(left)} {number(top)}H{number(right)}V{number(bottom)}H{number(left)}Z"
                for (left, right), (top, bottom) in zip(across.tolist(), down.tolist(), strict=True)
                if all(map(math.isfinite, (left, right, top, bottom)))
            )
            yield element("path", style, d="".join(commands))

        self._add(draw, x, y)

    def stems(self, x: NDArray[np.float64], y: NDArray[np.float64], look: Look, cap: float = 0.0) -> None:
        """Adds straight lines by their ends along both axes, shapes (n, 2); horizontal ones may have caps."""

        def draw(view: View) -> Iterable[Element]:
            across, down = view.places(x, y)
            for (left, right), (top, bottom) in zip(across.tolist(), down.tolist(), strict=True):
                if all(map(math.isfinite, (left, right, top, bottom))):
                    ends = [f"M{number(at)} {number(top - cap)}v{number(2.0 * cap)}" for at in (left, right) if cap]
                    way = f"M{number(left)} {number(top)}L{number(right)} {number(bottom)}"
                    yield element("path", stroke(look), d="".join([way, *ends]))

        self._add(draw, x, y)

    def level(self, y: float, look: Look, name: str = "", offset: float = 0.0) -> None:
        """Adds a horizontal line across the chart."""

        def draw(view: View) -> Iterable[Element]:
            height = float(view.places(0.0, y)[1])
            found = element("path", stroke(look), d=f"M{number(view.left)} {number(height)}h{number(view.width)}")
            if offset:
                found.set("stroke-dashoffset", number(offset))
            yield found

        self._add(draw, (), y, name, look)

    def upright(self, x: float, look: Look) -> None:
        """Adds a vertical line across the chart."""

        def draw(view: View) -> Iterable[Element]:
            across = float(view.left + view.x.shares(x) * view.width)
            yield element("path", stroke(look), d=f"M{number(across)} {number(view.top)}v{number(view.height)}")

        self._add(draw, x, ())

    def note(
        self,
        text: str,
        x: float,
        y: float,
        by: tuple[float, float],
        color: str = INK,
        anchor: str = "start",
        size: float = 12.0,
    ) -> None:
        """Adds a text beside a position, `by` units of the view box to the right and up."""

        def draw(view: View) -> Iterable[Element]:
            at_x, at_y = view.places(x, y)
            yield label(text, float(at_x) + by[0], float(at_y) - by[1], color, anchor, size)

        self._over.append(draw)

    def margins(self) -> tuple[float, float, float, float]:
        """Space for axes and title: left, top, right, bottom."""
        wide = max((text_width(text, self.y.size) for _, text in self.y.marks()), default=0.0)
        names = [text_width(text, self.x.size) for _, text in self.x.marks()]
        bottom = (0.62 * max(names, default=0.0) + 22.0) if self.x.slanted else 10.0 + self.x.size if names else 6.0
        left = wide + 10.0
        if self.x.slanted and names:
            left = max(left, 0.79 * names[0] + 4.0 - (20.0 if self.y.label else 0.0))
        return (
            left + (20.0 if self.y.label else 0.0),
            9.0 + _TITLE * (self.title.count("\n") + 1) if self.title else 8.0,
            self.right,
            bottom + (18.0 if self.x.label else 0.0),
        )

    def drawn(self, view: View, clip: str) -> Iterable[Element]:
        """Draws the chart.

        Args:
          view: position of the chart.
          clip: id of the shape that clips the marks.
        """
        shape = element("clipPath", id=clip)
        shape.append(element("rect", x=view.left, y=view.top - 1.0, width=view.width, height=view.height + 2.0))
        yield shape
        yield from _frame(view)
        group = element("g", **{"clip-path": f"url(#{clip})"})
        for draw in self._inside:
            group.extend(list(draw(view)))
        yield group
        for draw in self._over:
            yield from draw(view)
        if self.title:
            yield label(self.title, view.left, view.top - 5.5 - 0.5 * _TITLE * (self.title.count("\n") + 1))


_THIN = stroke(Look(GRID, 0.8))


def _frame(view: View) -> Iterable[Element]:
    """Axes with tick labels, axis labels and grid lines."""
    bottom = view.top + view.height
    for value, text in view.x.marks():
        at = float(view.left + view.x.shares(value) * view.width)
        if view.left - 1.0 <= at <= view.left + view.width + 1.0:
            yield from _x_mark(view, at, text)
    for value, text in view.y.marks():
        at = float(view.top + (1.0 - view.y.shares(value)) * view.height)
        if view.top - 1.0 <= at <= bottom + 1.0:
            if view.y.grid:
                yield element("path", _THIN, d=f"M{number(view.left)} {number(at)}h{number(view.width)}")
            yield label(text, view.left - 6.0, at, anchor="end", size=view.y.size)
    for axis, shape in ((view.x, f"h{number(view.width)}"), (view.y, f"v{number(-view.height)}")):
        if axis.line:
            yield element("path", stroke(Look(MUTED, 0.8)), d=f"M{number(view.left)} {number(bottom)}{shape}")


def _x_mark(view: View, at: float, text: str) -> Iterable[Element]:
    """A tick label below the horizontal axis."""
    bottom = view.top + view.height
    if view.x.grid:
        yield element("path", _THIN, d=f"M{number(at)} {number(view.top)}v{number(view.height)}")
    anchor = "end" if view.x.slanted else "middle"
    found = label(text, at, bottom + 4.0 + 0.6 * view.x.size, anchor=anchor, size=view.x.size)
    if view.x.slanted:
        found.set("transform", f"rotate(-38 {number(at)} {number(bottom + 8.0)})")
    yield found
