"""SVG figures of charts for embedding in a page: their colors follow the page, and their ids are unique.

Dapple draws them itself: the plots are few and plain, and a plotting library takes longer to import and draw than a
small job takes to run.
"""

import pathlib
import re
from collections.abc import Generator, Iterable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from dapple_dp.pipelines.page.axis import text_width
from dapple_dp.pipelines.page.chart import MUTED, Chart, Look, View, element, fill, label, number, point, stroke

WIDTH = 420.0
"""Width of every plot in units of its view box; font sizes use the same units."""
_STYLE_SHEET = pathlib.Path(__file__).parent / "templates" / "report.css"
_LINE = 18.0
_SAMPLE = 26.0
"""Width of a sample in the legend."""


class Figure:
    """Charts in rows, with a legend above and labels beside them.

    Args:
      height: height in units of the view box.
      columns: number of columns.

    Attributes:
      charts: charts, row by row.
      x_label: label below all charts.
      y_label: label on the left.
      legend: names and styles of marks.
      legend_columns: largest number of columns.
      legend_right: whether the legend is right-aligned.
    """

    def __init__(self, height: float, columns: int = 1):
        self.height, self.columns = height, columns
        self.charts: list[Chart] = []
        self.x_label, self.y_label = "", ""
        self.legend: list[tuple[str, Look]] = []
        self.legend_columns, self.legend_right = 2, False

    def chart(self) -> Chart:
        """Adds a chart and returns it."""
        self.charts.append(Chart())
        return self.charts[-1]

    def elements(self, name: str) -> Iterable[Element]:
        """Yields all elements; ids start with the name."""
        top = yield from self._drawn_legend()
        left, bottom = (20.0 if self.y_label else 0.0), self.height - (20.0 if self.x_label else 0.0)
        n_rows = -(-len(self.charts) // self.columns)
        width, height = (WIDTH - left) / self.columns, (bottom - top) / max(n_rows, 1)
        room = [max(each) for each in zip(*(chart.margins() for chart in self.charts), strict=True)]
        for index, chart in enumerate(self.charts):
            row, column = divmod(index, self.columns)
            cell = (left + column * width, top + row * height, width, height)
            view = _view(chart, cell, room)
            yield from chart.drawn(view, f"{name}-clip-{index}")
            yield from _labels(chart, view, cell)
        if self.x_label:
            yield label(self.x_label, left + (WIDTH - left) / 2.0, self.height - 9.0, MUTED, "middle")
        if self.y_label:
            yield _upward(self.y_label, 9.0, (top + bottom) / 2.0)

    def _drawn_legend(self) -> Generator[Element, None, float]:
        """Yields the legend; returns its lower end."""
        columns = [self.legend[start :: self.legend_columns] for start in range(self.legend_columns)]
        widths = [max((text_width(text) for text, _ in each), default=0.0) + _SAMPLE + 18.0 for each in columns if each]
        start = max(WIDTH - sum(widths), 0.0) if self.legend_right else 4.0
        for column, entries in enumerate(each for each in columns if each):
            at = start + sum(widths[:column])
            for row, (text, look) in enumerate(entries):
                yield from _sample(look, at, 10.0 + row * _LINE)
                yield label(text, at + _SAMPLE + 4.0, 10.0 + row * _LINE)
        return _LINE * max((len(each) for each in columns), default=0)


def _sample(look: Look, x: float, y: float) -> Iterable[Element]:
    """Sample of a mark in the legend."""
    if look.marker == "box":
        yield element("rect", fill(look.color, look.opacity), x=x + 6.0, y=y - 5.0, width=16.0, height=10.0)
        return
    if look.width:
        yield element("path", stroke(look), d=f"M{number(x)} {number(y)}h{number(_SAMPLE - 2.0)}")
    if look.marker:
        yield point(look.marker, x + _SAMPLE / 2.0 - 1.0, y, 5.0 if look.marker == "|" else 3.2, fill(look.color))


def _view(chart: Chart, cell: tuple[float, float, float, float], room: list[float]) -> View:
    left, top, right, bottom = room
    width, height = max(cell[2] - left - right, 10.0), max(cell[3] - top - bottom, 10.0)
    x, y = cell[0] + left, cell[1] + top
    if chart.equal:
        spans = [abs(high - low) for low, high in (chart.x.limits(), chart.y.limits())]
        scale = min(width / spans[0], height / spans[1])
        x, y = x + (width - scale * spans[0]) / 2.0, y + (height - scale * spans[1]) / 2.0
        width, height = scale * spans[0], scale * spans[1]
    return View(chart.x, chart.y, x, y, width, height)


def _labels(chart: Chart, view: View, cell: tuple[float, float, float, float]) -> Iterable[Element]:
    if chart.x.label:
        below = min(view.top + view.height + chart.margins()[3] - 8.0, cell[1] + cell[3] - 8.0)
        wide = text_width(chart.x.label)
        middle = min(view.left + view.width / 2.0, WIDTH - wide / 2.0 - 2.0)
        yield label(chart.x.label, max(middle, wide / 2.0), below, MUTED, "middle")
    if chart.y.label:
        beside = max(view.left - chart.margins()[0], cell[0]) + 9.0
        yield _upward(chart.y.label, beside, view.top + view.height / 2.0)


def _upward(text: str, x: float, y: float) -> Element:
    """A text that runs from bottom to top."""
    result = label(text, x, y, MUTED, "middle")
    result.set("transform", f"rotate(-90 {number(x)} {number(y)})")
    return result


def inline_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Renders a self-contained `svg` element for embedding in a page; the output is deterministic.

    Args:
      figure: in the colors of `dapple_dp.pipelines.page.chart`.
      name: name with letters and dashes, unique within the page; ids start with it.
      title: title for people and screen readers.
      description: alternative text of a sentence or two.
    """
    root = Element("svg")
    root.attrib = {
        "viewBox": f"0 0 {number(WIDTH)} {number(figure.height)}",
        "role": "img",
        "aria-label": f"{title}. {description}",
        "class": "plot",
    }
    for tag, text in (("title", title), ("desc", description)):
        ElementTree.SubElement(root, tag).text = text
    root.extend(list(figure.elements(name)))
    return ElementTree.tostring(root, encoding="unicode")


def standalone(svg: str) -> str:
    """Converts an inline `svg` element to a file, with the page's light colors and background."""
    light = _STYLE_SHEET.read_text(encoding="utf-8").partition("}")[0]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    text = re.sub(r"var\(--([\w-]+)\)", lambda match: colors[match.group(1)], svg)
    root = ElementTree.fromstring(text)
    _, _, width, height = root.attrib["viewBox"].split()
    own = {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": height, "font-family": "sans-serif"}
    root.attrib |= own
    root.insert(2, Element("rect", width="100%", height="100%", fill=colors["surface"]))
    return ElementTree.tostring(root, encoding="unicode")
