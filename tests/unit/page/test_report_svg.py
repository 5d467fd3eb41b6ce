"""Plots as parts of a page: their own ids, the page's colors, words for those who do not see them, equal bytes."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.report import cluster_plots
from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary
from dapple_dp.pipelines.page import page as report_page
from dapple_dp.pipelines.page import plots
from dapple_dp.pipelines.page.chart import ACCENT, Look
from dapple_dp.pipelines.page.page import Badge, Notice, Page, Plot, Section, html, plot
from dapple_dp.pipelines.page.svg import Figure, inline_svg, standalone


def summary(n_clusters, n_features, sizes=None, names=()):
    rng = np.random.default_rng(0)
    sizes = rng.normal(100.0, 80.0, n_clusters) if sizes is None else np.asarray(sizes)
    return CenterSummary.of(rng.normal(size=(n_clusters, n_features)), sizes, names)


def line():
    figure = Figure(200)
    figure.chart().line([0, 1], [1, 2], Look(ACCENT, 1.6, marker="o"))
    return figure


def svg(draw=line, name="line"):
    return inline_svg(draw(), name, "A <line>", "It rises.")


def test_it_speaks_to_those_who_do_not_see_it():
    root = ElementTree.fromstring(svg())
    assert root.get("role") == "img"
    assert root.get("aria-label") == "A <line>. It rises."
    assert [root.findtext("title"), root.findtext("desc")] == ["A <line>", "It rises."]


def test_colors_and_fonts_are_the_pages():
    text = svg()
    assert "var(--accent)" in text
    assert "var(--muted)" in text
    assert not re.search(r"#[0-9a-f]{6}", text)
    assert "font-family" not in text
    assert "<style" not in text


def test_ids_are_its_own_and_all_are_used():
    text = svg(name="first")
    ids = set(re.findall(r' id="([^"]+)"', text))
    used = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert ids
    assert ids == used
    assert all(each.startswith("first-") for each in ids)
    assert not ids & set(re.findall(r' id="([^"]+)"', svg(name="second")))


def test_equal_figures_give_equal_bytes():
    assert svg() == svg()


def test_the_file_names_no_other_place():
    assert "http" not in svg()


def test_the_elbow_says_what_was_chosen():
    assert "chosen: 3" in svg(lambda: plots.elbow_plot(np.array([9.0, 4.0, 1.0, 0.9]), 3))


def test_lines_with_bands_are_named():
    x = np.array([0.1, 1.0, 10.0])
    series = [plots.Series("private", x, x, x / 2, x * 2), plots.Series("plain", x, x + 1)]
    text = svg(lambda: plots.line_plot(series, "epsilon", "cost", log_x=True, log_y=True))
    for word in ("private", "plain", "epsilon", "cost"):
        assert word in text


def test_levels_cross_the_whole_plot():
    x, one = np.array([0.2, 0.5, 1.0, 10.0]), np.array([1.0])
    series = [
        plots.Series("private", x, x),
        plots.Series("optimum", np.array([np.nan]), one, one - 0.1, one + 0.1, level=True),
        plots.Series("one seed", np.array([np.nan]), one, level=True),
    ]
    text = svg(lambda: plots.line_plot(series, "epsilon", "cost", log_x=True))
    assert text.count("stroke-dasharray") == 4  # two lines and their legend
    assert [each for each in ("0.2", "0.5", "1", "10") if f">{each}</text>" in text] == ["0.2", "0.5", "1", "10"]
    assert "nan" not in text
    assert "optimum" in svg(lambda: plots.line_plot(series[1:], "epsilon", "cost"))


@pytest.mark.parametrize("n_series", [1, 9, 16])
def test_legends_leave_room_for_lines(n_series):
    x = np.array([1.0, 2.0])
    series = [plots.Series(f"a method with a long name {index} <&>", x, x + index) for index in range(n_series)]
    root = ElementTree.fromstring(svg(lambda: plots.line_plot(series, "epsilon", "cost")))
    assert float(root.get("viewBox").split()[3]) >= 300 + 18 * n_series


def test_a_plot_can_stand_alone():
    found = standalone(svg())
    root = ElementTree.fromstring(found)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("width"), root.get("aria-label")) == (root.get("viewBox").split()[2], "A <line>. It rises.")
    assert "var(" not in found
    assert "#0d6b58" in found
    assert re.findall(r"https?://[^\"]+", found) == ["http://www.w3.org/2000/svg"]


def test_a_picture_that_fails_is_a_notice():
    def draw():
        raise ValueError("secret 17.5")

    found = plot("name", "Sizes", "Bars.", Badge.RELEASED, draw)
    assert isinstance(found, Notice)
    assert "Sizes" in found.text
    assert "17.5" not in found.text


def test_a_page_can_show_what_is_not_private():
    block = plot("line", "Cost", "It rises.", Badge.EVALUATION, line)
    assert isinstance(block, Plot)
    section = Section(name="costs", title="Costs", lead="", blocks=(block,))
    text = html(Page(title="Sweep", lead="", tags=(), label=None, sections=(section,)))
    assert re.search(r"Cost <span class=\"badge evaluation\">evaluation \(not private\)</span>", text)


def test_names_are_whole_over_lines():
    assert plots.wrapped("age", 10) == "age"
    assert plots.wrapped("a_long_name_of_a_column_that_tells", 12) == "a_long_name_\nof_a_column_\nthat_tells"
    assert plots.wrapped("x" * 25, 10) == f"{'x' * 10}\n{'x' * 10}\nxxxxx"
    assert plots.wrapped("a\nb\0c", 10) == "a?b?c"
    long = plots.wrapped(" ".join(["word"] * 50), 10)
    assert max(map(len, long.split("\n"))) <= 10
    assert long.count("\n") == 2
    assert "…" in long


@pytest.mark.parametrize("n_letters", [5, 28, 29, 60, 90])
def test_every_name_of_a_column_stands_whole_beside_the_plots(n_letters):
    names = tuple((f"{index}_" + "ab_cd" * 20)[:n_letters] for index in range(4))
    for draw in (cluster_plots.heat_map, cluster_plots.profile_dots):
        found = ElementTree.fromstring(svg(lambda draw=draw: draw(summary(3, 4, names=names))))
        texts = {"".join(each.itertext()) for each in found.iter("text")}
        assert set(names) <= texts
    panels = [plots.Panel(name, [plots.Series("one", np.arange(3.0), np.arange(3.0))]) for name in names]
    found = ElementTree.fromstring(svg(lambda: plots.panels(panels, "x", "y")))
    whole = {"".join(each.itertext()) for each in found.iter("text")}
    assert n_letters > 66 or set(names) <= whole


def test_profiles_join_no_features():
    """Dots of one cluster stand in rows that could be in any order: no line goes from one row to another."""
    root = ElementTree.fromstring(svg(lambda: cluster_plots.profile_dots(summary(3, 4, [9.0, 9.0, 9.0]))))
    ends = [each.get("d") for each in root.iter("path") if "fill: none" in each.get("style")]
    lines = [re.fullmatch(r"M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)", each) for each in ends]
    flat = [found for found in lines if found]
    assert len(flat) == 4
    assert all(found[1] == found[2] for found in flat)
    assert not any(each.count("L") > 1 for each in ends)


def test_short_keeps_both_ends():
    assert plots.short("abcdefghij", 5) == "ab…ij"
    assert plots.short("abc", 5) == "abc"
    assert report_page.Bar("5%", 1.7).percent == "100.0%"
