"""The reports in a real browser: quiet, alone, readable in both color schemes, on a desk and on a phone."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.pipelines.kmeans.report import report_page as report
from dapple_dp.pipelines.kmeans.stream import history
from dapple_dp.pipelines.kmeans.stream.windows_page import write_page
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.pipelines.profile import profile_page as profile_report
from dapple_dp.pipelines.trusted_zone import sweep_page as sweep_report
from dapple_dp.pipelines.trusted_zone.sweep_folder import summary
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.profile.plan import PROFILE_SCHEMA
from dapple_dp.schemas.trusted_zone.sweep_config import sweep_config
from dapple_dp.schemas.trusted_zone.sweep_results import CELL_SCHEMA
from dapple_dp.transforms.profile.accounting import calibrate
from tests.scenes import browser, lake, profiles, streams, sweeps

CHROMIUM = browser.find()
STAMP = RunStamp(run_id="night-7", day="2026-11-22", data="people", job="ab" * 32)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]
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


class Case(NamedTuple):
    """Requirements of a page: ids of its sections, and at least this many pictures and texts."""

    sections: list[str]
    pictures: int
    texts: int


CASES = {
    "fit": Case(["guarantee", "warnings", "clusters", "rounds", "reading"], 7, 300),
    "sweep": Case(["costs", "areas", "front", "reading"], 1, 150),
    "stream": Case(["centers", "features", "budget", "windows"], 7, 300),
    "profile": Case(["guarantee", "warnings", "clusters", "means", "values", "reading"], 3, 100),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return request.param, CASES[request.param]


@pytest.fixture(scope="module")
def page(case, tmp_path_factory):
    made = {"fit": fit_page, "sweep": sweep_page, "profile": profile_page, "stream": stream_page}
    return made[case[0]](tmp_path_factory.mktemp(case[0]))


def profile_page(folder):
    """Report of a profile with a cluster that may be empty and a value with a long name."""
    config = profiles.config(epsilon=11.0)
    rows = []
    for cluster, size in enumerate((900.0, -3.0, 40.0)):
        rows.append((cluster, None, "count", None, size, 5.0))
        for column in ("age", "pay"):
            rows.append((cluster, column, "mean", None, 1.5 + cluster, 0.25))
        rows.append((cluster, "age", "percentile", "50", 2.0, None))
        for value in ("clerk", "a_long_name_of_a_value_that_tells_a_story"):
            rows.append((cluster, "job", "count", value, size / 3.0, 4.0))
    table = pa.Table.from_pylist([dict(zip(PROFILE_SCHEMA.names, row, strict=True)) for row in rows], PROFILE_SCHEMA)
    view = profile_report.ProfileView(config=config, plan=calibrate(config, 3), table=table, stamp=STAMP)
    (folder / "report.html").write_text(profile_report.render(view).html)
    return folder / "report.html"


def stream_page(folder):
    """Page of a stream with long names, and with more windows and clusters than it shows."""
    names = [f"a_long_name_of_a_column_that_tells_a_story_{index}" for index in range(10)]
    config, rng = streams.config(folder, names, name="night-7"), np.random.default_rng(1)
    start, steps = rng.uniform(-5.0, 5.0, (10, 10)), rng.normal(0.0, 0.01, (10, 10))
    for index in history.thinned(300)[0]:
        sizes, scores = rng.normal(50.0, 9.0, 10), rng.normal(0.0, 1.0, 10)
        streams.write_window(folder, config, index, start + index * steps, sizes, scores=scores)
    write_page(config, str(folder), 300)
    return folder / "index.html"


def sweep_page(folder):
    """Report of a sweep with long names, levels and settings."""
    job = sweeps.settings("lake", "server", epsilons=[0.2, 0.5, 1.0, 2.0], seeds=2, settings={"lloyd.steps": [1, 2]})
    job["sweep"]["methods"]["a_long_name_of_a_method_that_tells_a_story"] = {"algorithm": "feddp_kmeans"}
    config = sweep_config(job)
    rows = [
        {"method": each.method, "settings": each.settings_text, "epsilon": each.epsilon, "seed": each.seed}
        | {"n_clusters": 3, "cost": 50.0 + number % 7 + 9.0 / (each.epsilon or 9.0), "cell": each.digest}
        for number, each in enumerate(config.cells)
    ]
    found = sweep_report.render(config, summary(pa.Table.from_pylist(rows, schema=CELL_SCHEMA)))
    (folder / "sweep.svg").write_text(found.svg)
    (folder / "report.html").write_text(found.page.html)
    return folder / "report.html"


def fit_page(folder):
    """Report of a run with long names, many clusters and several rounds."""
    points = lake.mixture(4000, means=9.0 * np.eye(12, 14))
    names = [f"a_long_name_of_a_column_that_tells_a_story_{index}" for index in range(14)]
    for name, rows in (("lake", points), ("server", points[:300])):
        lake.write_files(folder / name, [lake.pa.table(dict(zip(names, rows.T, strict=True)))])
    settings = {"data__features": names, "n_clusters": 12, "lloyd__steps": 1, "privacy__epsilon": 0.5}
    fit = lake.planned(lake.job(str(folder / "lake"), str(folder / "server"), **settings))
    path = folder / "report.html"
    path.write_text(report.render(fit, lake.finished(fit, ClientBlock(points)), stamp=STAMP).html)
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


def test_all_sections_are_there_and_linked(window, page, case):
    window.emulate(1280)
    window.open(page)
    assert window.evaluate("[...document.querySelectorAll('main > section')].map(each => each.id)") == case[1].sections
    assert (
        window.evaluate("[...document.querySelectorAll('nav a')].map(each => each.hash.slice(1))") == case[1].sections
    )
    assert window.evaluate("document.querySelectorAll('h1').length") == 1


def test_every_picture_has_words(window, page, case):
    window.emulate(1280)
    window.open(page)
    pictures = "[...document.querySelectorAll('svg, img, canvas, object, embed')]"
    assert window.evaluate(f"{pictures}.length") >= case[1].pictures
    assert window.evaluate(f"{pictures}.every(each => (each.ariaLabel || each.alt || '').length > 20)")
    assert window.evaluate(f"{pictures}.every(each => each.getBoundingClientRect().height > 80)")


@SCHEMES
def test_text_stands_out_from_its_background(window, page, case, dark):
    window.emulate(1280, dark=dark)
    window.open(page)
    assert window.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark
    contrasts = window.evaluate(CONTRASTS)
    assert len(contrasts) > case[1].texts
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
    """On a phone a plot is as wide as the screen, and its text about eleven pixels high."""
    window.emulate(width, mobile=width < 500)
    window.open(page)
    scale = "each => parseFloat(each.style.fontSize) * each.ownerSVGElement.getScreenCTM().a"
    sizes = window.evaluate(f"[...document.querySelectorAll('figure text')].map({scale})")
    assert min(sizes) >= 9.0
    assert np.median(sizes) >= 10.5


def test_it_prints(window, page):
    window.emulate(1280, dark=True)
    window.open(page)
    window.call("Emulation.setEmulatedMedia", media="print")
    assert window.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(window.call("Page.printToPDF")["data"]) > 10_000


def test_printed_cards_are_whole(window, page, tmp_path):
    """No card ends at the foot of a page while it fits one: cards, figures and labels keep together."""
    window.emulate(1280)
    window.open(page)
    window.call("Emulation.setEmulatedMedia", media="print")
    kept = "[...document.querySelectorAll('.card, figure, .label, .notice, p')].map(each => getComputedStyle(each))"
    assert window.evaluate(f"{kept}.every(each => each.breakInside === 'avoid')")
    assert window.evaluate(f"{kept}.length") > 5


def test_every_printed_page_names_its_run(window, page, case):
    """The browser understands the rules for the head and foot of pages, and the head is of this run."""
    window.emulate(1280)
    window.open(page)
    rules = window.evaluate(
        "[...document.styleSheets].flatMap(sheet => [...sheet.cssRules]).filter(rule => rule instanceof CSSPageRule)"
        ".map(rule => rule.cssText).join()"
    )
    assert "@top-left" in rules
    assert "counter(pages)" in rules
    assert case[0] == "sweep" or "run night-7" in rules.replace("\\", "")


def test_wide_tables_say_on_phones_that_they_scroll(window, page):
    content = "getComputedStyle(document.querySelector('.scroll.wide'), '::before').content"
    for width, told in ((390, True), (1280, False)):
        window.emulate(width, mobile=width < 500)
        window.open(page)
        assert ("Swipe sideways" in window.evaluate(content)) is told


def test_sections_are_reached_on_a_phone(window, page):
    """Every link of the navigation is inside the screen."""
    window.emulate(390, mobile=True)
    window.open(page)
    links = "[...document.querySelectorAll('nav a')]"
    assert window.evaluate(f"{links}.every(each => each.getBoundingClientRect().right <= innerWidth)")


def test_two_columns_of_plots_end_together(window, page):
    """On a desk the cards of both columns end at one height, so that there are no holes."""
    window.emulate(1280)
    window.open(page)
    ends = window.evaluate(
        "[...document.querySelectorAll('.plots:not(.single)')].map(plots => [...plots.children].map(column => "
        "column.lastElementChild.getBoundingClientRect().bottom))"
    )
    assert all(abs(left - right) < 1.0 for left, right in ends)


def test_tables_fit_the_printed_page(window, page):
    window.emulate(700)
    window.open(page)
    window.call("Emulation.setEmulatedMedia", media="print")
    window.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    wide = "[...document.querySelectorAll('table')].filter(each => each.getBoundingClientRect().right > innerWidth)"
    assert window.evaluate(f"{wide}.length") == 0


def test_the_plot_of_a_sweep_stands_alone(window, tmp_path):
    sweep_page(tmp_path)
    window.emulate(800)
    window.open(tmp_path / "sweep.svg")
    assert window.evaluate("document.querySelectorAll('text').length") > 10
    assert window.evaluate("document.documentElement.getBoundingClientRect().width") == 420
    assert [method for method, _ in window.events if method in LOUD] == []
