"""Layout of a page: two even columns of plots, tables that fit, and the run on every printed page."""

import re

import pytest

from dapple_dp.pipelines.page.page import Badge, Bar, Page, Plot, PrivacyLabel, Section, Table, html
from dapple_dp.pipelines.page.stamp import RunStamp, css_string

STAMP = RunStamp(run_id="night-7", day="2026-11-22", data="a</style><b>", job="ab" * 32)


def plots(*heights):
    return tuple(
        Plot(title=f"plot {index}", badge=Badge.PUBLIC, svg=f'<svg viewBox="0 0 420 {height}"></svg>')
        for index, height in enumerate(heights)
    )


def section(*blocks):
    return Section(name="part", title="Part", lead="", blocks=blocks)


def page(*blocks, stamp=STAMP, label=None):
    return html(Page(title="Sweep", lead="", tags=(), label=label, sections=(section(*blocks),), stamp=stamp))


def table(n_columns, **more):
    cells = tuple(f"{index}.5" if index % 2 else "10" for index in range(n_columns - 1))
    columns = ("name", *(f"c{index}" for index in range(n_columns - 1)))
    return Table(title="Table", badge=Badge.PUBLIC, columns=columns, rows=(("row", *cells),), **more)


@pytest.mark.parametrize("heights", [(300, 300), (300, 100, 100, 100), (500, 250, 250), (100,) * 13])
def test_plots_stand_in_two_columns_of_even_heights(heights):
    found = section(*plots(*heights)).plots
    assert len(found) == 2
    sums = [sum(each.height for each in column) for column in found]
    assert abs(sums[0] - sums[1]) <= max(heights) + 60
    assert sorted(each.title for column in found for each in column) == sorted(each.title for each in plots(*heights))


def test_a_single_plot_fills_its_section():
    assert [len(column) for column in section(*plots(200)).plots] == [1]
    assert 'class="plots single"' in page(*plots(200))
    assert section().plots == ()


def test_wide_tables_are_cut_into_parts_that_fit():
    parts = table(24).parts
    assert [len(part.columns) for part in parts] == [9, 8, 9]
    assert all(part.columns[0] == "name" and part.rows[0][0] == "row" for part in parts)
    assert [name for part in parts for name in part.columns[1:]] == [f"c{index}" for index in range(23)]
    assert len(table(11).parts) == 1
    text = page(table(24))
    assert text.count("<table>") == 3
    assert 'aria-label="Table, part 2"' in text


def test_numbers_of_a_column_have_their_points_in_line():
    both = Table(
        title="T", badge=Badge.PUBLIC, columns=("n", "v"), rows=(("a", "1.25"), ("b", "7"), ("c", Bar("1", 1)))
    )
    assert [row[1] for row in both.parts[0].rows[:2]] == ["1.25", "7\u2008\u2007\u2007"]


def test_every_printed_page_says_of_which_run_it_is():
    text = page()
    rules = re.search(r"@page \{.*\}", text).group()
    assert css_string("Sweep") in rules
    assert css_string(STAMP.line) in rules
    assert "</style><b>" not in text.replace("</style>\n", "")
    for value in ("night-7", "2026-11-22 (UTC)", "a&lt;/style&gt;&lt;b&gt;", "ab" * 32):
        assert value in text


def test_a_page_of_no_run_has_no_stamp():
    assert 'class="stamp"' not in page(stamp=None)


@pytest.mark.parametrize("text", ['"; } body { display: none', "\\", "\n", "</style>", "漢字", "a b-c"])
def test_strings_of_the_style_sheet_cannot_end_early(text):
    found = css_string(text)
    assert re.fullmatch(r'"(?:[A-Za-z0-9 ]|\\[0-9a-f]{6} )*"', found)
    decoded = re.sub(r"\\([0-9a-f]{6}) ", lambda match: chr(int(match.group(1), 16)), found[1:-1])
    assert decoded == text


def test_small_numbers_are_not_broken_over_lines():
    label = PrivacyLabel(epsilon="1", delta="1e-06", meaning="up to 1e-06.", pairs=(("<Left>", "delta 1e-05 & more"),))
    text = page(label=label)
    assert 'up to <span class="number">1e-06</span>.' in text
    assert 'delta <span class="number">1e-05</span> &amp; more' in text


def test_long_names_break_where_a_part_ends_and_numbers_do_not():
    block = Table(
        title="T", badge=Badge.PUBLIC, columns=("n", "by"), rows=(("a_b", "<i>a_name 41.2 x/y &amp_"),), words=2
    )
    assert '<td class="words">&lt;i&gt;a_<wbr>name 41.2 x/<wbr>y &amp;amp_</td>' in page(block)
    assert '<th scope="row">a_b</th>' in page(block)


def test_wide_tables_say_on_phones_that_they_scroll():
    assert 'class="scroll wide"' in page(table(7))
    assert 'class="scroll"' in page(table(3))
    assert ".scroll.wide::before" in page()
