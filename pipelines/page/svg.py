"""From a matplotlib figure to SVG inside a page: its colors follow the page's scheme, its ids are its own."""

import io
import pathlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

WIDTH = 420
"""Width of every plot, in the units of its view box; a font size of 12 is meant in the same units."""
INK, MUTED, GRID, SURFACE = "#000001", "#000002", "#000003", "#000004"
ACCENT, WARM, COOL = "#000005", "#000006", "#000007"
SERIES = tuple(f"#0000{index:02x}" for index in range(16, 24))
"""Stand-ins for colors: matplotlib draws with these, and the page's style sheet says what they look like."""

_NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", SURFACE: "surface", ACCENT: "accent", WARM: "warm", COOL: "cool"}
_VARIABLES = _NAMES | {color: f"series-{index}" for index, color in enumerate(SERIES)}
_STYLE_SHEET = pathlib.Path(__file__).parent / "templates" / "report.css"
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 72,
    "figure.facecolor": "none",
    "font.size": 12,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "dapple",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


@contextmanager
def plot_style() -> Iterator[None]:
    """The look of every plot, whatever the machine's own settings are; also silences talk of missing glyphs."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(height: float) -> Figure:
    """An empty figure, `WIDTH` wide and `height` high."""
    return Figure(figsize=(WIDTH / 72.0, height / 72.0), layout="constrained")


def inline_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """An `svg` element that stands in a page by itself; equal figures give equal text.

    Args:
      figure: drawn in `plot_style`, in the colors above.
      name: unique in the page, letters and dashes; ids begin with it.
      title: what the plot is, for people and screen readers.
      description: what it shows, in a sentence or two.
    """
    buffer = io.BytesIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(buffer.getvalue())
    _drop(root)
    _rename(root, name)
    _recolor(root)
    _compact(root)
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-label": f"{title}. {description}",
        "class": "plot",
    }
    for tag, text in (("desc", description), ("title", title)):
        element = ElementTree.Element(tag)
        element.text = text
        root.insert(0, element)
    return ElementTree.tostring(root, encoding="unicode")


def standalone(svg: str) -> str:
    """An inline `svg` element as a file of its own, in the page's light colors on its light surface."""
    light = _STYLE_SHEET.read_text(encoding="utf-8").partition("}")[0]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    text = re.sub(r"var\(--([\w-]+)\)", lambda match: colors[match.group(1)], svg)
    root = ElementTree.fromstring(text)
    _, _, width, height = root.attrib["viewBox"].split()
    root.attrib |= {"xmlns": _SVG[1:-1], "width": width, "height": height, "font-family": "sans-serif"}
    root.insert(2, ElementTree.Element("rect", width="100%", height="100%", fill=colors["surface"]))
    return ElementTree.tostring(root, encoding="unicode")


def _drop(root: ElementTree.Element) -> None:
    """Removes metadata and the style sheet, which would apply to the whole page, and names of namespaces."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
        parent.tag = parent.tag.removeprefix(_SVG)


def _rename(root: ElementTree.Element, name: str) -> None:
    """Gives ids that something refers to the page's prefix; removes the others."""
    text = ElementTree.tostring(root, encoding="unicode")
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        else:
            element.set("id", f"{name}-{element.get('id')}")
        target = element.attrib.pop(_LINK, None)
        if target is not None:
            element.set("href", f"#{name}-{target[1:]}")
        clip = element.get("clip-path")
        if clip is not None:
            element.set("clip-path", clip.replace("url(#", f"url(#{name}-"))


def _recolor(root: ElementTree.Element) -> None:
    """Turns stand-ins into variables of the page, and fonts into the page's own."""
    for element in root.iter():
        style = element.get("style")
        if style is None:
            continue
        style = re.sub(r"#[0-9a-f]{6}", lambda match: _variable(match.group()), style)
        style = re.sub(r"font-family:[^;]*;?", "", style)
        style = re.sub(r"font: *([\d.]+px)[^;]*", r"font-size: \1", style)
        element.set("style", style.strip("; "))


def _variable(color: str) -> str:
    """The style sheet's variable for a stand-in; other colors stay."""
    return f"var(--{_VARIABLES[color]})" if color in _VARIABLES else color


def _compact(element: ElementTree.Element) -> None:
    """Removes what does not show: white space, groups that say nothing, invisible boxes, far decimals."""
    for key in ("d", "x", "y", "transform", "width", "height"):
        value = element.get(key)
        if value is not None:
            element.set(key, re.sub(r"-?\d+\.\d+", lambda match: f"{float(match.group()):.2f}", value.strip()))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if element.tag != "text":
        element.text = None
    for child in element:
        child.tail = None
        _compact(child)
    element[:] = [kept for child in element for kept in _visible(child)]


def _visible(element: ElementTree.Element) -> list[ElementTree.Element]:
    """The element, or its children where it adds nothing to them."""
    if element.tag == "g" and not element.attrib:
        return list(element)
    empty = element.tag == "defs" and not len(element)
    return [] if empty or (element.tag == "path" and element.get("style") == "fill: none") else [element]
