"""The report in a real browser: quiet, alone, readable in both color schemes, on a desk and on a phone."""

import numpy as np
import pytest

from pipelines import report
from schemas.client_block import ClientBlock
from tests import browser, lake

CHROMIUM = browser.find()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]
SECTIONS = ["guarantee", "warnings", "clusters", "rounds", "reading"]
SCHEMES = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
LOUD = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")
WIDTHS = pytest.mark.parametrize("width", [390, 768, 1280])

# Contrast as WCAG 2 has it: of every visible text against the nearest ancestor that paints its background.
CONTRASTS = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = color => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const part = value => value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const light = color => 0.2126 * part(color[0]) + 0.7152 * part(color[1]) + 0.0722 * part(color[2]);
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const color = rgba(getComputedStyle(each).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, box = element.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || !box.width || element.closest("title, desc")) continue;
    const style = getComputedStyle(element), drawn = element instanceof SVGElement;
    const pair = [light(rgba(drawn ? style.fill : style.color)), light(behind(element))].sort((a, b) => b - a);
    found.push([(pair[0] + 0.05) / (pair[1] + 0.05), walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Report of a run with long names, many clusters and several rounds."""
    folder = tmp_path_factory.mktemp("page")
    points = lake.mixture(4000, means=9.0 * np.eye(12, 14))
    names = [f"a_long_name_of_a_column_that_tells_a_story_{index}" for index in range(14)]
    for name, rows in (("lake", points), ("server", points[:300])):
        lake.write_files(folder / name, [lake.pa.table(dict(zip(names, rows.T, strict=True)))])
    settings = {"data__features": names, "n_clusters": 12, "lloyd__steps": 1, "privacy__epsilon": 0.5}
    fit = lake.prepared(lake.job(str(folder / "lake"), str(folder / "server"), **settings))
    path = folder / "report.html"
    path.write_text(report.render(fit, lake.finished(fit, ClientBlock(points))))
    return path


@pytest.fixture(scope="module")
def window():
    with browser.started(CHROMIUM) as found:
        yield found


@SCHEMES
@WIDTHS
def test_it_is_quiet_and_asks_for_nothing(window, page, dark, width):
    window.emulate(width, dark=dark, mobile=width < 500)
    window.open(page)
    asked = [
        parameters["request"]["url"] for method, parameters in window.events if method == "Network.requestWillBeSent"
    ]
    assert page.as_uri() in asked
    assert all(url == page.as_uri() or url.startswith("data:") for url in asked)
    said = [(method, each) for method, each in window.events if method in LOUD]
    assert said == []


@WIDTHS
def test_the_page_does_not_scroll_sideways(window, page, width):
    window.emulate(width, mobile=width < 500)
    window.open(page)
    window.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert window.evaluate("innerWidth") == width
    assert window.evaluate("document.documentElement.scrollWidth") <= width
    inside = "[...document.querySelectorAll('figure, .card, .notice, .label')]"
    assert window.evaluate(f"{inside}.every(each => each.getBoundingClientRect().right <= innerWidth)")


def test_all_sections_are_there_and_linked(window, page):
    window.emulate(1280)
    window.open(page)
    assert window.evaluate("[...document.querySelectorAll('main > section')].map(each => each.id)") == SECTIONS
    assert window.evaluate("[...document.querySelectorAll('nav a')].map(each => each.hash.slice(1))") == SECTIONS
    assert window.evaluate("document.querySelectorAll('h1').length") == 1


def test_every_picture_has_words(window, page):
    window.emulate(1280)
    window.open(page)
    pictures = "[...document.querySelectorAll('svg, img, canvas, object, embed')]"
    assert window.evaluate(f"{pictures}.length") >= 7
    assert window.evaluate(f"{pictures}.every(each => (each.ariaLabel || each.alt || '').length > 20)")
    assert window.evaluate(f"{pictures}.every(each => each.getBoundingClientRect().height > 80)")


@SCHEMES
def test_text_stands_out_from_its_background(window, page, dark):
    window.emulate(1280, dark=dark)
    window.open(page)
    assert window.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark
    contrasts = window.evaluate(CONTRASTS)
    assert len(contrasts) > 300
    assert not [each for each in contrasts if each[0] < 4.5]


def test_the_schemes_differ_and_plots_follow(window, page):
    """Background and ink of the page, and the color of an axis label."""
    seen = []
    for dark in (False, True):
        window.emulate(1280, dark=dark)
        window.open(page)
        styles = "getComputedStyle(document.body).backgroundColor", "getComputedStyle(document.body).color"
        styles += ("getComputedStyle(document.querySelector('figure text')).fill",)
        seen.append([window.evaluate(each) for each in styles])
    assert all(light != dark for light, dark in zip(*seen, strict=True))


@WIDTHS
def test_plot_text_can_be_read(window, page, width):
    """At least nine pixels high on a phone, where a plot is as wide as the screen."""
    window.emulate(width, mobile=width < 500)
    window.open(page)
    scale = "each => parseFloat(each.style.fontSize) * each.ownerSVGElement.getScreenCTM().a"
    sizes = window.evaluate(f"[...document.querySelectorAll('figure text')].map({scale})")
    assert min(sizes) >= 7.0
    assert np.median(sizes) >= 9.0


def test_it_prints(window, page):
    window.emulate(1280, dark=True)
    window.open(page)
    window.call("Emulation.setEmulatedMedia", media="print")
    assert window.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(window.call("Page.printToPDF")["data"]) > 10_000
